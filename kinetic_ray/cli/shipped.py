"""What of a project is other than at the last call that sent it, as the store tells."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from kinetic_ray.errors import KineticError

if TYPE_CHECKING:
    from kinetic_ray.bundle.news import News
    from kinetic_ray.bundle.survey import Survey

#: Jobs that are looked at, the newest first.
_MOST = 100


class Since(NamedTuple):
    """The last job that sent the project, and what is new since."""

    job_id: str
    news: News


def since_last_call(store_url: str, found: Survey) -> Since | None:
    """Looks for the newest job in the store that was sent this project; None where there is none.

    Args:
        store_url: The store of calls from here.
        found: What would be sent now.
    """
    from kinetic_ray.bundle.news import news_since
    from kinetic_ray.journal import JobJournal, list_entries
    from kinetic_ray.store import open_store

    seen = set()
    try:
        store = open_store(store_url, create=False)
        for entry in islice(list_entries(store), _MOST):
            bundle = JobJournal(store, entry.job_id).spec().bundle
            if bundle is None or bundle.blob in seen:
                continue
            seen.add(bundle.blob)
            if (news := news_since(store.get_blob(bundle.blob), found.entries)) is not None:
                return Since(entry.job_id, news)
    except (KineticError, OSError):  # no store yet, or a damaged one: `kinetic doctor` tells
        return None
    return None

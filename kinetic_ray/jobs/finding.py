"""Jobs by id, and by what they are."""

from __future__ import annotations

import logging
import math
import os
import time
from collections.abc import Callable
from datetime import datetime
from typing import Any, TypeVar

from kinetic_ray.calls.overlooked import tell_overlooked
from kinetic_ray.config import Target, resolve
from kinetic_ray.core.names import IndexEntry, check_id, id_unix_ms
from kinetic_ray.core.quantities import parse_duration
from kinetic_ray.core.state import JobStatus
from kinetic_ray.errors import ConfigError, DataError, UsageError
from kinetic_ray.frames import own_frames_hidden
from kinetic_ray.jobs.handle import JobHandle
from kinetic_ray.journal import JobJournal, list_entries
from kinetic_ray.store import MissingKey, Store, open_store

_LOG = logging.getLogger("kinetic_ray")

T = TypeVar("T")


@own_frames_hidden()
def attach(
    job_id: str,
    project: str | None = None,
    cluster: str | None = None,
    *,
    profile: str | None = None,
    store: str | os.PathLike[str] | None = None,
) -> JobHandle[Any]:
    """A handle of a job that some process has submitted.

    Args:
        job_id: "job-…", the whole of it. "latest" and shortened ids are the command's; `list_jobs()[0]` is the newest.
        project: A cluster's project: passed over with a notice, for clusters come with a later version.
        cluster: A cluster's name, likewise.
        profile: A named target.
        store: The folder or URL where the job's records are; None = as configured.

    Raises:
        UsageError: Not an id, or the store has no such job.
        ConfigError: The store can't be read.

    Example:
        >>> import kinetic_ray as kinetic
        >>> kinetic.attach("job-0000000000e008000000000000").result()  # doctest: +SKIP
    """
    _check_whole_id(job_id)
    target = resolve(store=store, profile=profile, project=project, cluster=cluster)
    tell_overlooked(target)
    handle: JobHandle[Any] = JobHandle(job_id, target)
    _ = handle.spec  # says that there is no such job, and where it looked
    return handle


def _check_whole_id(job_id: str) -> None:
    try:
        check_id(job_id, "job")
    except UsageError as exc:
        told = '"latest" and shortened ids are for the command: kinetic jobs status latest'
        raise UsageError(f"{exc}. The whole id is needed here; {told}. kinetic.list_jobs()[0] is the newest") from None


@own_frames_hidden()
def list_jobs(  # noqa: PLR0913  what upstream takes by position, and filters by keyword
    project: str | None = None,
    zone: str | None = None,
    cluster: str | None = None,
    namespace: str | None = None,
    *,
    state: JobStatus | str | None = None,
    name: str | None = None,
    tag: str | None = None,
    since: float | str | datetime | None = None,
    profile: str | None = None,
    store: str | os.PathLike[str] | None = None,
) -> list[JobHandle[Any]]:
    """The jobs in the store, newest first.

    Args:
        project: Which cluster, as the next three: passed over with a notice, for clusters come with a later version.
        zone: Its zone.
        cluster: Its name.
        namespace: A namespace there.
        state: Only those of this status.
        name: Only those with this `name=`, or of this function.
        tag: Only those with this tag.
        since: Only those submitted after this: Unix seconds, a datetime, or a span such as "24h" before now.
        profile: A named target.
        store: Another store than the configured one.

    Example:
        >>> import kinetic_ray as kinetic
        >>> kinetic.list_jobs(state="RUNNING", since="24h")  # doctest: +SKIP
        [JobHandle('job-...')]
    """
    for argument, text in (("name", name), ("tag", tag)):
        if text is not None and not isinstance(text, str):
            raise UsageError(f"{argument}={text!r}: expected one text")
    wanted = None if state is None else _status(state)
    oldest = None if since is None else _unix(since)
    target = resolve(profile=profile, store=store, project=project, zone=zone, cluster=cluster, namespace=namespace)
    tell_overlooked(target)
    opened = open_if_there(target)
    if opened is None:
        return []
    entries = (e for e in list_entries(opened) if oldest is None or id_unix_ms(e.job_id) >= oldest * 1000)
    found = (entry.job_id for entry in entries if wanted is None or _state_of(opened, entry) is wanted)
    fitting = (job_id for job_id in found if _fits(JobJournal(opened, job_id), name, tag))
    return [JobHandle(job_id, target, store=opened) for job_id in fitting]


def _state_of(store: Store, entry: IndexEntry) -> JobStatus | None:
    """An end in the index is true; anything else may have changed since. None where that can't be read."""
    status = JobStatus(entry.state)
    if status.is_terminal:
        return status
    journal = JobJournal(store, entry.job_id)

    def look() -> JobStatus | None:
        state = journal.look()
        return None if state is None else state.status

    return _if_readable(entry.job_id, look)


def _fits(journal: JobJournal, name: str | None, tag: str | None) -> bool:
    """Whether a job has the name and the tag; one whose spec can't be read, or was just cleaned up, has none."""
    if name is None and tag is None:
        return True
    labels = _if_readable(journal.job_id, journal.labels)
    if labels is None:
        return False
    return name in (None, labels.name, labels.func_name) and (tag is None or tag in labels.tags)


def _if_readable(job_id: str, look: Callable[[], T]) -> T | None:
    """One damaged job, or one that a newer version wrote, hides no other."""
    try:
        return look()
    except (DataError, ConfigError, MissingKey) as exc:
        _LOG.warning("%s is left out: %s", job_id, exc)
    except UsageError:  # cleaned up since the index was read
        pass
    return None


def open_if_there(target: Target) -> Store | None:
    """The store, or None for a default one that nothing was ever stored in: no reason to complain or to make it."""
    default = target.home / "store"
    if target.store_url == str(default) and not default.exists():
        return None
    return open_store(target.store_url, create=False)


def _status(state: JobStatus | str) -> JobStatus:
    try:
        return JobStatus(str(state).upper())
    except ValueError:
        raise UsageError(f"state={state!r}: expected one of {', '.join(JobStatus)}") from None


def _unix(since: float | str | datetime) -> float:
    if isinstance(since, datetime):
        return since.timestamp()
    if isinstance(since, str):
        return time.time() - parse_duration(since, "since")
    try:
        seconds = float(since)
    except (TypeError, ValueError, OverflowError):
        seconds = math.nan
    if not 0 <= seconds < math.inf:
        raise UsageError(f"since={since!r}: expected Unix seconds, a datetime, or a span such as '24h'")
    return seconds

"""The index of a store's jobs: small objects whose names tell what listing needs. A hint, which can be made anew."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kinetic_ray.core.names import IndexEntry, id_unix_ms, is_id, newest_entries, parse_index
from kinetic_ray.core.state import JobStatus
from kinetic_ray.errors import DataError, UsageError
from kinetic_ray.journal.job import INDEX_ORDER, JobJournal
from kinetic_ray.store import Store

#: Seconds in which a job may be between its index object and its spec, whatever the clocks.
_YOUNG = 24 * 3600.0


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """What :func:`rebuild_index` has found.

    Attributes:
        jobs: How many jobs the store has.
        changed: Those whose index object was missing or said something else.
        removed: Index objects of jobs that are no more.
        unreadable: For every job whose records can't be read, why; its index object is left as it is.
    """

    jobs: int
    changed: tuple[str, ...]
    removed: int
    unreadable: tuple[str, ...]


def list_entries(store: Store) -> list[IndexEntry]:
    """Every job in the store by its index, newest first; what points to a job that doesn't exist yet is passed over."""
    newest = _newest(store)
    entries = (newest[job_id] for job_id in sorted(newest, reverse=True))
    return [e for e in entries if e.state != JobStatus.PENDING or JobJournal(store, e.job_id).exists()]


def rebuild_index(store: Store, now: float) -> Rebuilt:
    """Makes the index say what the jobs' records say. Safe to repeat, and while jobs run.

    Args:
        store: Where the jobs are.
        now: Unix seconds. What there is of a young job is never removed: its spec may be on its way.
    """
    known = _newest(store)
    names = (key.rstrip("/").rpartition("/")[2] for key in store.list("jobs"))
    found = [job_id for job_id in names if is_id(job_id, "job")]
    changed, unreadable, there = [], [], set()
    for journal in (JobJournal(store, job_id) for job_id in found):
        try:
            if _mend(journal, known.get(journal.job_id)):
                changed.append(journal.job_id)
            there.add(journal.job_id)
        except UsageError:  # no spec: cleaned up half-way, or not there yet
            if not _is_young(journal.job_id, now):
                journal.erase()
        except DataError as exc:
            there.add(journal.job_id)
            unreadable.append(f"{journal.job_id}: {exc}")
    gone = {job_id for job_id in known if job_id not in there and not _is_young(job_id, now)}
    removed = [key for key in store.list("index") if (e := parse_index(key)) and e.job_id in gone]
    for key in removed:
        store.delete(key)
    return Rebuilt(len(there), tuple(changed), len(removed), tuple(unreadable))


def _mend(journal: JobJournal, entry: IndexEntry | None) -> bool:
    """Has the index say a job's status; whether it didn't."""
    spec, status = journal.spec(), journal.state().status
    if entry is not None and entry.state == status:
        return False
    journal.index(spec, status)
    if not journal.exists():  # cleaned up meanwhile
        journal.erase()
    return True


def _is_young(job_id: str, now: float) -> bool:
    return id_unix_ms(job_id) >= (now - _YOUNG) * 1000


def _newest(store: Store) -> dict[str, IndexEntry]:
    found = (parse_index(key) for key in store.list("index"))
    return newest_entries((entry for entry in found if entry is not None), INDEX_ORDER)


def pending_jobs(store: Store) -> Iterator[JobJournal]:
    """Jobs whose index says that they have not ended, oldest first."""
    for entry in reversed(list_entries(store)):
        if not JobStatus(entry.state).is_terminal:
            yield JobJournal(store, entry.job_id)

"""A job's durable records in the store: the spec, the cancel record, epochs, events and outcomes."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from kinetic_ray.core.epochs import EpochLog, Taken, adoption, join_segments, state_of
from kinetic_ray.core.names import IndexEntry, JobKeys, epoch_of, id_unix_ms, is_id, newest_entries, parse_index
from kinetic_ray.core.outcome import Outcome
from kinetic_ray.core.records import dump_record, load_record
from kinetic_ray.core.spec import JobSpec
from kinetic_ray.core.state import Event, EventKind, JobState, JobStatus, Reason
from kinetic_ray.errors import DataError, UsageError
from kinetic_ray.store import Store

#: Later states win where a crash left two index objects.
INDEX_ORDER = ("PENDING", "RUNNING", "STOPPED", "FAILED", "SUCCEEDED")
#: Seconds in which a job may be between its index object and its spec, whatever the clocks.
_YOUNG = 24 * 3600.0

#: Segments by key: (number of the first event, events).
Segments = dict[str, tuple[int, tuple[Event, ...]]]


class Fenced(Exception):
    """A newer driver has claimed the job: stop all ranks and exit without another word."""


@dataclass(frozen=True, slots=True)
class JobJournal:
    """The records of one job.

    Example:
        >>> from kinetic_ray.store import open_store
        >>> JobJournal(open_store("memory://doc"), "job-0000000000e008000000000000").exists()
        False
    """

    store: Store
    job_id: str

    @property
    def keys(self) -> JobKeys:
        return JobKeys(self.job_id)

    # The client's records.

    def create(self, spec: JobSpec, env: Mapping[str, str]) -> bool:
        """Makes the job exist; False if it did.

        The env object goes first, so that a spec never names a missing one; the spec last, so that every job is listed:
        an index object without a spec is passed over.
        """
        if spec.env_id is not None:
            self.store.create(self.keys.env(spec.env_id), dump_record("env", {"values": dict(env)}))
        self.store.put(IndexEntry(self.job_id, str(JobStatus.PENDING), spec.func_name).key(), b"")
        return self.store.create(self.keys.spec, dump_record("spec", spec.to_dict()))

    def exists(self) -> bool:
        return self.store.exists(self.keys.spec)

    def spec(self) -> JobSpec:
        """The spec.

        Raises:
            UsageError: This store has no such job.
        """
        data = self.store.find(self.keys.spec)
        if data is None:
            raise UsageError(f"no job {self.job_id} in the store {self.store.url}: another store, or cleaned up")
        return JobSpec.from_dict(load_record("spec", data, where=self.keys.spec))

    def env(self, spec: JobSpec) -> dict[str, str]:
        """The values of the job's environment variables; they are gone once the job has ended."""
        if spec.env_id is None:
            return {}
        key = self.keys.env(spec.env_id)
        return dict(load_record("env", self.store.get(key), where=key)["values"])

    def request_cancel(self, body: Mapping[str, Any]) -> bool:
        """Writes the cancel record; False if there is one already."""
        return self.store.create(self.keys.cancel, dump_record("cancel", body))

    def cancel_requested(self) -> bool:
        return self.store.exists(self.keys.cancel)

    # Reading.

    def epochs(self, seen: Segments | None = None) -> list[EpochLog]:
        """Every epoch.

        Args:
            seen: Segments that were read before, kept by whoever looks often: a segment never changes, so each is
                read once.
        """
        seen = {} if seen is None else seen
        found = (epoch_of(key) for key in self.store.list(self.keys.drivers))
        return [self._epoch(number, seen) for number in sorted(n for n in found if n is not None)]

    def newest_claim(self) -> int:
        """The highest claimed epoch, 0 for none: a driver that sees one above its own is fenced."""
        found = (epoch_of(key) for key in self.store.list(self.keys.drivers))
        return max((number for number in found if number is not None), default=0)

    def state(self, seen: Segments | None = None) -> JobState:
        """What the job is doing, by its records alone; `seen` as for :meth:`epochs`.

        An end counts if no driver had claimed the job by the time it was read: a claim before that may not adopt it.
        """
        while True:
            epochs = self.epochs(seen)
            state = state_of(epochs)
            if not state.is_terminal or self.newest_claim() <= epochs[-1].epoch:
                return state

    def epochs_that_count(self, epoch: int) -> list[int]:
        """The epochs whose outcomes count for what an epoch says: itself, then those it took over, newest first."""
        taken = self._taken(epoch) or ()
        return [epoch, *sorted((each.epoch for each in taken), reverse=True)]

    def outcome(self, epoch: int, attempt: int, rank: int) -> Outcome | None:
        key = self.keys.outcome(epoch, attempt, rank)
        data = self.store.find(key)
        return None if data is None else Outcome.from_dict(load_record("outcome", data, where=key))

    def heartbeat(self, epoch: int) -> int:
        """The heartbeat's sequence number, 0 for none; judged by the observer's own clock."""
        data = self.store.find(self.keys.heartbeat(epoch))
        return 0 if data is None else int(load_record("heartbeat", data)["n"])

    def _epoch(self, number: int, seen: Segments) -> EpochLog:
        taken = self._taken(number)
        keys = self.store.list(self.keys.events(number))
        for key in keys:
            if key not in seen:
                seen[key] = self._segment(key)
        return EpochLog(number, taken, join_segments(seen[key] for key in keys))

    def _taken(self, number: int) -> tuple[Taken, ...] | None:
        """What an epoch has adopted; None while it has not."""
        key = self.keys.adopted(number)
        data = self.store.find(key)
        if data is None:
            return None
        body = load_record("adopted", data, where=key)
        return tuple(Taken(each["epoch"], each["events"]) for each in body["taken"])

    def _segment(self, key: str) -> tuple[int, tuple[Event, ...]]:
        body = load_record("events", self.store.get(key), where=key)
        return body["first"], tuple(Event.from_dict(event) for event in body["events"])

    # The driver's and the hosts' records.

    def publish_outcome(self, epoch: int, attempt: int, outcome: Outcome) -> bool:
        """Publishes a rank's outcome; False if that attempt has one already, which then stands."""
        key = self.keys.outcome(epoch, attempt, outcome.rank)
        return self.store.create(key, dump_record("outcome", outcome.to_dict()))

    def claim(self, body: Mapping[str, Any]) -> DriverLog:
        """Takes the job over: claims the next free epoch, reads the lower ones, adopts.

        Args:
            body: Who claims, for people: host, pid, role.
        """
        number = self.newest_claim() + 1
        while not self.store.create(self.keys.claim(number), dump_record("claim", body)):
            number += 1
        taken = adoption(self.epochs(), number)
        adopted = {"taken": [{"epoch": t.epoch, "events": t.events} for t in taken]}
        self.store.create(self.keys.adopted(number), dump_record("adopted", adopted))
        return DriverLog(self, number)

    def close(self, status: JobStatus, reason: Reason | str, message: str, at: float) -> JobState:
        """Ends a job that no driver will end: claims an epoch, which fences any, and appends the end.

        Safe to repeat, and finishes what a driver that died just after the end has left.

        Returns:
            The state after it: another end, where the job had one already; none, where a newer driver has come.
        """
        if not self.state().is_terminal:
            log = self.claim({"role": "closer"})
            fields = {"status": str(status), "reason": str(reason), "message": message}
            with suppress(Fenced):
                if not self.state().is_terminal:
                    log.append(Event(EventKind.ENDED, at, fields))
        self.settle()
        return self.state()

    def settle(self) -> None:
        """After the end: the env object goes, the index tells the status. Does nothing before; safe to repeat."""
        spec, state = self.spec(), self.state()
        if state.is_terminal:
            self.store.delete_tree(self.keys.env_folder)
            self.index(spec, state.status)

    def index(self, spec: JobSpec, status: JobStatus) -> None:
        """Moves the job's index object to a status; the new one comes before the old ones go.

        A status that isn't an end leaves an end's object alone: only a driver that doesn't know yet says so.
        """
        new = IndexEntry(self.job_id, str(status), spec.func_name).key()
        self.store.put(new, b"")
        for state in INDEX_ORDER:
            old = IndexEntry(self.job_id, state, spec.func_name).key()
            if old != new and (status.is_terminal or not JobStatus(state).is_terminal):
                self.store.delete(old)

    def erase(self) -> None:
        """Removes every record of the job, the index object last; blobs are shared and stay."""
        entries = [key for key in self.store.list("index") if (e := parse_index(key)) and e.job_id == self.job_id]
        self.store.delete_tree(self.keys.root)
        for key in entries:
            self.store.delete(key)


class DriverLog:
    """What the driver of one epoch writes: events in segments, heartbeats.

    Appends are whole segments; each is written once. Thread-safe.
    """

    def __init__(self, journal: JobJournal, epoch: int) -> None:
        self.journal = journal
        self.epoch = epoch
        self._next = 1
        self._beat = 0
        self._lock = threading.Lock()

    def append(self, *events: Event) -> None:
        """Appends events as one segment; after a failure the same events can be appended again.

        Raises:
            Fenced: A newer driver has claimed the job.
            DataError: Someone else has written to this epoch.
        """
        self.check()
        store, keys = self.journal.store, self.journal.keys
        with self._lock:
            key = keys.segment(self.epoch, self._next)
            data = dump_record("events", {"first": self._next, "events": [event.to_dict() for event in events]})
            if events and not store.create(key, data) and store.get(key) != data:
                raise DataError(f"{key} holds other events than those of this driver: two drivers share an epoch")
            self._next += len(events)

    def check(self) -> None:
        """Raises Fenced if a newer driver has claimed the job."""
        if (newest := self.journal.newest_claim()) > self.epoch:
            raise Fenced(f"epoch {newest} has taken {self.journal.job_id} over from epoch {self.epoch}")

    def beat(self) -> None:
        """One heartbeat further."""
        with self._lock:
            self._beat += 1
            key = self.journal.keys.heartbeat(self.epoch)
            self.journal.store.put(key, dump_record("heartbeat", {"n": self._beat}))


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
        now: Unix seconds. A young job's index object is never removed: its spec may be on its way.
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
            continue
        except DataError as exc:
            there.add(journal.job_id)
            unreadable.append(f"{journal.job_id}: {exc}")
    gone = {job_id for job_id in known if job_id not in there and id_unix_ms(job_id) < (now - _YOUNG) * 1000}
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


def _newest(store: Store) -> dict[str, IndexEntry]:
    found = (parse_index(key) for key in store.list("index"))
    return newest_entries((entry for entry in found if entry is not None), INDEX_ORDER)


def pending_jobs(store: Store) -> Iterator[JobJournal]:
    """Jobs whose index says that they have not ended, oldest first."""
    for entry in reversed(list_entries(store)):
        if not JobStatus(entry.state).is_terminal:
            yield JobJournal(store, entry.job_id)


def new_env_id() -> str:
    """A random name for the env object."""
    return secrets.token_hex(16)

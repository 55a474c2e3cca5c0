"""A job's durable records in the store: the spec, the cancel record, epochs, events and outcomes."""

from __future__ import annotations

import json
import secrets
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

from kinetic_ray.core.epochs import EpochLog, adoption
from kinetic_ray.core.names import IndexEntry, JobKeys, epoch_of, parse_index
from kinetic_ray.core.outcome import Outcome
from kinetic_ray.core.records import dump_record, load_record
from kinetic_ray.core.spec import JobSpec
from kinetic_ray.core.state import Event, EventKind, JobState, JobStatus, Reason
from kinetic_ray.errors import DataError, UsageError
from kinetic_ray.journal.merging import Merger
from kinetic_ray.journal.reading import Segments, read_adopted
from kinetic_ray.store import Store

#: Later states win where a crash left two index objects.
INDEX_ORDER = ("PENDING", "RUNNING", "STOPPED", "FAILED", "SUCCEEDED")


class Fenced(Exception):
    """A newer driver has claimed the job, or it was cleaned up: stop all ranks and exit without another word."""


class Labels(NamedTuple):
    """What people call a job by."""

    func_name: str
    name: str
    tags: frozenset[str]


@dataclass(frozen=True, slots=True)
class JobJournal:
    """The records of one job.

    A job can be cleaned up at any moment. Whoever writes a record of it looks afterwards whether it still exists, and
    takes the record back if it doesn't; :meth:`erase` removes the spec first. So nothing brings a job back.

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
        return self.store.create(self.keys.spec, dump_record("spec", spec.to_dict(), spec.format_version))

    def exists(self) -> bool:
        """Whether there is such a job.

        Raises:
            StoreError: That can't be told: the store is away.
        """
        if self.store.exists(self.keys.spec):
            return True
        self.store.require()
        return self.store.exists(self.keys.spec)  # it may have come back in between

    def spec(self) -> JobSpec:
        """The spec.

        Raises:
            UsageError: This store has no such job.
            DataError: Damaged, or another job's.
        """
        spec = JobSpec.from_dict(load_record("spec", self._spec_data(), where=self.keys.spec))
        if spec.job_id != self.job_id:
            raise DataError(f"{self.keys.spec} is the spec of another job, {spec.job_id}: moved by hand?")
        return spec

    def labels(self) -> Labels:
        """What jobs are found by. The record is not held against its digest, which would take most of the time.

        Raises:
            UsageError: This store has no such job.
            DataError: Damaged.
        """
        try:
            body = json.loads(self._spec_data())["body"]
            return Labels(body["func_name"], body["name"], frozenset(body["tags"]))
        except (ValueError, KeyError, TypeError) as exc:
            if isinstance(exc, UsageError):
                raise
            spec = self.spec()  # tells what is wrong
            return Labels(spec.func_name, spec.name, frozenset(spec.tags))

    def _spec_data(self) -> bytes:
        while (data := self.store.find(self.keys.spec)) is None:
            if not self.exists():  # else the store was away for a moment
                raise UsageError(f"no job {self.job_id} in the store {self.store.url}: another store, or cleaned up")
        return data

    def env(self, spec: JobSpec) -> dict[str, str]:
        """The values of the job's environment variables; they are gone once the job has ended."""
        if spec.env_id is None:
            return {}
        key = self.keys.env(spec.env_id)
        return dict(load_record("env", self.store.get(key), where=key)["values"])

    def request_cancel(self, body: Mapping[str, Any]) -> bool:
        """Writes the cancel record; False if there is one already, or no such job."""
        first = self.store.create(self.keys.cancel, dump_record("cancel", body))
        if not self.exists():
            self.store.delete(self.keys.cancel)
            return False
        return first

    def cancel_requested(self) -> bool:
        return self.store.exists(self.keys.cancel)

    # Reading.

    def epochs(self, seen: Segments | None = None) -> list[EpochLog]:
        """Every epoch.

        Args:
            seen: What was read before, kept by whoever looks often.
        """
        return (seen or Segments()).epochs(self.store, self.keys)

    def newest_claim(self) -> int:
        """The highest claimed epoch, 0 for none: a driver that sees one above its own is fenced."""
        found = (epoch_of(key) for key in self.store.list(self.keys.drivers))
        return max((number for number in found if number is not None), default=0)

    def state(self, seen: Segments | None = None) -> JobState:
        """What the job is doing, by its records alone; `seen` as for :meth:`epochs`.

        An end counts if no driver had claimed the job by the time it was read: a claim before that may not adopt it.
        """
        seen = seen or Segments()
        while True:
            epochs = seen.epochs(self.store, self.keys)
            state = seen.state(epochs)
            if not state.is_terminal or self.newest_claim() <= epochs[-1].epoch:
                return state

    def look(self, seen: Segments | None = None) -> JobState | None:
        """The state, or None where there is no such job; never what is seen of one while it is being cleaned up."""
        state = self.state(seen)
        return state if self.exists() else None

    def epochs_that_count(self, epoch: int) -> list[int]:
        """The epochs whose outcomes count for what an epoch says: itself, then those it took over, newest first."""
        taken = read_adopted(self.store, self.keys.adopted(epoch)) or ()
        return [epoch, *sorted((each.epoch for each in taken), reverse=True)]

    def outcome(self, epoch: int, attempt: int, rank: int) -> Outcome | None:
        key = self.keys.outcome(epoch, attempt, rank)
        data = self.store.find(key)
        return None if data is None else Outcome.from_dict(load_record("outcome", data, where=key))

    def heartbeat(self, epoch: int) -> int:
        """The heartbeat's sequence number, 0 for none; judged by the observer's own clock."""
        data = self.store.find(self.keys.heartbeat(epoch))
        return 0 if data is None else int(load_record("heartbeat", data)["n"])

    # The driver's and the hosts' records.

    def publish_outcome(self, epoch: int, attempt: int, outcome: Outcome) -> bool:
        """Publishes a rank's outcome; False if that attempt has one already, which then stands, or of no such job."""
        key = self.keys.outcome(epoch, attempt, outcome.rank)
        first = self.store.create(key, dump_record("outcome", outcome.to_dict()))
        if not self.exists():
            self.store.delete_tree(self.keys.outcomes(epoch, attempt))
            return False
        return first

    def claim(self, body: Mapping[str, Any]) -> DriverLog:
        """Takes the job over: claims the next free epoch, reads the lower ones, adopts.

        Args:
            body: Who claims, for people: host, pid, role.

        Raises:
            UsageError: There is no such job.
        """
        number = self.newest_claim() + 1
        while not self.store.create(self.keys.claim(number), dump_record("claim", body)):
            number += 1
        taken = adoption(self.epochs(), number)
        adopted = {"taken": [{"epoch": t.epoch, "events": t.events} for t in taken]}
        self.store.create(self.keys.adopted(number), dump_record("adopted", adopted))
        log = DriverLog(self, number)
        if not log.stands():
            raise UsageError(f"no job {self.job_id} in the store {self.store.url}: it was cleaned up")
        return log

    def close(self, status: JobStatus, reason: Reason | str, message: str, at: float) -> JobState:
        """Ends a job that no driver will end: claims an epoch, which fences any, and appends the end.

        Safe to repeat, and finishes what a driver that died just after the end has left.

        Returns:
            The state after it: another end, where the job had one already; none, where a newer driver has come, or
            where there is no such job, which this doesn't bring back.
        """
        if self.exists() and not self.state().is_terminal:
            with suppress(Fenced, UsageError):
                log = self.claim({"role": "closer"})
                if not self.state().is_terminal:
                    fields = {"status": str(status), "reason": str(reason), "message": message}
                    log.append(Event(EventKind.ENDED, at, fields))
        self.settle()
        return self.state()

    def settle(self) -> None:
        """After the end: the env object goes, the index tells the status. Does nothing before; safe to repeat."""
        try:
            spec, state = self.spec(), self.state()
        except UsageError:  # cleaned up
            return
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
        if not self.exists():
            self.store.delete(new)

    def erase(self) -> None:
        """Removes every record of the job: the spec first, the index object last. Blobs are shared and stay."""
        self.store.delete(self.keys.spec)
        self.store.delete_tree(self.keys.root)
        for key in self.store.list("index"):
            if (entry := parse_index(key)) and entry.job_id == self.job_id:
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
        self._merger = Merger(journal.store, journal.keys, epoch)
        self._lock = threading.Lock()

    def append(self, *events: Event) -> None:
        """Appends events as one segment; after a failure the same events can be appended again.

        Raises:
            Fenced: A newer driver has claimed the job, or it was cleaned up.
            DataError: Someone else has written to this epoch.
        """
        self._check_claims()
        store, keys = self.journal.store, self.journal.keys
        with self._lock:
            key = keys.segment(self.epoch, self._next)
            dicts = [event.to_dict() for event in events]
            data = dump_record("events", {"first": self._next, "events": dicts})
            if events and not store.create(key, data) and store.get(key) != data:
                raise DataError(f"{key} holds other events than those of this driver: two drivers share an epoch")
            self._check_stands()
            if events:
                self._merger.note(key, self._next, dicts, len(data))
            self._next += len(events)

    def merge(self) -> None:
        """Has many small segments become a large one; what can't be done now is done at the next call.

        Raises:
            Fenced: The job was cleaned up.
            StoreError: The store refused; nothing is lost.
        """
        with self._lock:
            if self._merger.merge():
                self._check_stands()

    def check(self) -> None:
        """Raises Fenced if a newer driver has claimed the job, or it was cleaned up."""
        self._check_claims()
        self._check_stands()

    def stands(self) -> bool:
        """Whether the job still exists; what was written of this epoch is taken back if it doesn't."""
        if self.journal.exists():
            return True
        self.journal.store.delete_tree(self.journal.keys.epoch(self.epoch))
        return False

    def _check_claims(self) -> None:
        if (newest := self.journal.newest_claim()) > self.epoch:
            raise Fenced(f"epoch {newest} has taken {self.journal.job_id} over from epoch {self.epoch}")

    def _check_stands(self) -> None:
        if not self.stands():
            raise Fenced(f"{self.journal.job_id} was cleaned up")

    def beat(self) -> None:
        """One heartbeat further."""
        with self._lock:
            self._beat += 1
            key = self.journal.keys.heartbeat(self.epoch)
            self.journal.store.put(key, dump_record("heartbeat", {"n": self._beat}))


def new_env_id() -> str:
    """A random name for the env object."""
    return secrets.token_hex(16)

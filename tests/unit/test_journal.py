"""The journal under every interleaving: drivers, closers and observers take turns at the store, and some are killed."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kinetic_ray.core.names import make_id
from kinetic_ray.core.outcome import Blob, Outcome
from kinetic_ray.core.spec import Fingerprint, JobSpec
from kinetic_ray.core.state import Event, EventKind, JobState, JobStatus, Reason, Stage
from kinetic_ray.errors import DataError, StoreError, UsageError
from kinetic_ray.journal import DriverLog, Fenced, JobJournal, Segments, list_entries, pending_jobs
from kinetic_ray.store import Store, open_store
from kinetic_ray.store.memory import open_memory
from kinetic_ray.store.place import Place

JOB = make_id("job", 0, bytes(10))
SPEC = JobSpec(JOB, "train", 0.0, "cpu", Blob("ab" * 32, 3), Fingerprint("3.11", "2.60", "3", "0"), env_id="e1")
_NUMBERS = itertools.count()


@pytest.fixture
def store() -> Iterator[Store]:
    with _fresh_store() as store:
        yield store


@pytest.fixture
def journal(store: Store) -> JobJournal:
    journal = JobJournal(store, JOB)
    assert journal.create(SPEC, {"TOKEN": "secret"})
    return journal


@contextmanager
def _fresh_store() -> Iterator[Store]:
    store = open_store(f"memory://journal-{next(_NUMBERS)}")
    yield store
    for key in store.walk(""):
        store.delete(key)


def _event(kind: EventKind, **fields: Any) -> Event:
    return Event(kind, 1.0, fields)


ENDED = _event(EventKind.ENDED, status="SUCCEEDED", reason="", message="")


def test_a_job_exists_once(journal: JobJournal) -> None:
    assert journal.exists()
    assert journal.spec() == SPEC
    assert journal.env(SPEC) == {"TOKEN": "secret"}
    assert not journal.create(SPEC, {"TOKEN": "late"})
    assert journal.env(SPEC) == {"TOKEN": "secret"}
    assert journal.state() == JobState()


def test_no_such_job(store: Store) -> None:
    journal = JobJournal(store, make_id("job", 5, bytes(10)))
    assert not journal.exists()
    with pytest.raises(UsageError, match=r"no job job-.* in the store memory://"):
        journal.spec()
    with pytest.raises(UsageError, match="not a kinetic id"):
        JobJournal(store, "../../x").exists()


def test_a_whole_life(journal: JobJournal) -> None:
    log = journal.claim({"pid": 7})
    assert log.epoch == 1
    log.append(_event(EventKind.DRIVER_STARTED), _event(EventKind.QUEUED, message="busy"))
    assert (journal.state().stage, journal.state().message) == (Stage.QUEUE, "busy")
    log.append(_event(EventKind.ATTEMPT_STARTED, attempt=1))
    assert journal.publish_outcome(1, 1, Outcome(0, True, value=Blob("cd" * 32, 5)))
    assert not journal.publish_outcome(1, 1, Outcome(0, False, message="late"))
    outcome = journal.outcome(1, 1, 0)
    assert outcome is not None
    assert outcome.ok
    assert journal.outcome(1, 1, 1) is None
    log.beat()
    log.beat()
    assert (journal.heartbeat(1), journal.heartbeat(2)) == (2, 0)
    log.append(ENDED)
    journal.settle()
    assert journal.state().status is JobStatus.SUCCEEDED
    assert [(entry.job_id, entry.state, entry.func_name) for entry in list_entries(journal.store)] == [
        (JOB, "SUCCEEDED", "train")
    ]
    assert list(pending_jobs(journal.store)) == []
    assert journal.store.walk(journal.keys.env_folder) == []


def test_a_replaced_driver_is_fenced(journal: JobJournal) -> None:
    old = journal.claim({})
    old.append(_event(EventKind.QUEUED, message="old"))
    new = journal.claim({})
    assert new.epoch == 2
    with pytest.raises(Fenced, match="epoch 2 has taken"):
        old.append(ENDED)
    assert journal.state().message == "old"  # adopted
    new.append(_event(EventKind.QUEUED, message="new"))
    assert (journal.state().message, journal.state().epoch) == ("new", 2)


def test_no_event_is_lost_in_silence(journal: JobJournal) -> None:
    log = journal.claim({})
    log.append()
    log.append(_event(EventKind.QUEUED, message="a"))
    assert journal.state().message == "a"
    again = DriverLog(journal, 1)  # as after a failure that came when the segment was there already
    again.append(_event(EventKind.QUEUED, message="a"))
    log.append(_event(EventKind.QUEUED, message="b"))
    with pytest.raises(DataError, match="two drivers share an epoch"):
        again.append(_event(EventKind.QUEUED, message="c"))
    assert journal.state().message == "b"


def test_close(journal: JobJournal) -> None:
    log = journal.claim({})
    state = journal.close(JobStatus.STOPPED, Reason.CANCELLED, "cancelled by ann", 5.0)
    assert (state.status, state.reason, state.message, state.ended_at) == (
        "STOPPED",
        "Cancelled",
        "cancelled by ann",
        5.0,
    )
    with pytest.raises(Fenced):
        log.check()
    assert journal.close(JobStatus.FAILED, Reason.DRIVER_LOST, "late", 6.0) == state
    assert journal.newest_claim() == 2  # the second close had nothing to claim


def test_cancel_is_asked_once(journal: JobJournal) -> None:
    assert not journal.cancel_requested()
    assert journal.request_cancel({"by": "ann"})
    assert not journal.request_cancel({"by": "bob"})
    assert journal.cancel_requested()


def test_the_index_follows_and_never_forgets_an_end(journal: JobJournal) -> None:
    def states() -> list[str]:
        return sorted(key.split("~")[1] for key in journal.store.list("index"))

    journal.index(SPEC, JobStatus.RUNNING)
    assert states() == ["RUNNING"]
    journal.index(SPEC, JobStatus.PENDING)
    assert states() == ["PENDING"]
    journal.index(SPEC, JobStatus.FAILED)
    assert states() == ["FAILED"]
    journal.index(SPEC, JobStatus.RUNNING)  # by a driver that doesn't know yet that it was replaced
    assert [entry.state for entry in list_entries(journal.store)] == ["FAILED"]


def test_settling_waits_for_the_end(journal: JobJournal) -> None:
    journal.settle()
    assert journal.env(SPEC) == {"TOKEN": "secret"}
    assert [entry.state for entry in list_entries(journal.store)] == ["PENDING"]


def test_erase(journal: JobJournal) -> None:
    other = JobJournal(journal.store, make_id("job", 9, bytes(10)))
    other.store.put(f"index/{other.job_id}~RUNNING~g", b"")
    journal.claim({}).append(ENDED)
    journal.erase()
    assert [key for key in journal.store.walk("") if key != "format.json"] == [f"index/{other.job_id}~RUNNING~g"]
    journal.erase()


@pytest.mark.parametrize("ended", [False, True])
def test_nothing_brings_a_job_back(journal: JobJournal, ended: bool) -> None:
    """Whoever still works on a job that was cleaned up, or comes to it late, leaves nothing behind."""
    log = journal.claim({})
    if ended:
        log.append(ENDED)
    journal.erase()

    def refused(act: Callable[[], object], error: type[Exception]) -> None:
        with pytest.raises(error, match="cleaned up"):
            act()

    late: dict[str, Callable[[], object]] = {
        "the driver notes an event": lambda: refused(lambda: log.append(ENDED), Fenced),
        "the driver beats": lambda: (log.beat(), refused(log.check, Fenced)),
        "a new driver comes": lambda: refused(lambda: journal.claim({}), UsageError),
        "a host has an outcome": lambda: journal.publish_outcome(1, 1, Outcome(0, True)),
        "the driver settles": journal.settle,
        "the driver says that it runs": lambda: journal.index(SPEC, JobStatus.RUNNING),
        "the supervisor finds no end": lambda: journal.close(JobStatus.FAILED, Reason.DRIVER_LOST, "", 1.0),
        "somebody cancels": lambda: journal.request_cancel({}),
        "it is cleaned up again": journal.erase,
    }
    for what, act in late.items():
        act()
        assert journal.store.walk("") == ["format.json"], what
    assert journal.state() == JobState()


def test_a_store_that_is_away_is_no_store_without_the_job(tmp_path: Path) -> None:
    journal = JobJournal(open_store(tmp_path / "store"), JOB)
    journal.create(SPEC, {})
    log = journal.claim({})
    (tmp_path / "store").rename(tmp_path / "elsewhere")  # as a mount that was lost
    for act in (journal.exists, journal.spec, journal.settle, log.check, lambda: log.append(ENDED)):
        with pytest.raises(StoreError, match=r"away|No such file"):
            act()
    (tmp_path / "elsewhere").rename(tmp_path / "store")
    log.append(ENDED)
    assert journal.state().status is JobStatus.SUCCEEDED


def test_the_spec_of_another_job_is_refused(journal: JobJournal) -> None:
    other = JobJournal(journal.store, make_id("job", 9, bytes(10)))
    journal.store.create(other.keys.spec, journal.store.get(journal.keys.spec))
    with pytest.raises(DataError, match=f"{other.keys.spec} is the spec of another job, {JOB}"):
        other.spec()


def test_jobs_are_listed_by_age(store: Store) -> None:
    ids = [make_id("job", ms, bytes(10)) for ms in (3, 1, 2)]
    for job_id in ids:
        assert JobJournal(store, job_id).create(replace(SPEC, job_id=job_id, func_name="f"), {})
    store.put(f"index/{ids[0]}~SUCCEEDED~f", b"")
    store.put("index/notes.txt", b"")
    store.put(f"index/{ids[1]}~BOGUS~f", b"")
    assert [(entry.job_id, entry.state) for entry in list_entries(store)] == [
        (ids[0], "SUCCEEDED"),
        (ids[2], "PENDING"),
        (ids[1], "PENDING"),
    ]
    assert [pending.job_id for pending in pending_jobs(store)] == [ids[1], ids[2]]


class _CountingPlace:
    """A medium that notes which objects are read."""

    def __init__(self, place: Place) -> None:
        self._place, self.read_keys = place, list[str]()

    def __getattr__(self, attribute: str) -> Any:
        return getattr(self._place, attribute)

    def read(self, key: str, offset: int = 0, limit: int | None = None) -> bytes | None:
        self.read_keys.append(key)
        return self._place.read(key, offset, limit)


def test_every_record_is_read_once(journal: JobJournal) -> None:
    place = _CountingPlace(open_memory(journal.store.url.removeprefix("memory://")))
    observer, seen = JobJournal(Store(place), JOB), Segments()
    log = journal.claim({})
    log.append(_event(EventKind.QUEUED, message="a"))
    assert observer.state(seen).message == "a"
    assert place.read_keys == [journal.keys.adopted(1), journal.keys.segment(1, 1)]
    log.append(_event(EventKind.QUEUED, message="b"), _event(EventKind.QUEUED, message="c"))
    assert observer.state(seen).message == "c"
    assert place.read_keys[2:] == [journal.keys.segment(1, 2)]
    assert observer.state(seen) == journal.state()
    assert len(place.read_keys) == 3


# Interleavings.


class Killed(BaseException):
    """An actor's process is gone."""


class Turns:
    """Runs actors in threads, one at a time: whoever wants to use the store waits for its turn.

    Args:
        order: Who goes next; whoever doesn't wait is skipped, and at the end the rest go in the order of their names.
        kill: (actor, n): that actor dies before its n-th use of the store.
    """

    def __init__(self, store: Store, order: list[str], kill: dict[str, int]) -> None:
        self._store, self._order, self._kill = store, iter(order), dict(kill)
        self._waiting: dict[str, threading.Event] = {}
        self._parked = threading.Semaphore(0)
        self._errors: list[BaseException] = []

    def run(self, actors: dict[str, Callable[[JobJournal], None]]) -> None:
        threads = [threading.Thread(target=self._live, args=(name, actor)) for name, actor in actors.items()]
        for thread in threads:
            thread.start()
        for _ in threads:
            self._parked.acquire()
        while self._waiting:
            name = next((name for name in self._order if name in self._waiting), min(self._waiting))
            self._waiting.pop(name).set()
            self._parked.acquire()
        for thread in threads:
            thread.join()
        if self._errors:
            raise self._errors[0]

    def _live(self, name: str, actor: Callable[[JobJournal], None]) -> None:
        try:
            actor(JobJournal(_TurnStore(self._store, lambda: self._wait(name)), JOB))  # type: ignore[arg-type]
        except (Killed, Fenced):
            pass
        except BaseException as error:  # noqa: BLE001 - reported by the thread that runs the test
            self._errors.append(error)
        finally:
            self._parked.release()

    def _wait(self, name: str) -> None:
        left = self._kill.get(name)
        if left == 0:
            raise Killed
        if left is not None:
            self._kill[name] = left - 1
        turn = self._waiting[name] = threading.Event()
        self._parked.release()
        assert turn.wait(60)


class _TurnStore:
    """A store whose every use waits for a turn."""

    def __init__(self, store: Store, wait: Callable[[], None]) -> None:
        self._store, self._wait = store, wait
        self.url = store.url

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)

        def use(*args: Any) -> Any:
            self._wait()
            return method(*args)

        return use


def _drive(journal: JobJournal) -> None:
    log = journal.claim({})
    if not journal.state().is_terminal:
        log.append(_event(EventKind.ATTEMPT_STARTED, attempt=1))
        log.append(_event(EventKind.ENDED, status="SUCCEEDED", message=f"by {log.epoch}"))
    journal.settle()


ACTORS = ["driver a", "driver b", "closer", "one", "other"]
BURSTS = st.lists(st.tuples(st.sampled_from(ACTORS), st.integers(1, 9)), max_size=24)
KILLS = st.dictionaries(st.sampled_from(["driver a", "driver b", "closer"]), st.integers(0, 20), max_size=2)


@settings(max_examples=80, deadline=None)
@given(BURSTS.map(lambda bursts: [name for name, count in bursts for _ in range(count)]), KILLS)
# A claim that comes between an observer's look for claims and its read of an end that the claim will not adopt.
@example(["driver a"] * 2 + ["driver b"] * 16 + ["one"], {})
@example(["driver b"] * 13, {"driver a": 0, "driver b": 13})  # killed between the end and the clearing up
def test_an_end_that_anyone_has_seen_is_the_end(order: list[str], kill: dict[str, int]) -> None:
    ends: list[JobState] = []

    def observe(journal: JobJournal) -> None:
        seen = Segments()
        ends.extend(state for state in (journal.state(seen) for _ in range(4)) if state.is_terminal)

    def close(journal: JobJournal) -> None:
        ends.append(journal.close(JobStatus.STOPPED, Reason.CANCELLED, "by the closer", 1.0))

    with _fresh_store() as store:
        journal = JobJournal(store, JOB)
        journal.create(SPEC, {"TOKEN": "secret"})
        Turns(store, order, kill).run(
            {"driver a": _drive, "driver b": _drive, "closer": close, "one": observe, "other": observe}
        )
        env_left = store.walk(journal.keys.env_folder)
        final = journal.close(JobStatus.FAILED, Reason.DRIVER_LOST, "by the janitor", 2.0)
        assert final.is_terminal
        assert [state for state in ends if state.is_terminal and state != final] == []
        assert env_left or final.message != "by the janitor"  # values go only with a job that has ended
        assert store.walk(journal.keys.env_folder) == []
        assert journal.close(JobStatus.FAILED, Reason.HANG, "later still", 3.0) == final
        assert [entry.state for entry in list_entries(store)] == [final.status]


def _serve(journal: JobJournal) -> None:
    """A driver and its host, from claim to clearing up."""
    with suppress(UsageError):
        log = journal.claim({})
        log.append(_event(EventKind.ATTEMPT_STARTED, attempt=1))
        journal.index(SPEC, JobStatus.RUNNING)
        journal.publish_outcome(log.epoch, 1, Outcome(0, True))
        log.beat()
        log.check()
        log.append(ENDED)
        journal.settle()


CLEANERS = ["driver", "supervisor", "canceller", "cleaner", "other cleaner"]
CLEANER_BURSTS = st.lists(st.tuples(st.sampled_from(CLEANERS), st.integers(1, 9)), max_size=30)


@settings(max_examples=120, deadline=None)
@given(CLEANER_BURSTS.map(lambda bursts: [name for name, count in bursts for _ in range(count)]))
def test_whoever_works_on_a_job_while_it_is_cleaned_up_brings_nothing_back(order: list[str]) -> None:
    with _fresh_store() as store:
        JobJournal(store, JOB).create(SPEC, {"TOKEN": "secret"})
        Turns(store, order, {}).run(
            {
                "driver": _serve,
                "supervisor": lambda journal: journal.close(JobStatus.FAILED, Reason.DRIVER_LOST, "", 1.0),
                "canceller": lambda journal: journal.request_cancel({}),
                "cleaner": JobJournal.erase,
                "other cleaner": JobJournal.erase,
            }
        )
        assert store.walk("") == ["format.json"]

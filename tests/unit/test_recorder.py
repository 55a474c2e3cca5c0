"""The driver's pen: order, batches, beats, and what happens when it may not write any more."""

import threading
import time
from functools import partial
from typing import Any

import pytest

from kinetic_ray.core.names import make_id
from kinetic_ray.core.outcome import Blob
from kinetic_ray.core.spec import Fingerprint, JobSpec
from kinetic_ray.core.state import Event, EventKind, JobStatus
from kinetic_ray.errors import StoreError
from kinetic_ray.journal import DriverLog, Fenced, JobJournal
from kinetic_ray.runner.inbox import Inbox, Stop, Stopped
from kinetic_ray.runner.recorder import Recorder
from kinetic_ray.store import Store, open_store
from kinetic_ray.store.memory import open_memory
from kinetic_ray.store.patience import BUDGET, retried
from kinetic_ray.store.place import Place
from tests.waiting import wait_until

JOB = make_id("job", 1, bytes(10))
TIMEOUT = 60.0


@pytest.fixture
def journal(request: pytest.FixtureRequest) -> JobJournal:
    journal = JobJournal(open_store(f"memory://{request.node.name}"), JOB)
    journal.create(JobSpec(JOB, "f", 1.0, "cpu", Blob("ab" * 32, 3), Fingerprint("3.11", "2.60", "3", "0")), {})
    return journal


def kinds(journal: JobJournal) -> list[str]:
    return [str(event.kind) for log in journal.epochs() for event in log.events]


def test_events_are_written_in_order_and_close_waits_for_them(journal: JobJournal) -> None:
    recorder = Recorder(journal.claim({}), Inbox())
    expected = []
    for number in range(200):
        recorder.add(EventKind.WARNED, message=str(number))
        expected.append(str(number))
    recorder.close()
    (log,) = journal.epochs()
    assert [event.fields["message"] for event in log.events] == expected


def test_it_beats_while_nothing_happens(journal: JobJournal) -> None:
    recorder = Recorder(journal.claim({}), Inbox())
    wait_until(lambda: journal.heartbeat(1) >= 2, TIMEOUT, "a second beat")
    recorder.close()


def test_progress_is_batched_and_anything_else_takes_it_along(journal: JobJournal) -> None:
    recorder = Recorder(journal.claim({}), Inbox())
    recorder.add(EventKind.PROGRESSED, step=0)
    wait_until(lambda: kinds(journal), TIMEOUT, "the first progress")
    for step in range(1, 50):
        recorder.add(EventKind.PROGRESSED, step=step)
    recorder.add(EventKind.WARNED, message="now")
    wait_until(lambda: "Warned" in kinds(journal), TIMEOUT, "the warning")
    recorder.close()
    assert kinds(journal) == ["Progressed"] * 50 + ["Warned"]
    assert len(journal.store.list(journal.keys.events(1))) <= 4


def test_other_work_comes_after_the_events_before_it(journal: JobJournal) -> None:
    recorder = Recorder(journal.claim({}), Inbox())
    seen: list[list[str]] = []
    recorder.add(EventKind.ATTEMPT_STARTED, attempt=1)
    recorder.do(lambda: seen.append(kinds(journal)))
    recorder.close()
    assert seen == [["AttemptStarted"]]


def test_a_newer_driver_stops_this_one(journal: JobJournal) -> None:
    inbox = Inbox()
    recorder = Recorder(journal.claim({}), inbox)
    journal.claim({})
    recorder.add(EventKind.WARNED, message="late")
    with pytest.raises(Stopped) as caught:
        inbox.take()
    assert caught.value.asked.stop is Stop.FENCED
    with pytest.raises(Fenced, match="epoch 2 has taken"):
        recorder.close()
    assert kinds(journal) == []


def test_it_notices_a_newer_driver_while_nothing_happens(journal: JobJournal) -> None:
    inbox = Inbox()
    recorder = Recorder(journal.claim({}), inbox)
    journal.claim({})
    with pytest.raises(Stopped) as caught:
        inbox.take()
    assert caught.value.asked.stop is Stop.FENCED
    with pytest.raises(Fenced):
        recorder.close()


class FullLog(DriverLog):
    """A log on a full disk."""

    def append(self, *_events: object) -> None:
        raise StoreError("no space left in /data: 4,096 bytes needed")


class Ticks:
    """A clock that goes on by what is waited."""

    def __init__(self) -> None:
        self.now = 0.0

    def tell(self) -> float:
        return self.now

    def wait(self, seconds: float) -> None:
        self.now += seconds


def test_a_store_that_takes_no_more_stops_the_driver(journal: JobJournal) -> None:
    inbox, ticks = Inbox(), Ticks()
    persist = partial(retried, clock=ticks.tell, wait=ticks.wait)
    recorder = Recorder(FullLog(journal, journal.claim({}).epoch), inbox, persist=persist)
    recorder.add(EventKind.WARNED, message="lost")
    with pytest.raises(Stopped) as caught:
        inbox.take()
    assert caught.value.asked.stop is Stop.BROKEN
    assert "no space left" in caught.value.asked.message
    assert ticks.now == BUDGET
    with pytest.raises(StoreError):
        recorder.close()


class Away:
    """A medium that can be gone for a while."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self.is_gone = threading.Event()
        self.refused = 0

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._place, name)
        if name in ("url", "uri"):
            return method

        def use(*args: Any, **kwargs: Any) -> Any:
            if self.is_gone.is_set():
                self.refused += 1
                raise OSError(5, "Input/output error")
            return method(*args, **kwargs)

        return use


@pytest.fixture
def away(journal: JobJournal) -> Away:
    return Away(open_memory(journal.store.url.removeprefix("memory://")))


def test_a_blip_of_the_store_loses_nothing_and_stops_nobody(journal: JobJournal, away: Away) -> None:
    inbox = Inbox()
    hints: list[int] = []

    def hint() -> None:
        other.exists()
        hints.append(1)

    other = JobJournal(Store(away), JOB)  # type: ignore[arg-type]
    recorder = Recorder(other.claim({}), inbox, persist=partial(retried, wait=lambda _: None))
    for number in range(30):
        recorder.add(EventKind.WARNED, message=str(number))
        if number % 10 == 5:
            refused = away.refused
            away.is_gone.set()
            recorder.do(hint)
            recorder.add(EventKind.WARNED, message=f"{number} and the store is away")
            wait_until(lambda before=refused: away.refused > before + 3, TIMEOUT, "some tries")
            away.is_gone.clear()
    recorder.close()
    told = [event.fields["message"] for log in journal.epochs() for event in log.events]
    assert [message for message in told if "away" not in message] == [str(number) for number in range(30)]
    assert len(told) == 33
    assert len(hints) == 3
    assert inbox.take(time.monotonic()) is None


def test_beats_and_hints_that_fail_stop_nobody(journal: JobJournal, away: Away) -> None:
    inbox = Inbox()
    other = JobJournal(Store(away), JOB)  # type: ignore[arg-type]
    log = other.claim({})
    away.is_gone.set()
    recorder = Recorder(log, inbox)
    recorder.do(lambda: other.index(other.spec(), JobStatus.RUNNING))
    wait_until(lambda: away.refused >= 3, TIMEOUT, "a beat that fails, and the hint twice")
    away.is_gone.clear()
    wait_until(lambda: journal.heartbeat(1) and "RUNNING" in str(journal.store.list("index")), TIMEOUT, "both")
    recorder.close()
    assert inbox.take(time.monotonic()) is None


def test_a_cancel_record_is_seen_though_nobody_pushes(journal: JobJournal) -> None:
    inbox = Inbox()
    recorder = Recorder(journal.claim({}), inbox)
    journal.request_cancel({"by": "a client that died just then"})
    with pytest.raises(Stopped) as caught:
        inbox.take()
    assert caught.value.asked.stop is Stop.CANCEL
    recorder.close()


def test_a_clean_up_stops_the_driver_and_nothing_stays(journal: JobJournal) -> None:
    inbox = Inbox()
    recorder = Recorder(journal.claim({}), inbox)
    journal.erase()
    with pytest.raises(Stopped) as caught:
        inbox.take()
    assert caught.value.asked.stop is Stop.FENCED
    with pytest.raises(Fenced, match="cleaned up"):
        recorder.close()
    assert journal.store.walk("") == ["format.json"]


def test_segments_are_merged_meanwhile(journal: JobJournal) -> None:
    log = journal.claim({})
    for number in range(64):
        log.append(Event(EventKind.WARNED, 1.0, {"message": str(number)}))
    recorder = Recorder(log, Inbox())
    wait_until(lambda: journal.store.exists(journal.keys.merged(1, 1, 64)), TIMEOUT, "the merged part")
    recorder.close()
    assert kinds(journal) == ["Warned"] * 64


@pytest.mark.parametrize(
    "awkward", [object(), {1: {2}}, float("nan"), 10**5000, [b"x"]], ids=lambda a: type(a).__name__
)
def test_what_no_record_can_hold_is_told_otherwise_and_stops_nobody(journal: JobJournal, awkward: object) -> None:
    recorder = Recorder(journal.claim({}), Inbox())
    recorder.add(EventKind.WARNED, message=awkward, rank=1)
    recorder.add(EventKind.PROGRESSED, step=awkward, metrics={})
    recorder.add(EventKind.PROGRESSED, step=1, metrics={"loss": float("nan")})
    recorder.add(EventKind.WARNED, message="after it")
    recorder.close()
    (log,) = journal.epochs()
    assert [str(event.kind) for event in log.events] == ["Warned", "Progressed", "Warned"]
    assert isinstance(log.events[0].fields["message"], str) and log.events[0].fields["rank"] == 1
    assert log.events[-1].fields["message"] == "after it"


def test_its_thread_ends(journal: JobJournal) -> None:
    recorder = Recorder(journal.claim({}), Inbox())
    recorder.close()
    recorder.close()
    assert "kinetic-recorder" not in [thread.name for thread in threading.enumerate()]

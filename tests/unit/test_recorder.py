"""The driver's pen: order, batches, beats, and what happens when it may not write any more."""

import threading

import pytest

from kinetic_ray.core.names import make_id
from kinetic_ray.core.outcome import Blob
from kinetic_ray.core.spec import Fingerprint, JobSpec
from kinetic_ray.core.state import EventKind
from kinetic_ray.errors import StoreError
from kinetic_ray.journal import DriverLog, Fenced, JobJournal
from kinetic_ray.runner.inbox import Inbox, Stop, Stopped
from kinetic_ray.runner.recorder import Recorder
from kinetic_ray.store import open_store
from tests.waiting import wait_until

JOB = make_id("job", 1, bytes(10))
TIMEOUT = 20.0


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


def test_a_store_that_takes_no_more_stops_the_driver(journal: JobJournal) -> None:
    inbox = Inbox()
    recorder = Recorder(FullLog(journal, journal.claim({}).epoch), inbox)
    recorder.add(EventKind.WARNED, message="lost")
    with pytest.raises(Stopped) as caught:
        inbox.take()
    assert caught.value.asked.stop is Stop.BROKEN
    assert "no space left" in caught.value.asked.message
    with pytest.raises(StoreError):
        recorder.close()


def test_what_no_record_can_hold_stops_the_driver_too(journal: JobJournal) -> None:
    inbox = Inbox()
    recorder = Recorder(journal.claim({}), inbox)
    recorder.add(EventKind.WARNED, message=object())
    with pytest.raises(Stopped) as caught:
        inbox.take()
    assert caught.value.asked.stop is Stop.BROKEN
    with pytest.raises(StoreError, match="records can't be written: TypeError"):
        recorder.close()


def test_its_thread_ends(journal: JobJournal) -> None:
    recorder = Recorder(journal.claim({}), Inbox())
    recorder.close()
    recorder.close()
    assert "kinetic-recorder" not in [thread.name for thread in threading.enumerate()]

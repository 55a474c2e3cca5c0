"""Which records an end is read from, and what it tells people to do next."""

import hashlib
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

import kinetic_ray as kinetic
from kinetic_ray.backends.base import Liveness, Need, Observation
from kinetic_ray.config import Target
from kinetic_ray.core.outcome import Blob, Outcome
from kinetic_ray.core.records import dump_record
from kinetic_ray.core.state import Event, EventKind, JobStatus, Reason
from kinetic_ray.jobs import JobHandle
from kinetic_ray.journal import DriverLog, JobJournal
from kinetic_ray.store import open_store
from tests.unit.cli_jobs import LiveBackend, Recorder


@pytest.fixture
def recorder() -> Recorder:
    return Recorder(open_store(f"memory://{uuid.uuid4()}"))


class Silent(LiveBackend):
    """Nobody drives anything, and nothing can be started."""

    def check(self, need: Need) -> None:
        return

    def submit(self, store_url: str, job_id: str) -> None:
        raise kinetic.ConfigError("the port is taken")

    def observe(self, store_url: str, job_id: str) -> Observation:
        return Observation(Liveness.DOWN)


def handle(journal: JobJournal, backend: LiveBackend | None = None) -> JobHandle[Any]:
    target = Target("unused", journal.store.url, Path("/unused"))
    return JobHandle(journal.job_id, target, store=journal.store, backend=backend or LiveBackend(Path("/unused")))


def store_value(journal: JobJournal, epoch: int, value: object) -> None:
    data = cloudpickle.dumps(value)
    journal.store.create(journal.keys.value(epoch, 1, 0), data)
    blob = Blob(hashlib.sha256(data).hexdigest(), len(data))
    assert journal.publish_outcome(epoch, 1, Outcome(0, ok=True, value=blob))


def end(log: DriverLog) -> None:
    log.append(Event(EventKind.ENDED, 1.0, {"status": str(JobStatus.SUCCEEDED), "attempt": 1}))


# Epochs.


def test_what_a_driver_took_over_counts(recorder: Recorder) -> None:
    journal = recorder.running()
    store_value(journal, 1, "of the driver that died just before the end")
    end(journal.claim({}))
    assert journal.epochs_that_count(2) == [2, 1]
    assert handle(journal).result() == "of the driver that died just before the end"


def test_the_ending_driver_goes_before_those_it_took_over(recorder: Recorder) -> None:
    journal = recorder.running()
    store_value(journal, 1, "old")
    log = journal.claim({})
    store_value(journal, 2, "new")
    end(log)
    assert handle(journal).result() == "new"


def test_what_a_fenced_driver_wrote_is_not_read(recorder: Recorder) -> None:
    """One that claimed and was overtaken before it adopted: nobody took anything over from it."""
    journal = recorder.running()
    journal.store.create(journal.keys.claim(2), dump_record("claim", {}))
    log = journal.claim({})
    assert log.epoch == 3
    store_value(journal, 2, "of a fenced driver")
    end(log)
    assert journal.epochs_that_count(3) == [3, 1]
    with pytest.raises(kinetic.DataError, match="no value of rank 0"):
        handle(journal).result()
    store_value(journal, 1, "of the one that was taken over")
    assert handle(journal).result() == "of the one that was taken over"


def test_a_driver_that_comes_after_the_end_says_nothing(recorder: Recorder) -> None:
    journal = recorder.succeeded(value=1)
    late = journal.claim({})
    store_value(journal, late.epoch, 2)
    assert handle(journal).result() == 1


# Large values.


LARGE = b"x" * (2 << 20)


def test_a_large_value_is_read(recorder: Recorder) -> None:
    assert handle(recorder.succeeded(value=LARGE)).result() == LARGE


@pytest.mark.parametrize("damage", ["a byte", "its end", "all of it"])
def test_a_large_value_that_was_altered_is_refused_before_it_is_read(recorder: Recorder, damage: str) -> None:
    journal = recorder.succeeded(value=LARGE)
    key = journal.keys.value(1, 1, 0)
    data = journal.store.get(key)
    if damage == "all of it":
        journal.store.delete(key)
    else:
        journal.store.put(key, data[:-1] if damage == "its end" else data[:-100] + b"y" + data[-99:])
    with pytest.raises(kinetic.DataError, match="missing" if damage == "all of it" else "differs from its digest"):
        handle(journal).result()


# Exceptions of handles.


def test_a_lost_job_is_an_exception_that_is_given_not_raised(recorder: Recorder) -> None:
    lost = handle(recorder.running(), Silent(Path("/unused"))).exception()
    assert isinstance(lost, kinetic.JobLost)


def test_a_job_that_cannot_be_started_likewise(recorder: Recorder) -> None:
    error = handle(recorder.pending(), Silent(Path("/unused"))).exception()
    assert isinstance(error, kinetic.SubmissionError)


# What to do next.


def never_started(recorder: Recorder) -> JobJournal:
    return recorder.ended(recorder.pending(), JobStatus.FAILED, reason=str(Reason.UNSCHEDULABLE), attempt=0)


def without_a_word(recorder: Recorder) -> JobJournal:
    return recorder.ended(recorder.running(), JobStatus.FAILED, reason=str(Reason.PROCESS_DIED), rank=1)


def raised_before_it_printed(recorder: Recorder) -> JobJournal:
    return recorder.failed()


@pytest.mark.parametrize("make", [never_started, without_a_word, raised_before_it_printed])
def test_a_log_that_is_not_there_is_not_pointed_at(recorder: Recorder, make: Callable[[Recorder], JobJournal]) -> None:
    job = handle(make(recorder))
    error = job.exception()
    assert error is not None
    text = "\n".join([str(error), *getattr(error, "__notes__", [])])
    assert "kinetic jobs logs" not in text
    assert f"kinetic jobs status {job.job_id}" in text


@pytest.mark.parametrize("rank", [0, 2])
def test_a_log_that_is_there_is(recorder: Recorder, rank: int) -> None:
    journal = recorder.running(logs={rank: b"last words\n"})
    fields = {"rank": rank} if rank else {}
    recorder.ended(journal, JobStatus.FAILED, reason=str(Reason.NODE_LOST), **fields)
    assert f"kinetic jobs logs {journal.job_id} --rank {rank}" in str(handle(journal).exception())

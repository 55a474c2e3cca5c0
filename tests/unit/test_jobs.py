"""Handles: waiting, values, errors, logs, cancelling, cleaning up, being lost; through any store, from any process."""

import asyncio
import contextlib
import io
import itertools
import os
import pickle
import signal
import subprocess
import sys
import time
import traceback
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

import kinetic_ray as kinetic
from kinetic_ray.backends.base import Liveness, Need, Observation
from kinetic_ray.config import Target
from kinetic_ray.core.outcome import Outcome
from kinetic_ray.core.records import dump_record
from kinetic_ray.core.state import Event, EventKind, JobState, JobStatus, Reason
from kinetic_ray.errors import StoreError
from kinetic_ray.frames import own_frames_hidden
from kinetic_ray.jobs import JobHandle
from kinetic_ray.jobs.results import Ended
from kinetic_ray.jobs.watching import Watch
from kinetic_ray.journal import JobJournal
from kinetic_ray.payload.versions import fingerprint
from kinetic_ray.store import Store, open_store
from tests.unit.cli_jobs import BACKEND as LIVE
from tests.unit.cli_jobs import Recorder
from tests.waiting import wait_until


@dataclass
class Backend:
    """Answers what a test tells it to, and remembers what it was asked."""

    answers: list[Liveness] = field(default_factory=lambda: [Liveness.LIVE])
    asked: int = 0
    submitted: list[str] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)
    on_submit: Callable[[str, str], None] = lambda _url, _job_id: None

    def check(self, need: Need) -> None:
        return

    def submit(self, store_url: str, job_id: str) -> None:
        self.submitted.append(job_id)
        self.on_submit(store_url, job_id)

    def observe(self, store_url: str, job_id: str) -> Observation:
        answer = self.answers[min(self.asked, len(self.answers) - 1)]
        self.asked += 1
        return Observation(answer)

    def cancel(self, store_url: str, job_id: str) -> None:
        self.cancelled.append(job_id)

    def list(self) -> Mapping[str, Liveness]:
        return {}

    def dashboard_url(self) -> str | None:
        return "http://127.0.0.1:1"


@pytest.fixture
def store() -> Store:
    return open_store(f"memory://{uuid.uuid4()}")


@pytest.fixture
def recorder(store: Store) -> Recorder:
    return Recorder(store)


def handle(journal: JobJournal, *answers: Liveness, backend: Backend | None = None) -> JobHandle[Any]:
    target = Target("unused", journal.store.url, Path("/unused"))
    answering = backend or Backend([*answers] or [Liveness.LIVE])
    return JobHandle(journal.job_id, target, store=journal.store, backend=answering)


# Values.


def test_a_value_is_read_as_often_as_it_is_asked(recorder: Recorder) -> None:
    job = handle(recorder.succeeded(value={"accuracy": 0.97}))
    assert [job.result(), job.result(timeout=0)] == [{"accuracy": 0.97}] * 2
    assert (job.status(), job.exception(), job.wait()) == (JobStatus.SUCCEEDED, None, JobStatus.SUCCEEDED)


def test_an_altered_value_is_refused(recorder: Recorder, store: Store) -> None:
    journal = recorder.succeeded()
    store.put(journal.keys.value(1, 1, 0), cloudpickle.dumps(0.98))
    with pytest.raises(kinetic.DataError, match="differs from its digest"):
        handle(journal).result()


def test_a_missing_value_is_named(recorder: Recorder, store: Store) -> None:
    journal = recorder.succeeded()
    store.delete(journal.keys.outcome(1, 1, 0))
    with pytest.raises(kinetic.DataError, match="the store has no value of rank 0"):
        handle(journal).result()


class Unloadable:
    def __reduce__(self) -> Any:
        return __import__, ("module_that_is_only_on_the_host",)


def test_a_value_that_this_process_cannot_rebuild(recorder: Recorder) -> None:
    with pytest.raises(kinetic.PayloadError, match=r"module_that_is_only_on_the_host.*can be imported"):
        handle(recorder.succeeded(value=Unloadable())).result()


def test_a_value_that_this_process_has_the_wrong_packages_for(recorder: Recorder) -> None:
    journal = recorder.succeeded(value=Unloadable(), client=replace(fingerprint(), packages={"kinetic_none": "1.0"}))
    with pytest.raises(
        kinetic.PayloadError, match=r"made with kinetic_none 1\.0, and here is no kinetic_none: read it where it was"
    ):
        handle(journal).result()


# Errors.


def test_the_users_exception_as_itself(recorder: Recorder) -> None:
    error = KeyError("row 7")
    job = handle(recorder.failed(error=error, logs={2: b"row 6\n"}))
    with pytest.raises(KeyError, match="row 7") as caught:
        job.result()
    (note,) = caught.value.__notes__
    for told in (job.job_id, "rank 2 (tpu-v6e-16-0, worker 2)", "phase call", "Traceback (remote)", "logs job-"):
        assert told in note
    assert isinstance(job.exception(), KeyError)
    assert len(job.exception().__notes__) == 1  # type: ignore[union-attr]


class Torn(Exception):
    def __reduce__(self) -> Any:
        return __import__, ("module_that_is_only_on_the_host",)


@pytest.mark.parametrize("error", [Torn("the tear"), SystemExit(3), KeyboardInterrupt("the tear")])
def test_what_cannot_or_must_not_be_raised_here_comes_in_words(recorder: Recorder, error: Exception) -> None:
    job = handle(recorder.failed(error=error, logs={2: b"step 1\nlast words\n"}))
    with pytest.raises(kinetic.JobFailed) as caught:
        job.result()
    text = str(caught.value)
    name = type(error).__name__
    for told in (job.job_id, "train on tpu-v6e-16", "rank 2 (tpu-v6e-16-0, worker 2)", "phase call", "UserError"):
        assert told in text
    for told in (name, "Traceback (remote)", "last words", f"kinetic jobs logs {job.job_id} --rank 2"):
        assert told in text
    assert (caught.value.job_id, caught.value.reason) == (job.job_id, "UserError")
    assert isinstance(pickle.loads(pickle.dumps(caught.value)), kinetic.JobFailed)


def test_nothing_is_told_twice(recorder: Recorder) -> None:
    trace = "Traceback (remote)\nSystemExit: 3"
    journal = recorder.failed(error=SystemExit(3), logs={2: f"step 1\n{trace}\n".encode()})  # type: ignore[arg-type]
    ended = Ended(journal, journal.spec(), journal.state())
    text = str(ended.error())
    assert text.count("SystemExit: 3") == text.count("Traceback") == text.count("step 1") == 1
    assert "step 1" not in str(ended.error(shown=2))
    assert "Traceback" in str(ended.error(shown=2))


@pytest.mark.parametrize(
    ("message", "told"),
    [
        ("cancelled", "was cancelled\n"),
        ("cancelled before it started", "was cancelled before it started\n"),
        ("stopped with `ray job stop`", "was cancelled\nstopped with `ray job stop`\n"),
    ],
)
def test_a_cancelled_job_says_so_once(recorder: Recorder, message: str, told: str) -> None:
    reason = str(Reason.CANCELLED)
    journal = recorder.ended(recorder.running(), JobStatus.STOPPED, reason=reason, message=message)
    text = str(handle(journal).exception())
    assert told in text
    assert text.lower().count("cancelled") == 1


def _frames(error: BaseException) -> set[str]:
    return {Path(frame.filename).name for frame in traceback.extract_tb(error.__traceback__)}


@pytest.mark.parametrize("call", ["result", "wait"])
def test_errors_that_are_meant_begin_at_the_users_line(recorder: Recorder, call: str) -> None:
    job = handle(recorder.running())
    with pytest.raises(TimeoutError) as caught:
        getattr(job, call)(timeout=0)
    assert _frames(caught.value) == {"test_jobs.py"}


@pytest.mark.parametrize("error", [KeyError("row 7"), SystemExit(3)])
def test_errors_from_the_host_begin_at_the_users_line(recorder: Recorder, error: Exception) -> None:
    with pytest.raises((KeyError, kinetic.JobFailed)) as caught:
        handle(recorder.failed(error=error)).result()
    assert _frames(caught.value) == {"test_jobs.py"}
    with pytest.raises(kinetic.UsageError) as refused:
        kinetic.attach("nonsense")
    assert _frames(refused.value) == {"test_jobs.py"}


def test_what_a_meant_error_came_from_is_kept_but_not_printed(recorder: Recorder) -> None:
    with pytest.raises(kinetic.PayloadError) as caught:
        handle(recorder.succeeded(value=Unloadable())).result()
    assert "direct cause" not in "".join(traceback.format_exception(caught.value))
    assert isinstance(caught.value.__context__, ImportError)


def test_debug_shows_where_in_kinetic(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KINETIC_DEBUG", "1")
    with pytest.raises(kinetic.PayloadError) as caught:
        handle(recorder.succeeded(value=Unloadable())).result()
    assert {"handle.py", "results.py"} <= _frames(caught.value)
    assert isinstance(caught.value.__cause__, ImportError)


def test_a_fault_of_ours_keeps_its_frames() -> None:
    @own_frames_hidden()
    def faulty() -> None:
        raise AttributeError("a bug")

    with pytest.raises(AttributeError) as caught:
        faulty()
    names = [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert "faulty" in names


@pytest.mark.parametrize(
    ("status", "reason", "kind", "told"),
    [
        (JobStatus.FAILED, Reason.PROCESS_DIED, kinetic.JobFailed, "exit code -9"),
        (JobStatus.FAILED, Reason.NODE_LOST, kinetic.JobFailed, "NodeLost"),
        (JobStatus.FAILED, Reason.DEADLINE_EXCEEDED, kinetic.JobTimeout, "DeadlineExceeded"),
        (JobStatus.STOPPED, Reason.CANCELLED, kinetic.JobCancelled, "was cancelled"),
    ],
)
def test_ends_without_an_exception(
    recorder: Recorder, status: JobStatus, reason: Reason, kind: type[kinetic.JobError], told: str
) -> None:
    journal = recorder.ended(
        recorder.running(logs={1: b"last words of rank 1\n"}),
        status,
        reason=str(reason),
        message="exit code -9",
        rank=1,
    )
    with pytest.raises(kind) as caught:
        handle(journal).result()
    for text in (
        journal.job_id,
        told,
        str(reason).lower(),
        "exit code -9",
        "rank 1 (tpu-v6e-16-0, worker 1)",
        "last words of",
    ):
        assert text.lower() in str(caught.value).lower()


def test_an_end_that_no_rank_caused(recorder: Recorder) -> None:
    journal = recorder.ended(
        recorder.running(), JobStatus.FAILED, reason=str(Reason.UNSCHEDULABLE), message="never fits"
    )
    with pytest.raises(kinetic.JobFailed, match="Unschedulable\nnever fits\nin detail: kinetic jobs status job-"):
        handle(journal).result()


# Waiting.


def test_a_clients_timeout_leaves_the_job_alone(recorder: Recorder) -> None:
    job = handle(recorder.running())
    for wait in (job.wait, job.result, job.exception):
        with pytest.raises(TimeoutError, match=f"{job.job_id} .*RUNNING.*the job goes on"):
            wait(timeout=0.05)
    assert job.status() is JobStatus.RUNNING


class Blinking:
    """A journal whose store is away at some looks."""

    def __init__(self, journal: JobJournal, errors: list[Exception]) -> None:
        self.journal, self.errors = journal, errors
        self.store, self.job_id, self.exists = journal.store, journal.job_id, journal.exists

    def state(self, seen: Any = None) -> JobState:
        if self.errors:
            raise self.errors.pop()
        return self.journal.state(seen)


def test_blips_of_the_store_are_waited_out_and_told_once(recorder: Recorder, caplog: pytest.LogCaptureFixture) -> None:
    journal = Blinking(recorder.succeeded(), [StoreError("away"), OSError("gone"), kinetic.DataError("torn")])
    watch = Watch(journal, Backend())  # type: ignore[arg-type]
    pauses = []
    while not watch.look().is_terminal:
        pauses.append(watch.pause)
    assert len(pauses) == 3
    assert pauses == sorted(pauses)
    assert len(caplog.messages) == 1


def test_blips_of_the_backend_are_waited_out(recorder: Recorder) -> None:
    class Away(Backend):
        def observe(self, store_url: str, job_id: str) -> Observation:
            raise kinetic.ConfigError("the supervisor is restarting")

    watch = Watch(recorder.running(), Away())
    assert [watch.look().status for _ in range(3)] == [JobStatus.RUNNING] * 3


def test_looks_grow_rarer(recorder: Recorder) -> None:
    watch = Watch(recorder.running(), Backend())
    pauses = []
    for _ in range(150):
        watch.look()
        pauses.append(watch.pause)
    assert pauses == sorted(pauses)
    assert pauses[0] < 0.03
    assert pauses[-1] == 0.2
    # However long a job takes, its end is seen within a small part of that time.
    assert all(pause < 0.03 + 0.03 * sum(pauses[:count]) for count, pause in enumerate(pauses))


def test_awaiting_does_not_block_the_loop(recorder: Recorder) -> None:
    journal = recorder.running()
    job = handle(journal)

    async def both() -> tuple[float, int]:
        ticks = 0
        task = asyncio.ensure_future(_await(job))
        while not task.done():
            ticks += 1
            if ticks == 3:
                _finish(recorder, journal, 0.5)
            await asyncio.wait([task], timeout=0.01)
        return task.result(), ticks

    value, ticks = asyncio.run(both())
    assert value == 0.5
    assert ticks >= 3  # the loop went on turning while the job was waited for


async def _await(job: JobHandle[Any]) -> Any:
    return await job


def _finish(recorder: Recorder, journal: JobJournal, value: object) -> None:
    data = cloudpickle.dumps(value)
    blob = journal.store.write_object(journal.keys.value(1, 1, 0), [data])
    journal.publish_outcome(1, 1, Outcome(0, ok=True, value=blob))
    recorder.ended(journal, JobStatus.SUCCEEDED)


def test_upstreams_arguments(recorder: Recorder, capsys: pytest.CaptureFixture[str]) -> None:
    seen: list[JobStatus] = []

    def told(status: JobStatus) -> None:
        seen.append(status)
        raise RuntimeError("swallowed, as upstream does")

    journal = recorder.succeeded(logs={0: b"line\n"})
    job = handle(journal)
    value = job.result(cleanup=False, cleanup_timeout=1, stream_logs=True, on_status_change=told)
    assert (value, seen) == (0.97, [JobStatus.SUCCEEDED])
    assert capsys.readouterr().out == "line\n"
    with pytest.raises(TypeError, match="did you mean 'cleanup'"):
        job.result(clean_up=True)  # type: ignore[call-arg]
    assert job.result(cleanup=True) == 0.97
    assert job.status() is JobStatus.NOT_FOUND


def test_a_streamed_log_keeps_characters_that_a_look_cuts_in_two(
    recorder: Recorder, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "x" * (2**20 - 1) + "\u00fc and an end\n"  # a look takes a MiB of a job that runs
    journal = recorder.running(logs={0: text.encode()})

    def end(status: JobStatus) -> None:
        if status is JobStatus.RUNNING:
            _finish(recorder, journal, 1)

    assert handle(journal).result(stream_logs=True, on_status_change=end) == 1
    assert capsys.readouterr().out == text


# Lost.


def look_often(watch: Watch) -> None:
    """Until it raises: how many looks that takes depends on how soon questions are answered."""
    for _ in range(1000):
        watch.look()


@pytest.mark.parametrize(
    ("answers", "questions", "told"),
    [
        ([Liveness.DOWN], 1, "no supervisor runs"),
        ([Liveness.GONE], 3, "its driver has ended without a word"),
        ([Liveness.UNKNOWN], 3, "does not know it"),
        ([Liveness.GONE, Liveness.LIVE, Liveness.GONE, Liveness.GONE, Liveness.GONE], 5, "without a word"),
        # Who has seen it driven waits whether it comes back: its end may be on its way, or a supervisor.
        ([Liveness.LIVE, Liveness.DOWN, Liveness.DOWN, Liveness.DOWN], 4, "no supervisor runs"),
        ([Liveness.LIVE, Liveness.DOWN, Liveness.UNKNOWN, Liveness.UNKNOWN], 4, "does not know it"),
        ([Liveness.LIVE, Liveness.DOWN, Liveness.LIVE, *[Liveness.DOWN] * 3], 6, "no supervisor runs"),
    ],
)
def test_a_job_that_nobody_drives_is_lost(
    recorder: Recorder, answers: list[Liveness], questions: int, told: str
) -> None:
    backend, clock = Backend(answers), itertools.count(0, 60)
    watch = Watch(recorder.running(), backend, clock=lambda: float(next(clock)))
    with pytest.raises(kinetic.JobLost, match=told) as caught:
        look_often(watch)
    assert backend.asked == questions
    assert "Submit the call again" in str(caught.value)


def test_a_job_that_ended_while_the_backend_was_asked_is_not_lost(recorder: Recorder) -> None:
    journal = recorder.running()

    class EndsMeanwhile(Backend):
        def observe(self, store_url: str, job_id: str) -> Observation:
            _finish(recorder, journal, 1)
            return Observation(Liveness.DOWN)

    assert handle(journal, backend=EndsMeanwhile()).result() == 1


@pytest.mark.parametrize("answer", [Liveness.DOWN, Liveness.UNKNOWN])
def test_a_job_that_was_never_started_is_started_by_whoever_waits(recorder: Recorder, answer: Liveness) -> None:
    journal = recorder.pending()
    backend = Backend([answer, Liveness.WAITING], on_submit=lambda _url, _id: _start_and_finish(recorder, journal))
    assert handle(journal, backend=backend).result() == 7
    assert backend.submitted == [journal.job_id]


def _queued(recorder: Recorder, **failed: Any) -> JobJournal:
    """A job whose driver waits for hosts, for the first time or after a failed attempt."""
    journal = recorder.pending()
    events = [Event(EventKind.DRIVER_STARTED, 1.0)]
    if failed:
        events += [Event(EventKind.GRANTED, 1.0), Event(EventKind.ATTEMPT_STARTED, 1.0, {"attempt": 1})]
        events += [Event(EventKind.ATTEMPT_FAILED, 2.0, {"attempt": 1, **failed})]
    journal.claim({}).append(*events, Event(EventKind.QUEUED, 3.0, {"message": "no free slice"}))
    return journal


@pytest.mark.parametrize("answer", [Liveness.DOWN, Liveness.UNKNOWN])
@pytest.mark.parametrize("was_seen", [False, True])
def test_a_job_that_was_lost_in_the_queue_is_handed_over_again_by_whoever_waits(
    recorder: Recorder, answer: Liveness, caplog: pytest.LogCaptureFixture, *, was_seen: bool
) -> None:
    journal = _queued(recorder)
    seen = [Liveness.LIVE] if was_seen else []
    backend = Backend([*seen, answer], on_submit=lambda _url, _id: _start_and_finish(recorder, journal))
    clock = itertools.count(0, 60)
    watch = Watch(journal, backend, clock=lambda: float(next(clock)))
    while not watch.look().is_terminal:
        pass
    assert handle(journal, backend=backend).result() == 7
    assert backend.submitted == [journal.job_id]
    assert caplog.messages == (
        [f"{journal.job_id}: what drove it is gone; nothing of it has run, so it is handed over again"]
        if was_seen
        else []
    )


def test_a_job_that_has_run_is_not_run_again_unasked(recorder: Recorder) -> None:
    """It waits for hosts, but for its second attempt: another first one is nobody's wish."""
    backend, clock = Backend([Liveness.LIVE, Liveness.UNKNOWN]), itertools.count(0, 60)
    watch = Watch(_queued(recorder, reason="NodeLost"), backend, clock=lambda: float(next(clock)))
    with pytest.raises(kinetic.JobLost, match="does not know it"):
        look_often(watch)
    assert backend.submitted == []


def test_a_supervisor_that_always_loses_a_job_is_given_it_three_times(recorder: Recorder) -> None:
    backend, clock = Backend([Liveness.UNKNOWN]), itertools.count(0, 60)
    watch = Watch(recorder.pending(), backend, clock=lambda: float(next(clock)))
    with pytest.raises(kinetic.JobLost, match="does not know it"):
        look_often(watch)
    assert len(backend.submitted) == 3


def _start_and_finish(recorder: Recorder, journal: JobJournal) -> None:
    log = journal.claim({"role": "test"})
    log.append(Event(EventKind.ATTEMPT_STARTED, time.time(), {"attempt": 1}))
    _finish(recorder, journal, 7)


@pytest.mark.parametrize(
    ("client", "told"),
    [({"python": "3.9.1"}, "made with Python 3.9.1"), ({"packages": {"kinetic_none": "1.0"}}, "has no kinetic_none")],
)
def test_a_job_that_was_made_elsewhere_is_not_started_from_here(
    recorder: Recorder, client: dict[str, Any], told: str
) -> None:
    journal = recorder.pending(client=replace(fingerprint(), **client))
    backend, clock = Backend([Liveness.DOWN]), itertools.count(0, 60)
    watch = Watch(journal, backend, clock=lambda: float(next(clock)))
    with pytest.raises(kinetic.SubmissionError, match=told):
        look_often(watch)
    assert backend.submitted == []
    assert journal.state().status is JobStatus.PENDING  # whoever has what it needs can still start it


def test_a_job_that_can_never_be_started_says_so_after_three_tries(recorder: Recorder) -> None:
    def refuse(_url: str, _job_id: str) -> None:
        raise kinetic.ConfigError("the port is taken")

    backend, clock = Backend([Liveness.DOWN], on_submit=refuse), itertools.count(0, 60)
    watch = Watch(recorder.pending(), backend, clock=lambda: float(next(clock)))
    with pytest.raises(kinetic.SubmissionError, match="the port is taken"):
        look_often(watch)
    assert len(backend.submitted) == 3


@dataclass
class Clock:
    """Time that moves when told."""

    now: float = 100.0

    def __call__(self) -> float:
        return self.now


def message_after(watch: Watch, clock: Clock, seconds: int) -> str:
    """What the watch says after looking once a second for so long."""
    for _ in range(seconds):
        clock.now += 1
        watch.look()
    return watch.state.message


def test_a_driver_that_has_stopped_beating_is_said_to_be_silent(recorder: Recorder) -> None:
    journal, clock = recorder.running(), Clock()
    driver, watch = recorder.drivers[journal.job_id], Watch(journal, Backend(), clock=clock)
    driver.beat()
    assert message_after(watch, clock, 15) == ""
    told = f"its driver has been silent for over 15 s; kinetic jobs cancel {journal.job_id} ends it"
    assert message_after(watch, clock, 1) == told
    assert message_after(watch, clock, 14) == told  # not a new line every second
    assert "over 30 s" in message_after(watch, clock, 1)
    assert watch.state.status is JobStatus.RUNNING
    driver.beat()
    assert message_after(watch, clock, 1) == ""
    message_after(watch, clock, 20)
    recorder.ended(journal, JobStatus.FAILED, message="its own words")
    assert message_after(watch, clock, 1) == "its own words"


def test_an_observer_that_slept_does_not_call_the_driver_silent(recorder: Recorder) -> None:
    journal, clock = recorder.running(), Clock()
    recorder.drivers[journal.job_id].beat()
    watch = Watch(journal, Backend(), clock=clock)
    message_after(watch, clock, 10)
    clock.now += 3600
    assert message_after(watch, clock, 14) == ""
    assert "over 15 s" in message_after(watch, clock, 5)


def test_a_driver_that_beats_or_never_did_is_not_judged(recorder: Recorder) -> None:
    clock = Clock()
    assert message_after(Watch(recorder.running(1), Backend(), clock=clock), clock, 60) == ""
    journal = recorder.running(2)
    watch = Watch(journal, Backend(), clock=clock)
    for _ in range(10):
        recorder.drivers[journal.job_id].beat()
        assert message_after(watch, clock, 8) == ""


def test_phase_tells_of_a_missing_driver(recorder: Recorder) -> None:
    running = recorder.running(1)
    told = handle(running, Liveness.GONE).phase()
    assert (told.status, told.phase) == (JobStatus.PENDING, "driver lost")
    told = handle(recorder.pending(2), Liveness.DOWN).phase()
    assert (told.status, told.phase) == (JobStatus.PENDING, "submitted")
    told = handle(running, Liveness.LIVE).phase()
    assert (told.status, told.phase, told.attempt, len(told.hosts)) == (JobStatus.RUNNING, "run", 1, 4)


def test_a_backend_that_cannot_be_asked_leaves_the_records_to_speak(recorder: Recorder) -> None:
    class Away(Backend):
        def observe(self, store_url: str, job_id: str) -> Observation:
            raise ConnectionResetError("the socket was closed")

    told = handle(recorder.running(), backend=Away()).phase()
    assert (told.status, told.phase) == (JobStatus.RUNNING, "run")
    assert "the socket was closed" in told.message


def test_a_handle_means_the_same_store_from_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    journal = Recorder(open_store("store")).succeeded()
    job: JobHandle[float] = JobHandle(journal.job_id, Target(LIVE, "store", tmp_path))
    data = pickle.dumps(job)
    monkeypatch.chdir("/")
    assert pickle.loads(data).result() == 0.97


def test_the_backend_is_not_asked_about_an_ended_job(recorder: Recorder) -> None:
    backend = Backend()
    job = handle(recorder.succeeded(), backend=backend)
    assert (job.status(), job.result(), backend.asked) == (JobStatus.SUCCEEDED, 0.97, 0)


# Cancelling and cleaning up.


def test_cancel_writes_its_record_before_it_tells_the_backend(recorder: Recorder) -> None:
    journal = recorder.running()

    class Stops(Backend):
        def cancel(self, store_url: str, job_id: str) -> None:
            super().cancel(store_url, job_id)
            assert journal.cancel_requested()
            recorder.ended(journal, JobStatus.STOPPED, reason="Cancelled")

    backend = Stops()
    job = handle(journal, backend=backend)
    job.cancel()
    job.cancel()
    assert (job.status(), backend.cancelled) == (JobStatus.STOPPED, [job.job_id])


@pytest.mark.parametrize("make", [Recorder.pending, Recorder.running])
@pytest.mark.parametrize("answer", [Liveness.DOWN, Liveness.GONE, Liveness.UNKNOWN])
def test_a_job_that_nobody_drives_is_stopped_in_its_records(
    recorder: Recorder, make: Callable[[Recorder], JobJournal], answer: Liveness
) -> None:
    job = handle(make(recorder), answer)
    job.cancel()
    assert job.phase().reason == "Cancelled"
    with pytest.raises(kinetic.JobCancelled):
        job.result()


def test_cancelling_what_has_ended_changes_nothing(recorder: Recorder) -> None:
    backend = Backend()
    job = handle(recorder.succeeded(), backend=backend)
    job.cancel()
    assert (job.result(), backend.cancelled) == (0.97, [])


def test_a_cancel_that_takes_too_long_says_that_it_stands(recorder: Recorder) -> None:
    journal = recorder.running()
    with pytest.raises(TimeoutError, match="recorded and stands"):
        handle(journal).cancel(cleanup_timeout=0.05)
    assert journal.cancel_requested()


def test_cleanup_removes_the_job_and_keeps_the_users_own_folder(
    recorder: Recorder, store: Store, tmp_path: Path
) -> None:
    (tmp_path / "model.npz").touch()
    job = handle(recorder.succeeded(output_dir=str(tmp_path)))
    other = recorder.succeeded(2)
    assert job.outputs() == [str(tmp_path / "model.npz")]
    job.cleanup()
    job.cleanup()
    assert job.status() is JobStatus.NOT_FOUND
    assert (tmp_path / "model.npz").exists()
    assert not [key for key in store.walk("") if job.job_id in key]
    assert other.state().status is JobStatus.SUCCEEDED


def test_cleanup_cancels_what_still_runs(recorder: Recorder) -> None:
    job = handle(recorder.running(), Liveness.DOWN)
    job.cleanup(k8s=True, gcs=False)
    assert job.status() is JobStatus.STOPPED
    job.cleanup()
    assert job.status() is JobStatus.NOT_FOUND


def test_waiting_for_a_job_that_someone_cleans_up_ends(recorder: Recorder) -> None:
    journal = recorder.running()
    job = handle(journal, Liveness.UNKNOWN)
    assert job.func_name == "train"
    journal.erase()
    with pytest.raises(kinetic.JobLost, match="cleaned up"):
        job.result()


# Logs, progress, events, outputs.


def test_logs_of_every_rank_and_attempt(recorder: Recorder, store: Store) -> None:
    journal = recorder.running(logs={0: b"zero\n", 1: b"one\n"})
    store.create(journal.keys.log(2, 2, 0), b"zero again\n")
    job = handle(journal)
    assert (job.logs(), job.logs(rank=1), job.logs(rank=3)) == ("zero again\n", "one\n", "")
    assert (job.logs(attempt=1), job.logs(attempt=2), job.logs(attempt=3)) == ("zero\n", "zero again\n", "")
    with pytest.raises(kinetic.UsageError, match="ranks 0 to 3, not 4"):
        job.logs(rank=4)


@pytest.mark.parametrize("n", [0, 1, 2, 99, 5000])
@pytest.mark.parametrize("end", ["", "\n", "\n\n"])
def test_tail(recorder: Recorder, n: int, end: str) -> None:
    lines = [f"line {number} {'x' * 60}" for number in range(3000)]
    text = "\n".join(lines) + end
    job = handle(recorder.running(logs={0: text.encode()}))
    assert job.tail(n) == "\n".join(text.splitlines()[-n:] if n else [])


def test_following_prints_what_comes_and_ends_with_the_job(recorder: Recorder, tmp_path: Path) -> None:
    recorder = Recorder(open_store(tmp_path / "store"))
    journal = recorder.running()
    path = journal.store.append_path(journal.keys.log(1, 1, 0))
    assert path is not None
    out = io.StringIO()
    job = handle(journal)

    async def both() -> None:
        following = asyncio.create_task(asyncio.to_thread(job.logs, follow=True))
        for number in range(3):
            with path.open("ab") as file:
                file.write(f"line {number} ü\n".encode())
            while f"line {number}" not in out.getvalue():
                await asyncio.wait([following], timeout=0.01)
        recorder.ended(journal, JobStatus.SUCCEEDED)
        assert await following is None

    with contextlib.redirect_stdout(out):
        asyncio.run(both())
    assert out.getvalue() == "line 0 ü\nline 1 ü\nline 2 ü\n"


def test_progress_events_and_outputs(recorder: Recorder, store: Store) -> None:
    journal = recorder.running()
    job = handle(journal)
    assert job.progress() is None
    journal.claim({}).append(Event(EventKind.PROGRESSED, 5.0, {"step": 3, "total": 9, "metrics": {"loss": 0.5}}))
    progress = job.progress()
    assert progress is not None
    assert (progress.step, progress.total, progress.metrics) == (3, 9, {"loss": 0.5})
    assert [event.kind for event in job.events()][-1] is EventKind.PROGRESSED
    store.create(f"{journal.keys.outputs}/a/model.npz", b"")
    assert [name.rpartition("/outputs/")[2] for name in job.outputs()] == ["a/model.npz"]


def test_output_files_may_have_any_name(tmp_path: Path) -> None:
    names = ["back\\slash", "tab\tand\nline", "a b", "ü", ".hidden", "per%cent", "-", "\udcff", "deep/er\\/x?y#z"]
    store = open_store(str(tmp_path / "store"))
    journal = Recorder(store).running()
    folder = Path(store.uri(journal.keys.outputs))
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name.encode(errors="replace").decode())
    found = handle(journal).outputs()
    assert sorted(found) == sorted(f"{folder}/{name}" for name in names)
    assert all(Path(path).is_file() for path in found)


@pytest.mark.parametrize("state", Liveness)
def test_the_dashboard_has_a_page_of_a_job_that_its_cluster_knows(recorder: Recorder, state: Liveness) -> None:
    journal = recorder.running()
    url = handle(journal, state).dashboard_url
    known = state not in (Liveness.DOWN, Liveness.UNKNOWN)
    assert url == (f"http://127.0.0.1:1/#/jobs/{journal.job_id}" if known else None)


# Blocking calls.


@dataclass
class Told:
    """A reporter that keeps what it is told."""

    states: list[JobState] = field(default_factory=list)
    data: bytes = b""
    closed: int = 0

    def show(self, state: JobState) -> None:
        self.states.append(state)

    def log(self, data: bytes) -> None:
        self.data += data

    def close(self) -> None:
        self.closed += 1


def test_follow_shows_stages_and_the_whole_log(recorder: Recorder) -> None:
    told = Told()
    assert handle(recorder.succeeded(logs={0: b"all of it\n", 1: b"not this"})).follow(told) == 0.97
    assert (told.data, told.closed, told.states[-1].status) == (b"all of it\n", 1, JobStatus.SUCCEEDED)


def interrupt(_status: JobStatus) -> None:
    raise KeyboardInterrupt


class Interrupted(Told):
    def show(self, state: JobState) -> None:
        raise KeyboardInterrupt


def test_ctrl_c_leaves_the_job_and_says_how_to_go_on(recorder: Recorder, capsys: pytest.CaptureFixture[str]) -> None:
    journal = recorder.running()
    told = Interrupted()
    with pytest.raises(KeyboardInterrupt):
        handle(journal).follow(told)
    with pytest.raises(KeyboardInterrupt) as caught:
        handle(journal).result(on_status_change=interrupt)
    assert _frames(caught.value) == {"test_jobs.py"}
    err = capsys.readouterr().err
    for command in ("result", "logs", "cancel"):
        assert f"kinetic jobs {command} {journal.job_id}" in err
    assert "goes on" in err
    assert (told.closed, journal.cancel_requested()) == (1, False)


CLIENT = """
import sys, kinetic_ray as kinetic
job = kinetic.attach(sys.argv[1])
print("waiting", flush=True)
job.result()
"""


def test_a_real_sigint_in_another_process(tmp_path: Path) -> None:
    store = open_store(tmp_path / "store")
    journal = Recorder(store).running()
    env = {**os.environ, "KINETIC_STORE": store.url, "KINETIC_BACKEND": LIVE}
    command = [sys.executable, "-c", CLIENT, journal.job_id]
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as client:
        assert client.stdout is not None
        assert client.stdout.readline() == "waiting\n"
        while client.poll() is None:  # again, should it come between the line and the wait
            client.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                client.wait(1)
        _, err = client.communicate()
    assert err.rstrip().endswith("KeyboardInterrupt")
    assert "kinetic_ray" not in err.replace("kinetic_ray as", "")
    assert journal.state().status is JobStatus.RUNNING


# Finding.


@pytest.fixture
def configured(store: Store, monkeypatch: pytest.MonkeyPatch) -> Recorder:
    monkeypatch.setenv("KINETIC_STORE", store.url)
    monkeypatch.setenv("KINETIC_BACKEND", LIVE)
    return Recorder(store)


def test_attach(configured: Recorder) -> None:
    job = kinetic.attach(configured.succeeded().job_id)
    assert (job.result(), job.func_name, job.accelerator, job.created_at) == (
        0.97,
        "train",
        "tpu-v6e-16",
        1_700_000_060.0,
    )
    assert pickle.loads(pickle.dumps(job)) == job


@pytest.mark.parametrize("bad", ["", "../../etc", "job-x", "grp-0000000000e008000000000000", "job-" + "z" * 26])
def test_attach_refuses_what_is_no_id(configured: Recorder, bad: str) -> None:
    with pytest.raises(kinetic.UsageError, match="is not a"):
        kinetic.attach(bad)


def test_attach_names_the_store_that_has_no_such_job(configured: Recorder) -> None:
    with pytest.raises(
        kinetic.UsageError, match=f"no job job-0000000000e008000000000000 in the store {configured.store.url}"
    ):
        kinetic.attach("job-0000000000e008000000000000")


def test_attach_from_another_process(tmp_path: Path) -> None:
    store = open_store(tmp_path / "store")
    job_id = Recorder(store).succeeded(value=[1, 2]).job_id
    code = f"import kinetic_ray as k; print(k.attach({job_id!r}, store={store.url!r}).result())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[1, 2]\n"


def test_list_jobs(configured: Recorder) -> None:
    first = configured.succeeded(1, tags=("nightly",)).job_id
    second = configured.failed(2, name="ablation", tags=("nightly", "x")).job_id
    third = configured.running(3).job_id
    fourth = configured.pending(4, func_name="other").job_id

    def ids(**wanted: Any) -> list[str]:
        return [job.job_id for job in kinetic.list_jobs(**wanted)]

    assert ids() == [fourth, third, second, first]
    assert ids(state="SUCCEEDED") == [first]
    assert ids(state=JobStatus.RUNNING) == [third]
    assert ids(state="pending") == [fourth]
    assert ids(name="ablation") == [second]
    assert ids(name="other") == [fourth]
    assert ids(tag="nightly") == [second, first]
    assert ids(since=1_700_000_150) == [fourth, third]
    assert ids(since=datetime.fromtimestamp(1_700_000_210, UTC)) == [fourth]
    assert ids(since="1h") == []


NEWER = dump_record("cancel", {}).replace(b'"version":1', b'"version":9')


@pytest.mark.parametrize("damage", [b"torn", NEWER], ids=["torn", "of a newer version"])
@pytest.mark.parametrize(
    "wanted",
    [
        {"name": "train"},
        {"tag": "nightly"},
        {"name": "train", "tag": "nightly"},
        {"state": "RUNNING"},
        {"state": "RUNNING", "tag": "nightly"},
    ],
)
def test_one_job_that_can_not_be_read_hides_no_other(
    configured: Recorder, wanted: dict[str, str], damage: bytes
) -> None:
    good, gone, torn = (configured.running(number, tags=("nightly",)) for number in (1, 2, 3))
    configured.store.delete(gone.keys.spec)  # a clean-up that has not come to the index yet
    for key in (torn.keys.spec, *configured.store.list(torn.keys.events(1))):
        configured.store.put(key, damage.replace(b'"cancel"', b'"spec"' if key == torn.keys.spec else b'"events"'))
    if set(wanted) == {"state"}:
        configured.store.delete_tree(gone.keys.drivers)
    assert [job.job_id for job in kinetic.list_jobs(**wanted)] == [good.job_id]


@pytest.mark.parametrize(
    ("wanted", "error"),
    [
        ({"state": "DONE"}, kinetic.UsageError),
        ({"since": "soon"}, kinetic.UsageError),
        ({"profile": "p"}, kinetic.ConfigError),
        ({"colour": "red"}, TypeError),
    ],
)
def test_list_jobs_refuses(configured: Recorder, wanted: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        kinetic.list_jobs(**wanted)


def test_a_first_list_finds_nothing_and_makes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KINETIC_HOME", str(tmp_path / "home"))
    assert kinetic.list_jobs() == []
    assert not (tmp_path / "home").exists()


def test_a_store_that_cannot_be_read_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    for place in (tmp_path / "file", tmp_path / "missing"):
        with pytest.raises(kinetic.ConfigError):
            kinetic.list_jobs(store=place)


def test_handles_are_equal_by_job(recorder: Recorder) -> None:
    journal = recorder.pending()
    assert {handle(journal), handle(journal)} == {handle(journal)}
    assert repr(handle(journal)) == f"JobHandle({journal.job_id!r})"
    assert handle(journal) != journal.job_id


def test_an_attached_handle_sees_what_the_first_one_started(configured: Recorder) -> None:
    function = kinetic.remote(backend="kinetic_ray.testing.thread_backend:ThreadBackend")(sorted)
    job = function.run_async([3, 1, 2])
    wait_until(lambda: kinetic.attach(job.job_id).status().is_terminal, 10, "the job to end")
    assert kinetic.attach(job.job_id).result() == [1, 2, 3]


@pytest.mark.parametrize("given", ["latest", "job-0", "0001", "", "grp-0000000000e008000000000000"])
def test_attach_takes_whole_ids_and_says_how_else(recorder: Recorder, given: str) -> None:
    recorder.succeeded()
    with pytest.raises(kinetic.UsageError, match=r"whole id.*kinetic jobs status latest.*list_jobs\(\)\[0\]"):
        kinetic.attach(given)


@pytest.mark.parametrize("answer", [Liveness.DOWN, Liveness.GONE, Liveness.UNKNOWN])
def test_a_lost_job_is_told_in_words_only(recorder: Recorder, answer: Liveness) -> None:
    phase = handle(recorder.running(), answer).phase()
    assert (phase.phase, phase.message) == ("driver lost", "no driver works on it")

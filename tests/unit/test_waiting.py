"""Waiting for jobs while the backend hangs, the store blinks or records are damaged; Ctrl-C; lines as they come."""

import asyncio
import errno
import math
import os
import signal
import subprocess
import sys
import threading
import traceback
import unicodedata
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kinetic_ray as kinetic
from kinetic_ray.backends.base import Liveness, Observation
from kinetic_ray.config import Target
from kinetic_ray.core.outcome import Outcome
from kinetic_ray.core.state import JobState, JobStatus
from kinetic_ray.jobs import JobHandle, LogLine
from kinetic_ray.jobs.logs import LogPump
from kinetic_ray.jobs.showing import Reporting
from kinetic_ray.jobs.watching import Watch, until_ended
from kinetic_ray.journal import JobJournal
from kinetic_ray.store import Store, open_store
from kinetic_ray.store.memory import open_memory
from tests.unit.cli_jobs import BACKEND as LIVE
from tests.unit.cli_jobs import DownBackend, LiveBackend, Recorder
from tests.waiting import wait_until

HOME = Path("/unused")


@pytest.fixture
def store() -> Store:
    return open_store(f"memory://{uuid.uuid4()}")


@pytest.fixture
def recorder(store: Store) -> Recorder:
    return Recorder(store)


def handle(journal: JobJournal, backend: LiveBackend | None = None) -> JobHandle[Any]:
    target = Target("unused", journal.store.url, HOME)
    return JobHandle(journal.job_id, target, store=journal.store, backend=backend or LiveBackend(HOME))


def finish(recorder: Recorder, journal: JobJournal, value: object) -> None:
    blob = journal.store.write_object(journal.keys.value(1, 1, 0), [cloudpickle.dumps(value)])
    journal.publish_outcome(1, 1, Outcome(0, ok=True, value=blob))
    recorder.ended(journal, JobStatus.SUCCEEDED)


# A backend that hangs.


class Hanging(LiveBackend):
    """A supervisor that is stopped: it takes questions, and answers none until it is let go."""

    def __init__(self) -> None:
        super().__init__(HOME)
        self.let_go = threading.Event()
        self.asked = threading.Semaphore(0)

    def observe(self, store_url: str, job_id: str) -> Observation:
        self.asked.release()
        assert self.let_go.wait(300)
        return Observation(Liveness.LIVE)


@pytest.fixture
def hanging() -> Iterator[Hanging]:
    backend = Hanging()
    yield backend
    backend.let_go.set()


@pytest.mark.parametrize("call", ["result", "exception", "wait"])
@pytest.mark.parametrize("timeout", [0, 0.05, "0.05s"])
def test_a_timeout_holds_while_the_backend_hangs(
    recorder: Recorder, hanging: Hanging, call: str, timeout: float | str
) -> None:
    job = handle(recorder.running(), hanging)
    with pytest.raises(TimeoutError, match=r"RUNNING .*the job goes on \(the backend has not answered yet\)"):
        getattr(job, call)(timeout=timeout)
    assert not hanging.let_go.is_set()  # so nobody has waited for it
    assert hanging.asked.acquire(timeout=60)


def test_a_status_is_told_while_the_backend_hangs(recorder: Recorder, hanging: Hanging) -> None:
    told = handle(recorder.running(), hanging).phase()
    assert (told.status, told.phase) == (JobStatus.RUNNING, "run")
    assert "can't be asked just now: the backend has not answered" in told.message
    assert not hanging.let_go.is_set()


def test_a_hanging_backend_hides_no_end(recorder: Recorder, hanging: Hanging) -> None:
    journal = recorder.running()
    finisher = threading.Thread(target=lambda: (hanging.asked.acquire(), finish(recorder, journal, 7)))
    finisher.start()
    assert handle(journal, hanging).result() == 7
    finisher.join()


def test_a_cancel_that_can_not_be_told_is_recorded_and_stands(recorder: Recorder, hanging: Hanging) -> None:
    journal = recorder.running()
    with pytest.raises(TimeoutError, match="recorded and stands"):
        handle(journal, hanging).cancel(cleanup_timeout=0.05)
    assert journal.cancel_requested()


def test_a_backend_that_is_asked_for_long_is_asked_once(recorder: Recorder, hanging: Hanging) -> None:
    ticks = iter(range(10**6))
    watch = Watch(recorder.running(), hanging, clock=lambda: float(next(ticks)))
    for _ in range(5):
        watch.look(0.0)
    assert hanging.asked.acquire(timeout=60)
    assert not hanging.asked.acquire(blocking=False)
    hanging.let_go.set()
    wait_until(lambda: watch.look(0.0) and not watch.trouble, 60, "the answer to be taken")


def test_a_request_that_can_not_be_recorded_is_not_said_to_stand() -> None:
    place = Blinking(open_memory(str(uuid.uuid4())))
    open_store(place.url)
    journal = Recorder(Store(place)).running()
    place.key, place.left = "events", 10**9
    with pytest.raises(TimeoutError, match=r"the request to cancel can't be recorded just now: .*Input/output"):
        handle(journal).cancel(cleanup_timeout=0.05)
    place.left = 0
    assert not journal.cancel_requested()


def test_a_cancel_is_told_again_to_a_backend_that_was_away(recorder: Recorder) -> None:
    journal = recorder.running()

    class Away(LiveBackend):
        away = 2

        def observe(self, store_url: str, job_id: str) -> Observation:
            if self.away:
                self.away -= 1
                raise kinetic.ConfigError("the supervisor is restarting")
            return super().observe(store_url, job_id)

        def cancel(self, store_url: str, job_id: str) -> None:
            recorder.ended(journal, JobStatus.STOPPED, reason="Cancelled")

    handle(journal, Away(HOME)).cancel()
    assert journal.state().status is JobStatus.STOPPED


@pytest.mark.parametrize("bad", [math.nan, "soon", "-1s", [1]])
def test_a_timeout_that_is_none_is_refused(recorder: Recorder, bad: Any) -> None:
    with pytest.raises(kinetic.UsageError, match="timeout="):
        handle(recorder.succeeded()).result(timeout=bad)


def test_a_timeout_of_infinity_is_one(recorder: Recorder) -> None:
    assert handle(recorder.succeeded()).result(timeout=math.inf) == 0.97


# A store that blinks.


@dataclass
class Blinking:
    """A medium whose reads of some keys fail twice."""

    place: Any
    key: str = "nothing"
    left: int = 2
    failed: list[str] = field(default_factory=list)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.place, name)

    def read(self, key: str, offset: int = 0, limit: int | None = None) -> bytes | None:
        self._blink(key)
        return self.place.read(key, offset, limit)  # type: ignore[no-any-return]

    def _blink(self, key: str) -> None:
        if self.key in key and self.left:
            self.left -= 1
            self.failed.append(key)
            raise OSError(errno.EIO, os.strerror(errno.EIO))


class Told:
    """A reporter that keeps the log."""

    def __init__(self) -> None:
        self.data = b""

    def show(self, state: JobState) -> None:
        return

    def log(self, data: bytes) -> None:
        self.data += data

    def close(self) -> None:
        return


async def _await(job: JobHandle[Any]) -> Any:
    return await job


def _followed(job: JobHandle[Any]) -> Any:
    told = Told()
    value = job.follow(told)
    assert told.data == b"all of it\n"
    return value


ASKED: dict[str, Callable[[JobHandle[Any]], Any]] = {
    "result": lambda job: job.result(),
    "result in time": lambda job: job.result(timeout=60),
    "await": lambda job: asyncio.run(_await(job)),
    "follow": _followed,
    "exception": lambda job: job.exception(),
    "wait": lambda job: job.wait() and None,
    "logs": lambda job: job.logs(follow=True),
}


@pytest.mark.parametrize("asked", ASKED)
@pytest.mark.parametrize("key", ["spec.json", "outcome", ".value", "events", "adopted", "logs"])
def test_a_blip_of_the_store_ends_no_waiting(key: str, asked: str, capsys: pytest.CaptureFixture[str]) -> None:
    place = Blinking(open_memory(str(uuid.uuid4())))
    url = place.url
    open_store(url)
    recorder = Recorder(Store(place))
    journal = recorder.succeeded(value=5, logs={0: b"all of it\n"})
    place.key, place.left = key, 2
    value = ASKED[asked](handle(journal))
    assert value == (5 if asked in ("result", "result in time", "await", "follow") else None)
    assert capsys.readouterr().out == ("all of it\n" if asked == "logs" else "")
    if asked in ("result", "follow") and (key != "logs" or asked == "follow"):
        assert len(place.failed) == 2


def test_a_store_that_stays_away_costs_no_more_than_the_timeout() -> None:
    place = Blinking(open_memory(str(uuid.uuid4())))
    open_store(place.url)
    journal = Recorder(Store(place)).succeeded()
    place.key, place.left = ".value", 10**9
    with pytest.raises(TimeoutError, match=r"has ended, but its records can't be read just now: .*Input/output"):
        handle(journal).result(timeout=0.05)


def test_a_users_error_that_looks_like_a_blip_is_raised_at_once(recorder: Recorder) -> None:
    journal = recorder.failed(error=OSError(errno.EIO, "the user's disk"), reason="UserError")
    with pytest.raises(OSError, match="the user's disk"):
        handle(journal).result()
    with pytest.raises(OSError, match="the user's disk"):
        asyncio.run(_await(handle(journal)))


def test_a_store_that_is_away_has_not_lost_its_jobs(tmp_path: Path) -> None:
    """An unmounted folder looks like one without the job: nobody may say that it was cleaned up."""

    class Gone(LiveBackend):
        asked = 0

        def observe(self, store_url: str, job_id: str) -> Observation:
            self.asked += 1
            return Observation(Liveness.UNKNOWN)

    recorder = Recorder(open_store(tmp_path / "store"))
    journal = recorder.running()
    ticks = iter(range(0, 10**6, 60))
    backend = Gone(HOME)
    watch = Watch(journal, backend, clock=lambda: float(next(ticks)))
    (tmp_path / "store").rename(tmp_path / "away")
    wait_until(lambda: watch.look() and backend.asked > 5, 60, "the backend to be asked")
    (tmp_path / "away").rename(tmp_path / "store")
    finish(recorder, journal, 3)
    wait_until(lambda: watch.look().is_terminal, 60, "the end to be seen")


@pytest.mark.parametrize("asked", ["result", "await", "wait", "logs"])
def test_a_job_that_is_half_cleaned_up_is_gone(recorder: Recorder, asked: str) -> None:
    """Its spec goes first; whoever has been told that there is no such job is told of no end of it afterwards."""
    journal = recorder.succeeded()
    job = handle(journal)
    assert job.func_name == "train"
    journal.store.delete(journal.keys.spec)
    with pytest.raises(kinetic.JobLost, match="was cleaned up"):
        ASKED[asked](job)


# Damage that stays.


def damaged(recorder: Recorder, data: bytes) -> JobJournal:
    journal = recorder.running()
    (key, *_) = journal.store.list(journal.keys.events(1))
    journal.store.put(key, data)
    return journal


def test_damage_that_stays_is_raised(recorder: Recorder, caplog: pytest.LogCaptureFixture) -> None:
    journal = damaged(recorder, b"torn")
    now = [0.0]
    watch = Watch(journal, LiveBackend(HOME), clock=lambda: now[0])
    looks = 0

    def look_on() -> None:
        nonlocal looks
        while True:
            looks += 1
            watch.look()
            now[0] += watch.pause

    with pytest.raises(kinetic.DataError, match=r"records in memory://.* are damaged.*torn.*Submit the call again"):
        look_on()
    assert looks >= 5
    assert now[0] >= 5.0
    assert len(caplog.messages) == 1


def test_damage_that_goes_is_none(recorder: Recorder) -> None:
    journal = recorder.running()
    (key, *_) = journal.store.list(journal.keys.events(1))
    whole = journal.store.get(key)
    ticks = iter(range(0, 10**6, 60))
    watch = Watch(journal, LiveBackend(HOME), clock=lambda: float(next(ticks)))
    for _ in range(5):
        journal.store.put(key, b"torn")
        for _ in range(3):
            watch = Watch(journal, LiveBackend(HOME), clock=lambda: float(next(ticks)))
            watch.look()
        journal.store.put(key, whole)
        assert watch.look().status is JobStatus.RUNNING


def test_a_log_is_shown_although_the_records_are_damaged(recorder: Recorder) -> None:
    told, ticks = Told(), iter(range(0, 10**6, 60))
    journal = damaged(recorder, b"torn")
    journal.store.create(journal.keys.log(1, 1, 0), b"all of it\n")
    watch = Watch(journal, LiveBackend(HOME), clock=lambda: float(next(ticks)))
    with pytest.raises(kinetic.DataError, match="damaged"):
        until_ended(watch, show=Reporting(told, LogPump(journal.store, journal.keys)))
    assert told.data == b"all of it\n"


class Unread(Told):
    """Shows where nobody reads any more."""

    def log(self, data: bytes) -> None:
        if data:
            raise BrokenPipeError


@pytest.mark.parametrize("has_ended", [False, True])
def test_a_broken_pipe_is_no_trouble_with_the_store(recorder: Recorder, *, has_ended: bool) -> None:
    journal = recorder.running()
    journal.store.create(journal.keys.log(1, 1, 0), b"a line\n")
    if has_ended:
        finish(recorder, journal, 42)
    show = Reporting(Unread(), LogPump(journal.store, journal.keys))
    with pytest.raises(BrokenPipeError):
        until_ended(Watch(journal, LiveBackend(HOME)), 5, show)


def test_records_of_a_newer_version_are_told_at_once(recorder: Recorder) -> None:
    journal = damaged(recorder, b'{"kind":"events","version":99,"sig":null}\n')
    for call in (lambda: handle(journal).result(), lambda: asyncio.run(_await(handle(journal)))):
        with pytest.raises(kinetic.ConfigError, match="upgrade kinetic-ray"):
            call()


# Ctrl-C.


class Interrupting(LiveBackend):
    """Ctrl-C comes while it is looked who drives the job."""

    def observe(self, store_url: str, job_id: str) -> Observation:
        raise KeyboardInterrupt


WAITS: dict[str, Callable[[JobHandle[Any]], Any]] = {
    "result": lambda job: job.result(),
    "wait": lambda job: job.wait(),
    "exception": lambda job: job.exception(),
    "logs": lambda job: job.logs(follow=True),
    "follow": lambda job: job.follow(Told()),
}


@pytest.mark.parametrize("wait", WAITS)
def test_ctrl_c_says_how_to_go_on_wherever_it_comes(
    recorder: Recorder, wait: str, capsys: pytest.CaptureFixture[str]
) -> None:
    journal = recorder.running()
    with pytest.raises(KeyboardInterrupt) as caught:
        WAITS[wait](handle(journal, Interrupting(HOME)))
    err = capsys.readouterr().err
    assert err.count(f"{journal.job_id} goes on without you") == 1
    assert f"kinetic jobs cancel {journal.job_id}" in err
    files = {Path(frame.filename).name for frame in traceback.extract_tb(caught.value.__traceback__)}
    assert "watching.py" not in files or wait == "follow"  # follow() is for our own blocking calls
    assert not journal.cancel_requested()


def test_ctrl_c_in_a_cancel_says_that_the_request_stands(
    recorder: Recorder, capsys: pytest.CaptureFixture[str]
) -> None:
    journal = recorder.running()
    with pytest.raises(KeyboardInterrupt):
        handle(journal, Interrupting(HOME)).cancel()
    err = capsys.readouterr().err
    assert f"the request to cancel {journal.job_id} is recorded and stands" in err
    assert "goes on without you" not in err


ASYNC_CLIENT = """
import asyncio, sys, kinetic_ray as kinetic
async def main():
    job = kinetic.attach(sys.argv[1])
    print("waiting", flush=True)
    if sys.argv[2] == "stream":
        async for line in job.stream():
            print(line)
    await job
asyncio.run(main())
"""


@pytest.mark.parametrize("way", ["await", "stream"])
def test_ctrl_c_in_an_event_loop_says_it_too(tmp_path: Path, way: str) -> None:
    journal = Recorder(open_store(tmp_path / "store")).running()
    env = {**os.environ, "KINETIC_STORE": journal.store.url, "KINETIC_BACKEND": LIVE}
    command = [sys.executable, "-c", ASYNC_CLIENT, journal.job_id, way]
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as client:
        assert client.stdout is not None
        assert client.stdout.readline() == "waiting\n"
        client.send_signal(signal.SIGINT)
        _, err = client.communicate(timeout=120)
    assert err.count("goes on without you") == 1
    assert err.rstrip().endswith("KeyboardInterrupt")


def test_a_task_that_its_program_cancels_is_no_ctrl_c(recorder: Recorder, capsys: pytest.CaptureFixture[str]) -> None:
    async def main() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(_await(handle(recorder.running())), 0.05)

    asyncio.run(main())
    assert capsys.readouterr().err == ""


def test_errors_of_an_awaited_job_begin_at_the_users_line(recorder: Recorder) -> None:
    with pytest.raises(KeyError) as caught:
        asyncio.run(_await(handle(recorder.failed(error=KeyError("row 7")))))
    last = traceback.extract_tb(caught.value.__traceback__)[-1]
    assert (Path(last.filename).name, last.line) == ("test_waiting.py", "return await job")


# Lines as they come.


async def collect(job: JobHandle[Any], rank: int | None = None) -> list[LogLine]:
    return [line async for line in job.stream(rank=rank)]


def test_the_lines_of_all_ranks(recorder: Recorder, store: Store) -> None:
    journal = recorder.running(logs={0: b"a\n\nb\r1\x0c\xff", 2: b"x" * 3_000_000 + b"\nend"})
    store.create(journal.keys.log(1, 2, 0), b"again\n")
    recorder.ended(journal, JobStatus.FAILED, attempt=2)
    job = handle(journal)
    lines = asyncio.run(collect(job))
    assert [line for line in lines if line.rank == 2] == [LogLine(2, 1, "x" * 3_000_000), LogLine(2, 1, "end")]
    assert [line for line in lines if line.rank == 0] == [LogLine(0, 2, "again")]
    assert asyncio.run(collect(job, 1)) == []
    with pytest.raises(kinetic.UsageError, match="ranks 0 to 3, not 4"):
        asyncio.run(collect(job, 4))


@settings(max_examples=40)
@given(st.lists(st.tuples(st.integers(1, 3), st.sampled_from([b"a", b"\n", b"b\nc", b"\r", b"\n\n"]))))
def test_every_line_once_with_its_attempt(steps: list[tuple[int, bytes]]) -> None:
    recorder = Recorder(open_store(f"memory://{uuid.uuid4()}"))
    journal = recorder.running(ranks=1, logs={0: b"^\n"})
    written = {1: b"^\n"}

    async def main() -> list[LogLine]:
        lines = handle(journal).stream()
        got = [await anext(lines)]  # so the first attempt is the one that is read
        for attempt, data in sorted(steps, key=lambda step: step[0]):
            written[attempt] = written.get(attempt, b"") + data
            journal.store.put(journal.keys.log(1, attempt, 0), written[attempt])
        recorder.ended(journal, JobStatus.STOPPED, attempt=max(written))
        return got + [line async for line in lines]

    assert asyncio.run(main()) == [
        LogLine(0, attempt, text)
        for attempt, data in sorted(written.items())
        for text in data.removesuffix(b"\n").decode().split("\n")
    ]


def test_lines_come_while_the_job_runs_and_from_before_it_does(tmp_path: Path) -> None:
    recorder = Recorder(open_store(tmp_path / "store"))
    journal = recorder.running(ranks=2)
    paths = [journal.store.append_path(journal.keys.log(1, 1, rank)) for rank in range(2)]

    async def main() -> list[str]:
        lines = handle(journal).stream()
        got = []
        for number in range(3):
            path = paths[number % 2]
            assert path is not None
            with path.open("ab") as file:
                file.write(b"line %d\n" % number)
            got.append((await anext(lines)).text)
        await lines.aclose()
        return got

    assert asyncio.run(asyncio.wait_for(main(), 120)) == ["line 0", "line 1", "line 2"]


def test_the_lines_of_a_lost_job_end(recorder: Recorder) -> None:
    job = handle(recorder.running(logs={0: b"its last words"}), DownBackend(HOME))
    assert asyncio.run(collect(job)) == [LogLine(0, 1, "its last words")]
    with pytest.raises(kinetic.JobLost):
        job.result()


def test_a_blip_loses_no_line() -> None:
    place = Blinking(open_memory(str(uuid.uuid4())))
    open_store(place.url)
    journal = Recorder(Store(place)).succeeded(logs={0: b"one\n", 1: b"two\n"})
    place.key, place.left = "logs", 3
    assert [line.text for line in asyncio.run(collect(handle(journal)))] == ["one", "two"]
    assert len(place.failed) == 3


def test_a_stream_that_is_no_longer_read_can_be_left(recorder: Recorder) -> None:
    async def main() -> None:
        task = asyncio.ensure_future(collect(handle(recorder.running())))
        await asyncio.wait([task], timeout=0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())


# Words that a terminal is given.


@pytest.mark.parametrize("loadable", [True, False])
def test_what_failed_is_told_without_control_codes(recorder: Recorder, loadable: bool) -> None:
    nasty = "\x1b]0;title\x07\x1b[2J 10%\r 20%\x85bad"
    error: Exception = ValueError(nasty) if loadable else SystemExitLike(nasty)
    journal = recorder.failed(error=error, logs={2: f"{nasty}\nlast line\n".encode()})
    raised = handle(journal).exception()
    told = "\n".join(raised.__notes__) if loadable else str(raised)
    assert [char for char in told if unicodedata.category(char) == "Cc" and char not in "\t\n"] == []
    assert "bad" in told
    assert isinstance(raised, ValueError if loadable else kinetic.JobFailed)


class SystemExitLike(Exception):
    def __reduce__(self) -> Any:
        return __import__, ("module_that_is_only_on_the_host",)

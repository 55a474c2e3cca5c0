"""The submit loop against a Jobs API that misbehaves: every job that is handed over gets one end."""

import asyncio
import logging
import shlex
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from kinetic_ray.backends.local.head import HeadReport
from kinetic_ray.backends.local.hub import Hub
from kinetic_ray.backends.local.job import Patience
from kinetic_ray.backends.local.paths import Runtime
from kinetic_ray.backends.local.rest import ApiError, JobsApi
from kinetic_ray.backends.local.submit import SubmitLoop
from kinetic_ray.backends.local.supervisor import Supervisor
from kinetic_ray.core.names import make_id
from kinetic_ray.core.outcome import Blob
from kinetic_ray.core.spec import Fingerprint, JobSpec
from kinetic_ray.core.state import Event, EventKind, JobState
from kinetic_ray.errors import ConfigError, KineticError, SubmissionError, UsageError
from kinetic_ray.journal import DriverLog, JobJournal, list_entries
from kinetic_ray.store import Store, open_store
from tests.unit.jobs_api import TOKEN, FakeJobsApi

SHORT = Patience(accept=10.0, cancel=1.0, notice=1.5, stop=1.5, look=0.02, attend=0.02)
WAIT = 60.0


class _Head:
    def __init__(self, address: str) -> None:
        self.state = "starting"
        self._report: asyncio.Future[HeadReport] = asyncio.get_running_loop().create_future()
        self._address = address

    def come_up(self) -> None:
        self.state = "up"
        self._report.set_result(HeadReport("n", "127.0.0.1:1", self._address, 2))

    def fail(self) -> None:
        self.state = "failed"
        self._report.set_exception(ConfigError("the embedded cluster can't start: no space"))

    async def report(self) -> HeadReport:
        return await asyncio.shield(self._report)


class _Bench:
    """A loop, its Jobs API, its head and a store with jobs."""

    def __init__(self, folder: Path, api: FakeJobsApi, max_drivers: int) -> None:
        self.api = api
        self.head = _Head(api.address)
        self.store: Store = open_store(folder / "store")
        self.foreseen: list[str] = []
        foresee = lambda spec: self.foreseen.append(spec.job_id)  # noqa: E731
        self.loop = SubmitLoop(self.head, Hub(), TOKEN, foresee, max_drivers=max_drivers, patience=SHORT)
        self.lines: list[asyncio.StreamWriter] = []
        self._made = 0

    def journal(self, job_id: str) -> JobJournal:
        return JobJournal(self.store, job_id)

    def create(self, priority: int = 0) -> str:
        self._made += 1
        job_id = make_id("job", self._made, bytes(10))
        client = Fingerprint("3.11", "2.60", "3", "0")
        spec = JobSpec(job_id, "f", float(self._made), "cpu", Blob("ab" * 32, 3), client, env_id="e", priority=priority)
        self.journal(job_id).create(spec, {"TOKEN": "secret"})
        return job_id

    async def hand_over(self, *job_ids: str) -> None:
        for job_id in job_ids:
            await self.loop.submit(self.store.url, job_id)

    async def submitted(self) -> str:
        """A new job that Ray has taken."""
        job_id = self.create()
        await self.hand_over(job_id)
        await self.until(lambda: job_id in self.api.jobs)
        return job_id

    async def driver_comes(self, job_id: str, epoch: int = 1) -> asyncio.StreamReader:
        """A driver says hello; gives what it is told."""
        theirs, ours = socket.socketpair()
        told, driver = await asyncio.open_unix_connection(sock=theirs)
        _, stream = await asyncio.open_unix_connection(sock=ours)
        self.lines += [driver, stream]
        self.loop.arrive(job_id, epoch, stream)
        return told

    async def driver_goes(self, job_id: str, status: str = "FAILED", message: str = "") -> None:
        self.api.jobs[job_id] = {"status": status, "message": message}
        stream = self.loop._jobs[job_id].driver
        assert stream is not None
        self.loop.leave(job_id, stream)

    async def until(self, predicate: Callable[[], object], what: str = "") -> None:
        async with asyncio.timeout(WAIT):
            while not predicate():
                await asyncio.wait([asyncio.create_task(asyncio.to_thread(lambda: None))])

    async def until_gone(self, job_id: str) -> JobState:
        await self.until(lambda: self.loop.observe(job_id)[0] == "gone")
        return self.journal(job_id).state()


@asynccontextmanager
async def _bench(folder: Path, api: FakeJobsApi, max_drivers: int = 8, up: bool = True) -> AsyncIterator[_Bench]:
    bench = _Bench(folder, api, max_drivers)
    if up:
        bench.head.come_up()
    try:
        yield bench
    finally:
        await bench.loop.close()
        for line in bench.lines:
            line.close()
            await line.wait_closed()


@pytest.fixture
def api():
    fake = FakeJobsApi()
    yield fake
    fake.close()


Test = Callable[[_Bench], Awaitable[None]]


def _run(folder: Path, api: FakeJobsApi, test: Test, max_drivers: int = 8, up: bool = True) -> None:
    async def whole() -> None:
        async with _bench(folder, api, max_drivers, up) as bench:
            await test(bench)

    asyncio.run(whole())


def test_a_job_is_submitted_as_soon_as_the_head_is_up(tmp_path: Path, api: FakeJobsApi) -> None:
    async def test(bench: _Bench) -> None:
        job_id = bench.create()
        await bench.hand_over(job_id, job_id)
        assert bench.loop.observe(job_id) == ("submitting", "the embedded cluster is starting")
        await bench.until(lambda: bench.foreseen == [job_id])
        bench.head.come_up()
        await bench.until(lambda: job_id in api.jobs)
        assert api.entrypoints[job_id] == f"{sys.executable} -m kinetic_ray.runner {bench.store.url} {job_id}"
        await bench.driver_comes(job_id)
        assert bench.loop.observe(job_id) == ("live", "")

    _run(tmp_path, api, test, up=False)
    assert [line for line in api.asked if line.startswith("POST")] == ["POST /api/jobs/"]


def test_a_store_with_an_awkward_name_stays_one_word(tmp_path: Path, api: FakeJobsApi) -> None:
    async def test(bench: _Bench) -> None:
        await bench.submitted()

    folder = tmp_path / "it's; touch $HOME 'x'"
    folder.mkdir()
    _run(folder, api, test)
    (entrypoint,) = api.entrypoints.values()
    words = shlex.split(entrypoint)
    assert len(words) == 5
    assert open_store(words[3], create=False).url == open_store(folder / "store").url


@pytest.mark.parametrize(("unready", "swallow"), [(3, 0), (0, 1), (2, 1)])
def test_a_submission_is_repeated_until_ray_has_it_once(
    tmp_path: Path, api: FakeJobsApi, unready: int, swallow: int
) -> None:
    api.unready, api.swallow = unready, swallow

    async def test(bench: _Bench) -> None:
        job_id = await bench.submitted()
        await bench.driver_comes(job_id)
        assert bench.loop.observe(job_id)[0] == "live"

    _run(tmp_path, api, test)
    assert len(api.jobs) == 1


def test_a_terminal_ray_job_of_that_id_is_replaced(tmp_path: Path, api: FakeJobsApi) -> None:
    async def test(bench: _Bench) -> None:
        job_id = bench.create()
        api.jobs[job_id] = {"status": "FAILED", "message": "an older run"}
        await bench.hand_over(job_id)
        await bench.until(lambda: api.jobs.get(job_id, {}).get("status") == "RUNNING")

    _run(tmp_path, api, test)


def test_only_so_many_drivers_run_and_the_rest_come_by_priority_then_age(tmp_path: Path, api: FakeJobsApi) -> None:
    async def test(bench: _Bench) -> None:
        first, low, old, high = (bench.create(priority) for priority in (0, -1, 0, 5))
        await bench.hand_over(first, low, old, high)
        order = [first]
        for _ in range(3):
            running = order[-1]
            await bench.until(lambda job_id=running: job_id in api.jobs)
            assert sorted(api.jobs) == sorted(order)
            waiting = [job_id for job_id in (low, old, high) if job_id not in order]
            assert {bench.loop.observe(job_id)[0] for job_id in waiting} == {"waiting"}
            assert "1 of 1 drivers run" in bench.loop.observe(waiting[0])[1]
            await bench.driver_comes(running)
            before = set(api.jobs)
            await bench.driver_goes(running)
            await bench.until(lambda seen=before: set(api.jobs) - seen)
            order += set(api.jobs) - before
        assert order == [first, high, old, low]

    _run(tmp_path, api, test, max_drivers=1)


def test_a_driver_that_dies_leaves_a_job_with_an_end(tmp_path: Path, api: FakeJobsApi) -> None:
    async def test(bench: _Bench) -> None:
        job_id = await bench.submitted()
        await bench.driver_comes(job_id)
        await bench.driver_goes(job_id, message="exit code -9, last logs: boom")
        state = await bench.until_gone(job_id)
        assert (state.status, state.reason) == ("FAILED", "DriverLost")
        assert "boom" in state.message

    _run(tmp_path, api, test)


def test_a_driver_that_was_fenced_leaves_the_job_to_the_newer_one(tmp_path: Path, api: FakeJobsApi) -> None:
    async def test(bench: _Bench) -> None:
        job_id = await bench.submitted()
        await bench.driver_comes(job_id)
        bench.journal(job_id).claim({})
        newer = bench.journal(job_id).claim({})
        await bench.driver_goes(job_id)  # before the newer one says hello
        await bench.driver_comes(job_id, epoch=2)
        newer.append(Event(EventKind.ENDED, 1.0, {"status": "SUCCEEDED"}))
        await bench.driver_goes(job_id)
        assert (await bench.until_gone(job_id)).status == "SUCCEEDED"
        assert bench.journal(job_id).newest_claim() == 2

    _run(tmp_path, api, test)


def test_a_newer_driver_that_never_says_hello_is_not_waited_for_without_end(tmp_path: Path, api: FakeJobsApi) -> None:
    async def test(bench: _Bench) -> None:
        job_id = await bench.submitted()
        await bench.driver_comes(job_id)
        bench.journal(job_id).claim({})
        bench.journal(job_id).claim({})
        await bench.driver_goes(job_id)
        assert (await bench.until_gone(job_id)).reason == "DriverLost"

    _run(tmp_path, api, test)


@pytest.mark.parametrize("came", [True, False], ids=["while it ran", "before its driver came"])
def test_a_job_that_was_stopped_at_ray_is_cancelled(tmp_path: Path, api: FakeJobsApi, came: bool) -> None:
    async def test(bench: _Bench) -> None:
        job_id = await bench.submitted()
        if came:
            await bench.driver_comes(job_id)
            await bench.driver_goes(job_id, "STOPPED")
        else:
            api.jobs[job_id] = {"status": "STOPPED", "message": ""}
        state = await bench.until_gone(job_id)
        assert (state.status, state.reason) == ("STOPPED", "Cancelled")
        assert "ray job stop" in state.message

    _run(tmp_path, api, test)


def test_a_driver_that_never_comes_leaves_a_job_with_an_end(tmp_path: Path, api: FakeJobsApi) -> None:
    async def test(bench: _Bench) -> None:
        job_id = await bench.submitted()
        api.jobs[job_id] = {"status": "FAILED", "message": "runtime_env setup failed"}
        state = await bench.until_gone(job_id)
        assert (state.status, state.reason) == ("FAILED", "DriverLost")
        assert "runtime_env setup failed" in state.message

    _run(tmp_path, api, test)


def test_a_job_that_its_driver_ended_is_left_as_it_is(tmp_path: Path, api: FakeJobsApi) -> None:
    async def test(bench: _Bench) -> None:
        job_id = await bench.submitted()
        await bench.driver_comes(job_id)
        log = bench.journal(job_id).claim({})
        log.append(Event(EventKind.ENDED, 1.0, {"status": "SUCCEEDED"}))
        await bench.driver_goes(job_id, "SUCCEEDED")
        assert (await bench.until_gone(job_id)).status == "SUCCEEDED"
        assert bench.journal(job_id).newest_claim() == 1
        await bench.hand_over(job_id)  # handed over again, it is not run again
        await bench.until_gone(job_id)

    _run(tmp_path, api, test)
    assert api.asked.count("POST /api/jobs/") == 1


def end(log: DriverLog) -> None:
    log.append(Event(EventKind.ENDED, 1.0, {"status": "SUCCEEDED"}))


@pytest.mark.parametrize("again", [False, True], ids=["at once", "when it is handed over again"])
def test_what_a_driver_leaves_that_dies_just_after_the_end_is_done(
    tmp_path: Path, api: FakeJobsApi, again: bool
) -> None:
    async def test(bench: _Bench) -> None:
        if again:
            job_id = bench.create()
            end(bench.journal(job_id).claim({}))
            await bench.hand_over(job_id)
        else:
            job_id = await bench.submitted()
            await bench.driver_comes(job_id)
            end(bench.journal(job_id).claim({}))
            await bench.driver_goes(job_id)
        assert (await bench.until_gone(job_id)).status == "SUCCEEDED"
        assert bench.store.walk(bench.journal(job_id).keys.env_folder) == []
        assert [entry.state for entry in list_entries(bench.store)] == ["SUCCEEDED"]

    _run(tmp_path, api, test)


@pytest.mark.parametrize("ended", [True, False], ids=["after its end", "while it runs"])
@pytest.mark.parametrize("status", ["SUCCEEDED", "FAILED", "STOPPED", "RUNNING"])
def test_a_job_that_was_cleaned_up_stays_so_whatever_its_driver_does(
    tmp_path: Path, api: FakeJobsApi, caplog: pytest.LogCaptureFixture, status: str, ended: bool
) -> None:
    async def test(bench: _Bench) -> None:
        job_id = await bench.submitted()
        await bench.driver_comes(job_id)
        log = bench.journal(job_id).claim({})
        if ended:
            end(log)
        bench.journal(job_id).erase()
        await bench.driver_goes(job_id, status)
        await bench.until_gone(job_id)
        assert bench.store.walk("") == ["format.json"]

    _run(tmp_path, api, test)
    assert caplog.messages == []


@pytest.mark.parametrize("when", ["waiting", "before its driver came", "unknown"])
def test_a_job_that_was_cleaned_up_early_stays_so(
    tmp_path: Path, api: FakeJobsApi, caplog: pytest.LogCaptureFixture, when: str
) -> None:
    async def test(bench: _Bench) -> None:
        first = await bench.submitted()
        await bench.driver_comes(first)
        job_id = bench.create()
        if when != "unknown":
            await bench.hand_over(job_id)
        if when == "before its driver came":
            bench.loop.max_drivers = 2
            await bench.driver_goes(first)
            await bench.until(lambda: job_id in api.jobs)
        bench.journal(job_id).erase()
        await bench.loop.cancel(bench.store.url, job_id)
        await bench.until(lambda: bench.loop.observe(job_id)[0] in ("gone", "unknown"))
        bench.journal(first).erase()
        assert bench.store.walk("") == ["format.json"]

    _run(tmp_path, api, test, max_drivers=1)
    assert caplog.messages == []


def test_a_store_that_is_away_for_a_while_costs_no_job_its_end(tmp_path: Path, api: FakeJobsApi) -> None:
    async def test(bench: _Bench) -> None:
        ended, lost = [await bench.submitted() for _ in range(2)]
        for job_id in (ended, lost):
            await bench.driver_comes(job_id)
        end(bench.journal(ended).claim({}))
        (tmp_path / "store").rename(tmp_path / "elsewhere")
        for job_id in (ended, lost):
            await bench.driver_goes(job_id)
        await bench.until(lambda: len(caplogged) >= 2)
        assert bench.loop.open_jobs() == [ended, lost]
        (tmp_path / "elsewhere").rename(tmp_path / "store")
        assert (await bench.until_gone(ended)).status == "SUCCEEDED"
        assert (await bench.until_gone(lost)).reason == "DriverLost"

    caplogged: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: caplogged.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("kinetic_ray").addHandler(handler)
    try:
        _run(tmp_path, api, test)
    finally:
        logging.getLogger("kinetic_ray").removeHandler(handler)


def test_a_store_that_is_away_does_not_hold_up_the_end_of_the_cluster(tmp_path: Path, api: FakeJobsApi) -> None:
    async def test(bench: _Bench) -> None:
        runs, gone, waits = bench.create(), bench.create(), bench.create()
        await bench.hand_over(runs, gone, waits)
        await bench.until(lambda: len(api.jobs) == 2)
        for job_id in (runs, gone):
            await bench.driver_comes(job_id)
        (tmp_path / "store").rename(tmp_path / "elsewhere")
        await bench.driver_goes(gone)  # its end can't be written: the loop tries for long
        await asyncio.wait_for(bench.loop.cancel_all("an end by force"), WAIT)
        assert bench.loop.open_jobs() == []

    _run(tmp_path, api, test, max_drivers=2)


def test_jobs_whose_store_is_gone_hold_no_others_up(tmp_path: Path, api: FakeJobsApi) -> None:
    async def test(bench: _Bench) -> None:
        lost = await bench.submitted()
        await bench.driver_comes(lost)
        (tmp_path / "store").rename(tmp_path / "elsewhere")  # and it stays away
        bench.store = open_store(tmp_path / "other")
        waits = bench.create()
        await bench.hand_over(waits)
        assert waits not in api.jobs
        await bench.driver_goes(lost)
        await bench.until(lambda: waits in api.jobs)
        assert bench.loop.observe(lost)[0] != "gone"  # its end is still tried

    _run(tmp_path, api, test, max_drivers=1)


def test_cancel_of_a_waiting_job_closes_it_unrun(tmp_path: Path, api: FakeJobsApi) -> None:
    async def test(bench: _Bench) -> None:
        first, second = bench.create(), bench.create()
        await bench.hand_over(first, second)
        await bench.until(lambda: first in api.jobs)
        bench.journal(second).request_cancel({})
        await bench.loop.cancel(bench.store.url, second)
        assert bench.loop.observe(second)[0] == "gone"
        state = bench.journal(second).state()
        assert (state.status, state.reason) == ("STOPPED", "Cancelled")
        await bench.driver_comes(first)
        await bench.driver_goes(first)
        await bench.until_gone(first)

    _run(tmp_path, api, test, max_drivers=1)
    assert len(api.entrypoints) == 1


@pytest.mark.parametrize("cleaned", [False, True], ids=["cancelled", "cleaned up"])
def test_a_waiting_job_goes_by_its_record_alone(tmp_path: Path, api: FakeJobsApi, cleaned: bool) -> None:
    """Whoever wrote the record died before it could tell the supervisor."""

    async def test(bench: _Bench) -> None:
        first, second, third = bench.create(), bench.create(), bench.create()
        await bench.hand_over(first, second, third)
        await bench.until(lambda: first in api.jobs)
        journal = bench.journal(second)
        journal.erase() if cleaned else journal.request_cancel({})
        state = await bench.until_gone(second)
        assert (state.status, journal.exists()) == (("PENDING", False) if cleaned else ("STOPPED", True))
        await bench.driver_comes(first)
        await bench.driver_goes(first)
        await bench.until(lambda: third in api.jobs)

    _run(tmp_path, api, test, max_drivers=1)
    assert len(api.entrypoints) == 2


@pytest.mark.parametrize("comes", [False, True], ids=["never comes", "comes"])
def test_cancel_before_the_head_is_up_never_submits(tmp_path: Path, api: FakeJobsApi, comes: bool) -> None:
    async def test(bench: _Bench) -> None:
        job_id = bench.create()
        await bench.hand_over(job_id)
        bench.journal(job_id).request_cancel({})
        await bench.loop.cancel(bench.store.url, job_id)
        if comes:
            bench.head.come_up()
        assert (await bench.until_gone(job_id)).status == "STOPPED"

    _run(tmp_path, api, test, up=False)
    assert api.entrypoints == {}


def test_cancel_is_told_to_the_driver_then_enforced(tmp_path: Path, api: FakeJobsApi) -> None:
    async def test(bench: _Bench) -> None:
        job_id = await bench.submitted()
        told = await bench.driver_comes(job_id)
        bench.journal(job_id).request_cancel({})
        await bench.loop.cancel(bench.store.url, job_id)
        assert await asyncio.wait_for(told.readline(), WAIT) == b'{"event":"cancel"}\n'
        assert f"POST /api/jobs/{job_id}/stop" in api.asked  # first, or Ray would call the driver's exit a failure
        state = await bench.until_gone(job_id)  # it doesn't listen
        assert (state.status, state.reason) == ("STOPPED", "Cancelled")

    _run(tmp_path, api, test)


def test_cancel_is_told_to_the_driver_though_ray_refuses_to_stop_it(tmp_path: Path, api: FakeJobsApi) -> None:
    async def test(bench: _Bench) -> None:
        job_id = await bench.submitted()
        told = await bench.driver_comes(job_id)
        del api.jobs[job_id]
        bench.journal(job_id).request_cancel({})
        await bench.loop.cancel(bench.store.url, job_id)
        assert await asyncio.wait_for(told.readline(), WAIT) == b'{"event":"cancel"}\n'
        log = bench.journal(job_id).claim({})
        log.append(Event(EventKind.ENDED, 1.0, {"status": "STOPPED", "reason": "Cancelled", "message": "cancelled"}))
        await bench.driver_goes(job_id)
        assert (await bench.until_gone(job_id)).message == "cancelled"

    _run(tmp_path, api, test)


def test_cancel_of_a_job_whose_driver_never_comes_stops_it(tmp_path: Path, api: FakeJobsApi) -> None:
    async def test(bench: _Bench) -> None:
        job_id = await bench.submitted()
        bench.journal(job_id).request_cancel({})
        await bench.loop.cancel(bench.store.url, job_id)
        assert (await bench.until_gone(job_id)).status == "STOPPED"
        assert api.jobs[job_id]["status"] == "STOPPED"

    _run(tmp_path, api, test)


def test_a_driver_that_hangs_up_but_lives_is_stopped(tmp_path: Path, api: FakeJobsApi) -> None:
    async def test(bench: _Bench) -> None:
        job_id = await bench.submitted()
        await bench.driver_comes(job_id)
        await bench.driver_goes(job_id, "RUNNING")
        assert (await bench.until_gone(job_id)).reason == "DriverLost"
        assert api.jobs[job_id]["status"] == "STOPPED"

    _run(tmp_path, api, test)


def test_cancel_of_a_job_that_nobody_knows_closes_it(tmp_path: Path, api: FakeJobsApi) -> None:
    async def test(bench: _Bench) -> None:
        job_id = bench.create()
        bench.journal(job_id).request_cancel({})
        await bench.loop.cancel(bench.store.url, job_id)
        assert bench.journal(job_id).state().status == "STOPPED"
        assert bench.loop.observe(job_id) == ("unknown", "")

    _run(tmp_path, api, test)


def test_a_head_that_fails_ends_what_waits_for_it(tmp_path: Path, api: FakeJobsApi) -> None:
    async def test(bench: _Bench) -> None:
        running, waiting = bench.create(), bench.create()
        await bench.hand_over(running, waiting)
        bench.head.fail()
        await bench.loop.give_up("the embedded cluster can't start: no space")
        for job_id in (running, waiting):
            state = await bench.until_gone(job_id)
            assert (state.status, state.reason) == ("FAILED", "DriverLost")
            assert "no space" in state.message
        assert bench.loop.open_jobs() == []

    _run(tmp_path, api, test, max_drivers=1, up=False)


def test_what_can_not_be_read_is_refused_and_not_taken(tmp_path: Path, api: FakeJobsApi) -> None:
    async def test(bench: _Bench) -> None:
        with pytest.raises(UsageError, match="no job"):
            await bench.loop.submit(bench.store.url, make_id("job", 77, bytes(10)))
        with pytest.raises(KineticError):
            await bench.loop.submit(str(tmp_path / "nothing here"), bench.create())
        with pytest.raises(ConfigError, match="one process's memory"):
            await bench.loop.submit("memory://x", bench.create())
        assert bench.loop.to_list() == []

    _run(tmp_path, api, test)


def test_a_job_that_comes_while_the_cluster_stops_is_refused(tmp_path: Path) -> None:
    async def test() -> None:
        store = open_store(tmp_path / "store")
        supervisor = Supervisor(Runtime(tmp_path), str(tmp_path))
        job_id = make_id("job", 1, bytes(10))
        spec = JobSpec(job_id, "f", 1.0, "cpu", Blob("ab" * 32, 3), Fingerprint("3.11", "2.60", "3", "0"))
        JobJournal(store, job_id).create(spec, {})
        supervisor._stopping.set()
        with pytest.raises(SubmissionError, match="just stopping"):
            await supervisor._submit({"store": store.url, "job_id": job_id})
        await supervisor._jobs.close()
        assert not JobJournal(store, job_id).state().is_terminal  # the next cluster runs it

    asyncio.run(test())


def test_the_token_is_needed_and_never_shown(api: FakeJobsApi) -> None:
    stranger = JobsApi(api.address, "guess")
    with pytest.raises(ApiError, match="401") as caught:
        stranger.job("job-1")
    assert not caught.value.is_passing
    assert "guess" not in f"{stranger!r} {caught.value}"


def test_an_api_that_is_away_is_worth_another_try() -> None:
    with pytest.raises(ApiError) as caught:
        JobsApi("127.0.0.1:1", TOKEN).stop("job-1")
    assert caught.value.is_passing

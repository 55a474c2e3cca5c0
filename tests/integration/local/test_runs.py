"""However a job ends, user code ran once on each rank; the failure says why, what was printed last, where to look."""

import json
import os
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

import kinetic_ray as kinetic
from kinetic_ray.errors import JobError
from kinetic_ray.testing.clusters import LocalCluster
from kinetic_ray.testing.processes import rank_process
from kinetic_ray.testing.waiting import wait_for
from tests.integration.local import ending_programs
from tests.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(300)]

PATIENCE = 200


@pytest.fixture(scope="module")
def runs_cluster(test_homes: Path) -> Iterator[LocalCluster]:
    """A cluster whose ranks may have less memory together than one of them will take."""
    cluster = LocalCluster(Path(tempfile.mkdtemp(prefix="krt", dir=test_homes)))
    with cluster.active():
        os.environ["KINETIC_LOCAL_MEMORY_MB"] = "900"
        try:
            cluster.start()
            yield cluster
        finally:
            cluster.stop()


def start(how: str, folder: Path, **options: Any) -> kinetic.JobHandle[Any]:
    where = {"accelerator": "cpu", "hosts": 2, "resources": {"cpu": 0.25}, **options}
    return kinetic.run(**where)(ending_programs.run_and).run_async(how, str(folder))


def runs(folder: Path) -> dict[str, int]:
    return {file.name.removeprefix("runs-"): file.stat().st_size for file in folder.glob("runs-*")}


def failure_of(job: kinetic.JobHandle[Any]) -> BaseException:
    with pytest.raises(BaseException) as caught:  # noqa: PT011 - the user's own, or one of ours
        job.result(timeout=PATIENCE)
    assert not isinstance(caught.value, TimeoutError), f"{job.phase()}\n{job.tail()}"
    return caught.value


def assert_told(job: kinetic.JobHandle[Any], error: BaseException, reason: str, words: str, rank: int) -> str:
    """A failure has its reason, the first failing rank and its place, its last words, and the command for more."""
    told = "".join(traceback.format_exception_only(error))
    state = job.phase()
    assert (state.status, state.reason) == ("FAILED", reason), told
    assert state.message.splitlines()[0].startswith(f"rank {rank} (host {rank}"), state.message
    assert words in told
    assert reason in told
    assert f"rank {rank} is about to: " in told
    assert f"kinetic jobs logs {job.job_id}" in told
    return told


@pytest.mark.parametrize(
    ("how", "reason", "words", "others"),
    [
        ("raise", "UserError", "bad batch", "stopped with it: rank 0"),
        ("raise late", "UserError", "bad batch", ""),
        ("exit 3", "UserError", "SystemExit: 3", "stopped with it: rank 0"),
        ("leave 0", "ProcessDied", "exited with code 0 before the function returned", "stopped with it: rank 0"),
        ("leave late", "ProcessDied", "exited with code 0 before the function returned", ""),
        ("SIGKILL", "ProcessDied", "was killed by SIGKILL before the function returned", "stopped with it: rank 0"),
        ("SIGSEGV", "ProcessDied", "was killed by SIGSEGV", "stopped with it: rank 0"),
        ("close its output", "ProcessDied", "exited with code 5 before", "stopped with it: rank 0"),
        ("fork and leave 0", "ProcessDied", "exited with code 0 before", "stopped with it: rank 0"),
        ("fill memory", "OutOfMemory", "out of memory: it had ", "stopped with it: rank 0"),
    ],
)
def test_each_way_to_fail_is_told_and_ran_once(
    how: str, reason: str, words: str, others: str, runs_cluster: LocalCluster, tmp_path: Path
) -> None:
    job = start(how, tmp_path)
    told = assert_told(job, failure_of(job), reason, words, rank=1)
    assert others in told
    assert runs(tmp_path) == {"0": 1, "1": 1}
    assert_forks_are_gone(tmp_path, 1 if "fork" in how else 0)


def assert_forks_are_gone(folder: Path, count: int) -> None:
    told = list(folder.glob("fork-*"))
    assert len(told) == count
    for file in told:
        assert_gone(int(file.read_text()))


def assert_gone(pid: int) -> None:
    wait_until(lambda: not psutil.pid_exists(pid), PATIENCE, f"the end of process {pid}")


def test_a_value_that_can_not_be_pickled_is_not_tried_again(runs_cluster: LocalCluster, tmp_path: Path) -> None:
    job = start("give what can't be pickled", tmp_path)
    assert_told(job, failure_of(job), "ResultError", "lock", rank=0)
    assert runs(tmp_path) == {"0": 1, "1": 1}


def test_success_ran_once_and_a_fork_goes_with_its_rank(runs_cluster: LocalCluster, tmp_path: Path) -> None:
    job = start("leave a fork", tmp_path)
    assert job.result(timeout=PATIENCE) == 7
    assert_forks_are_gone(tmp_path, 2)
    assert runs(tmp_path) == {"0": 1, "1": 1}


def test_a_rank_that_is_stopped_after_its_peers_ended_is_waited_for_and_can_be_cancelled(
    runs_cluster: LocalCluster, tmp_path: Path
) -> None:
    job = start("stop late", tmp_path)
    wait_for(job, "call", rank=1)
    process = rank_process(job, 1)
    wait_until(lambda: process.status() == psutil.STATUS_STOPPED, PATIENCE, "the rank to stop itself")
    wait_until(lambda: job.phase().hosts[0].ok, PATIENCE, "the first rank to end")
    assert job.status() == "RUNNING"
    job.cancel()
    assert isinstance(failure_of(job), kinetic.JobCancelled)
    assert_gone(process.pid)
    assert runs(tmp_path) == {"0": 1, "1": 1}


def end_by_cancel(_cluster: LocalCluster, job: kinetic.JobHandle[Any]) -> str:
    job.cancel()
    return "Cancelled"


def end_by_rank(cluster: LocalCluster, job: kinetic.JobHandle[Any]) -> str:
    cluster.kill_rank(job, 1)
    return "ProcessDied"


def end_by_driver(cluster: LocalCluster, job: kinetic.JobHandle[Any]) -> str:
    cluster.kill_driver(job)
    return "DriverLost"


@pytest.mark.parametrize("end", [end_by_cancel, end_by_rank, end_by_driver])
def test_what_is_ended_from_outside_ran_once(
    end: Callable[[LocalCluster, kinetic.JobHandle[Any]], str], runs_cluster: LocalCluster, tmp_path: Path
) -> None:
    job = start("wait", tmp_path)
    wait_until(lambda: runs(tmp_path) == {"0": 1, "1": 1}, PATIENCE, "both ranks to run")
    reason = end(runs_cluster, job)
    told = "".join(traceback.format_exception_only(failure_of(job)))
    assert job.phase().reason == reason
    if reason != "Cancelled":
        assert "is about to: wait" in told
        assert f"kinetic jobs logs {job.job_id}" in told
    # Whoever asks again starts nothing again.
    assert isinstance(failure_of(kinetic.attach(job.job_id)), JobError)
    assert runs(tmp_path) == {"0": 1, "1": 1}


def test_a_deadline_ends_what_ran_once(runs_cluster: LocalCluster, tmp_path: Path) -> None:
    job = start("wait", tmp_path, timeout=3)
    error = failure_of(job)
    assert isinstance(error, kinetic.JobTimeout)
    assert "still running" in str(error)
    assert set(runs(tmp_path).values()) <= {1}  # on a busy machine none may have come so far


def test_a_job_whose_host_is_killed_ran_once(runs_cluster: LocalCluster, tmp_path: Path) -> None:
    job = start(
        "wait", tmp_path, accelerator="tpu-v6e-8", chips_per_host=4, runtime="plain", hosts=None, resources=None
    )
    wait_for(job, "call")
    wait_until(lambda: runs(tmp_path) == {"0": 1, "1": 1}, PATIENCE, "both ranks to run")
    (name,) = [name for name, state in runs_cluster.slices().items() if state == "up"]
    runs_cluster.kill_host(f"{name}.1")
    error = failure_of(job)
    assert job.phase().reason == "NodeLost"
    assert f"rank 1 (host 1 of {name}): its host is gone" in str(error)
    assert runs(tmp_path) == {"0": 1, "1": 1}


CALLS = """
import json, pathlib, sys
import kinetic_ray as kinetic
from tests.integration.local import ending_programs

told = {}
for number, how in enumerate(sys.argv[2:]):
    folder = pathlib.Path(sys.argv[1], str(number))
    folder.mkdir()
    more = {"timeout": 3} if how == "wait" else {}
    call = kinetic.remote(accelerator="cpu", resources={"cpu": 0.25}, **more)(ending_programs.call_and)
    try:
        told[how] = ["value", repr(kinetic.get(call.remote(how, str(folder))))]
    except BaseException as error:
        told[how] = [str(getattr(error, "reason", "")) or type(error).__name__, str(error)]
    told[how].append((folder / "runs-0").read_text())
print("told: " + json.dumps(told))
"""


def test_calls_of_ray_style_run_once_as_well(runs_cluster: LocalCluster, tmp_path: Path) -> None:
    expected = {
        "return": "value",
        "raise": "KeyError",
        "exit 3": "UserError",
        "leave 0": "ProcessDied",
        "SIGKILL": "ProcessDied",
        "give what can't be pickled": "ResultError",
        "fill memory": "OutOfMemory",
        "wait": "DeadlineExceeded",
    }
    command = [sys.executable, "-c", CALLS, str(tmp_path), *expected]
    root = Path(__file__).resolve().parents[3]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, cwd=root, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("told: ")]
    told = json.loads(line.removeprefix("told: "))
    assert {how: (reason, ran) for how, (reason, _, ran) in told.items()} == {
        how: (reason, "x") for how, reason in expected.items()
    }, told

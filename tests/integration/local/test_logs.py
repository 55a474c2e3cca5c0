"""Logs of real jobs: whole, apart, and readable when the cluster is gone; waiting while its supervisor hangs."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

import kinetic_ray as kinetic
from kinetic_ray.backends.local import backend
from tests.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(240)]

LINES = 1000


@kinetic.run(accelerator="tpu-v6e-16", runtime="plain")
def alike(name: str) -> int:
    """Prints lines that differ in their digits alone, by Python and by C; what folds such lines would lose most."""
    import ctypes

    rank = kinetic.context().rank
    for number in range(LINES):
        if number % 2:
            print(f"{name} rank {rank} step {number}", flush=True)  # noqa: T201
        else:
            ctypes.CDLL(None).puts(f"{name} rank {rank} step {number}".encode())
    return rank


@kinetic.run(accelerator="cpu")
def linger(flag: str) -> None:
    """Prints a line without its end, then waits to be ended."""
    import threading

    print("half a line", end="", flush=True)  # noqa: T201
    Path(flag).touch()
    threading.Event().wait(600)


AFTERWARDS = """
import sys, kinetic_ray as kinetic
job = kinetic.attach(sys.argv[1])
assert (job.result(), job.status()) == (0, "SUCCEEDED")
sys.stdout.write(job.logs(rank=3))
assert job.tail(1, rank=2) == "gang rank 2 step 999", job.tail(1, rank=2)
"""


def _words_of(name: str, rank: int) -> str:
    return "".join(f"{name} rank {rank} step {number}\n" for number in range(LINES))


def _run(*command: str) -> str:
    return subprocess.run([sys.executable, *command], capture_output=True, text=True, check=True, timeout=120).stdout


def test_logs_are_whole_apart_and_outlive_the_cluster(own_cluster: Path) -> None:
    gang = alike.run_async("gang")
    single = alike.options(accelerator="cpu").run_async("single")
    assert (gang.result(timeout=200), single.result(timeout=200)) == (0, 0)
    assert single.logs() == _words_of("single", 0)
    assert [gang.logs(rank=rank) for rank in range(4)] == [_words_of("gang", rank) for rank in range(4)]
    assert backend.stop(own_cluster, force=True)  # the drivers may be leaving still
    assert _run("-c", AFTERWARDS, gang.job_id) == _words_of("gang", 3)
    shown = _run("-m", "kinetic_ray", "jobs", "logs", gang.job_id, "--rank", "all").splitlines()
    assert sorted(shown) == sorted(f"[{r}] {line}" for r in range(4) for line in _words_of("gang", r).splitlines())
    assert backend.status(own_cluster) is None  # none of it has started one


def test_a_supervisor_that_hangs_holds_nobody_up(own_cluster: Path, tmp_path: Path) -> None:
    job = linger.run_async(str(tmp_path / "runs"))
    runs = tmp_path / "runs"
    wait_until(lambda: runs.exists() or job.status().is_terminal, 120, "the job to run")
    assert runs.exists(), job.exception()
    status = backend.status(own_cluster)
    assert status is not None
    wait_until(job.logs, 60, "its line")  # it is written down a moment after it was printed
    os.kill(status["pid"], signal.SIGSTOP)
    supervisor = psutil.Process(status["pid"])
    wait_until(lambda: supervisor.status() == psutil.STATUS_STOPPED, 30, "the supervisor to stop")
    try:
        with pytest.raises(TimeoutError, match=r"the job goes on \(the backend has not answered yet\)"):
            job.result(timeout=0.1)
        assert job.status() is kinetic.JobStatus.RUNNING
        assert job.logs() == "half a line"
        with pytest.raises(TimeoutError, match="recorded and stands"):
            job.cancel(cleanup_timeout=0.1)
    finally:
        os.kill(status["pid"], signal.SIGCONT)
    job.cancel()
    assert job.status() is kinetic.JobStatus.STOPPED

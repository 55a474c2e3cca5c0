"""Jobs on the embedded cluster whose drivers die, are cancelled, or are stopped with the cluster."""

import os
import signal
from pathlib import Path

import psutil
import pytest

import kinetic_ray as kinetic
from kinetic_ray.backends.base import Liveness
from kinetic_ray.backends.local import backend
from kinetic_ray.backends.local.backend import LocalBackend
from kinetic_ray.backends.local.paths import runtime_of
from kinetic_ray.errors import UsageError
from tests.integration.local import clusters
from tests.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]


@kinetic.run(accelerator="cpu")
def linger(flag: str) -> str:
    """Says that it runs, then waits to be ended."""
    import threading

    Path(flag).touch()
    threading.Event().wait(600)
    return "unreachable"


def _start(home: Path, flag: Path) -> kinetic.JobHandle[str]:
    job = linger.run_async(str(flag))
    wait_until(flag.exists, 120, "the job to run")
    assert LocalBackend(home).observe(job.store.url, job.job_id).state is Liveness.LIVE
    return job


def _driver(home: Path, job_id: str) -> psutil.Process:
    (driver,) = (
        process
        for process in clusters.processes(runtime_of(home))
        if process.cmdline()[1:3] == ["-m", "kinetic_ray.runner"] and process.cmdline()[-1] == job_id
    )
    return driver


def test_a_driver_that_is_killed_leaves_an_end_and_no_process(own_cluster: Path, tmp_path: Path) -> None:
    job = _start(own_cluster, tmp_path / "runs")
    _driver(own_cluster, job.job_id).kill()
    wait_until(lambda: job.status().is_terminal, 60, "the job to have an end")
    assert (job.phase().status, job.phase().reason) == ("FAILED", "DriverLost")
    observe = LocalBackend(own_cluster).observe  # the end is written first
    gone = lambda: observe(job.store.url, job.job_id).state is Liveness.GONE  # noqa: E731
    wait_until(gone, 60, "the supervisor to let go of it")
    wait_until(lambda: not _children_of(own_cluster, job.job_id), 30, "the job's processes to be gone")


def _children_of(home: Path, job_id: str) -> list[int]:
    mark = f"KINETIC_JOB_ID={job_id}"
    found = []
    for process in clusters.processes(runtime_of(home)):
        try:
            if mark in [f"{name}={value}" for name, value in process.environ().items()]:
                found.append(process.pid)
        except psutil.Error:
            continue
    return found


def test_stop_refuses_while_a_job_runs_and_force_cancels_it(own_cluster: Path, tmp_path: Path) -> None:
    job = _start(own_cluster, tmp_path / "runs")
    with pytest.raises(UsageError, match=job.job_id):
        backend.stop(own_cluster)
    assert job.status() == "RUNNING"
    assert backend.stop(own_cluster, force=True)
    assert (job.phase().status, job.phase().reason) == ("STOPPED", "Cancelled")
    assert not runtime_of(own_cluster).root.exists()


def test_a_job_of_a_cluster_that_dies_has_an_end(own_cluster: Path, tmp_path: Path) -> None:
    job = _start(own_cluster, tmp_path / "runs")
    (gcs,) = (p for p in clusters.processes(runtime_of(own_cluster)) if p.name() == "gcs_server")
    os.kill(gcs.pid, signal.SIGKILL)
    wait_until(lambda: not runtime_of(own_cluster).root.exists(), 60, "the cluster to end")
    assert (job.phase().status, job.phase().reason) == ("FAILED", "DriverLost")
    assert "head died" in job.phase().message

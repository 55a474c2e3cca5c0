"""The nursery of a cluster: who ends with whom when a host, the nursery or the supervisor is killed."""

import json
import os
import signal
from pathlib import Path
from typing import Any

import psutil
import pytest

import kinetic_ray as kinetic
from kinetic_ray.backends.local import backend, guard
from kinetic_ray.backends.local.paths import runtime_of
from tests.integration.local import clusters
from tests.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(240)]


@kinetic.run(accelerator="tpu-v6e-8")
def linger(path: str) -> str:
    """Leaves a daemon in a session of its own, tells who is who, then waits to be ended."""
    import subprocess
    import sys

    import jax

    daemon = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"], start_new_session=True)
    told = {
        "slice": os.environ["TPU_NAME"],
        "devices": jax.device_count(),
        "pids": [daemon.pid, os.getpid(), os.getppid()],
        "folder": str(Path.cwd().parents[1]),
    }
    Path(path + ".new").write_text(json.dumps(told))
    Path(path + ".new").rename(path)
    signal.pause()
    return "unreachable"


def _start(path: Path) -> tuple[kinetic.JobHandle[str], dict[str, Any]]:
    job = linger.run_async(str(path))
    wait_until(path.exists, 120, "the job to run")
    return job, json.loads(path.read_text())


def _status(home: Path) -> dict[str, Any]:
    status = backend.status(home)
    assert status is not None
    return status


def _all_gone(told: dict[str, Any]) -> None:
    wait_until(lambda: not guard.parents().keys() & set(told["pids"]), 30, "the job's processes to end")
    wait_until(lambda: not Path(told["folder"]).exists(), 30, "its folder to go")


def test_whoever_is_killed_takes_along_only_what_is_its_own(own_cluster: Path, tmp_path: Path) -> None:
    lost_job, lost = _start(tmp_path / "lost")
    kept_job, kept = _start(tmp_path / "kept")
    status = _status(own_cluster)
    nursery = status["nursery_pid"]
    for told in (lost, kept):
        assert told["devices"] == 8
        assert psutil.Process(told["pids"][-1]).ppid() == nursery
        assert Path(told["folder"]).is_relative_to(runtime_of(own_cluster).root)
    assert lost["slice"] != kept["slice"]

    (host,) = (host for one in status["slices"] if one["name"] == lost["slice"] for host in one["hosts"])
    os.kill(host["pid"], signal.SIGKILL)
    _all_gone(lost)
    wait_until(lambda: lost_job.status().is_terminal, 60, "the job to have lost its host")
    assert set(kept["pids"]) <= guard.parents().keys()

    os.kill(nursery, signal.SIGKILL)
    _all_gone(kept)
    wait_until(lambda: kept_job.status().is_terminal, 60, "the job to have lost its rank")
    assert kept_job.phase().reason == "ProcessDied"

    again = wait_until(lambda: _status(own_cluster)["nursery_pid"], 30, "another nursery")
    wait_until(lambda: psutil.Process(again).num_threads() == 1 and _listens(own_cluster), 30, "it to listen")
    _, told = _start(tmp_path / "again")
    assert psutil.Process(told["pids"][-1]).ppid() == again != nursery

    os.kill(_status(own_cluster)["pid"], signal.SIGKILL)
    _all_gone(told)
    wait_until(lambda: not clusters.processes(runtime_of(own_cluster)), 30, "everything to be gone")
    assert not guard.parents().keys() & {again, *told["pids"]}


def _listens(home: Path) -> bool:
    return any(one.laddr == str(runtime_of(home).nursery) for one in psutil.net_connections("unix"))

"""kinetic_ray.testing as a user has it: a project of their own, whose tests use the plugin, run by pytest."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.integration, pytest.mark.timeout(400)]

CONFTEST = """
import pytest

pytest_plugins = ["kinetic_ray.testing.fixtures"]


@pytest.fixture(scope="session")
def kinetic_session_slices():
    return {"tpu-v6e-8": 2}
"""

PROGRAM = """
import os
import time

import kinetic_ray as kinetic


@kinetic.run(accelerator="tpu-v6e-8", runtime="plain", num_slices=2)
def hold():
    time.sleep(600)


@kinetic.run(accelerator="tpu-v6e-8", runtime="plain")
def where():
    return os.environ["TPU_NAME"]
"""

TESTS = """
import os
import signal

import psutil
import pytest

import kinetic_ray as kinetic
from kinetic_ray.testing import wait_for, wait_until
from program import hold, where


def test_a_killed_rank_fails_the_job(kinetic_session_cluster):
    job = hold.run_async()
    wait_for(job, "call")
    kinetic_session_cluster.kill_rank(job, 1)
    with pytest.raises(kinetic.JobFailed, match="killed by SIGKILL") as caught:
        job.result(60)
    assert caught.value.reason == "ProcessDied"
    assert job.phase().hosts[1].reason == "ProcessDied"


def test_a_killed_host_fails_the_job_and_not_the_next(kinetic_session_cluster):
    assert kinetic_session_cluster.slices() == {"tpu-v6e-8-0": "up", "tpu-v6e-8-1": "up"}  # warm
    job = hold.run_async()
    wait_for(job, "call", rank=0)
    kinetic_session_cluster.kill_host("tpu-v6e-8-1.0")
    with pytest.raises(kinetic.JobFailed) as caught:
        job.result(60)
    assert caught.value.reason == "NodeLost"
    assert where.run_async().result(60) == "tpu-v6e-8-0"


def test_a_killed_driver_is_followed_by_another(kinetic_session_cluster):
    job = hold.run_async()
    wait_for(job, "queue")
    wait_until(lambda: _killed(kinetic_session_cluster, job), 30, "a driver to kill")
    assert kinetic_session_cluster.status()["jobs"]
    job.cancel()
    assert job.wait(60) == kinetic.JobStatus.STOPPED


def _killed(cluster, job):
    try:
        cluster.kill_driver(job)
    except kinetic.UsageError:  # it is on its way
        return False
    return True


def test_a_held_up_rank_goes_on(kinetic_session_cluster):
    from kinetic_ray.testing.processes import rank_process

    job = hold.run_async()
    wait_for(job, "call")
    process = rank_process(job, 0)
    kinetic_session_cluster.delay_rank(job, 5.0)
    wait_until(lambda: process.status() == psutil.STATUS_STOPPED, 10)
    wait_until(lambda: process.status() != psutil.STATUS_STOPPED, 30)
    with pytest.raises(kinetic.UsageError, match="rank 7 of .* has no process now"):
        kinetic_session_cluster.kill_rank(job, 7)
    job.cancel()


def test_a_held_up_host_goes_on(kinetic_session_cluster):
    [name] = kinetic_session_cluster.start_slices("tpu-v6e-8")
    kinetic_session_cluster.delay_host(f"{name}.0", 1.0)
    assert where.run_async().result(60).startswith("tpu-v6e-8-")
    with pytest.raises(kinetic.UsageError, match="no host 'x.0': there are tpu-v6e-8-"):
        kinetic_session_cluster.delay_host("x.0", 1.0)


@pytest.mark.kinetic_slices({"tpu-v6e-8": 1})
def test_a_cluster_of_its_own(kinetic_cluster, kinetic_session_cluster_home):
    assert os.environ["KINETIC_HOME"] == str(kinetic_cluster.home) != kinetic_session_cluster_home
    assert kinetic_cluster.status()["pool"] == {"tpu-v6e-8": 1}
    with pytest.raises(kinetic.UsageError, match="never fit"):
        hold.run_async()
    with pytest.raises(kinetic.UsageError, match="no slice or host 'tpu-v6e-8-0': no slice is there now"):
        kinetic_cluster.preempt("tpu-v6e-8-0")


@pytest.fixture
def kinetic_session_cluster_home(_kinetic_session):
    return str(_kinetic_session.home)


def test_nothing_of_it_is_left_in_the_environment():
    assert os.environ["KINETIC_HOME"] == "/nowhere"
    assert "KINETIC_LOCAL_SLICES" not in os.environ
"""


def test_a_projects_own_tests(kinetic_home: Path, tmp_path: Path) -> None:
    """The basetemp lies among this run's homes, so whatever their clusters leave behind is found at its end."""
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "test_program.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-q", "--strict-markers", "-W", "error", "-p", "no:cacheprovider"]
    environ = {**os.environ, "KINETIC_HOME": "/nowhere"}
    words = [*command, "--basetemp", str(kinetic_home / "pytest")]
    done = subprocess.run(words, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=360)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert "7 passed" in done.stdout

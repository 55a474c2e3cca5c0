"""Ctrl-C at a program whose first call is just being handed over to a cluster that isn't there yet."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import kinetic_ray as kinetic
from kinetic_ray.core.state import JobStatus
from kinetic_ray.store import open_store
from tests.programs_apart import ROOT
from tests.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(240)]

_PROGRAM = """
import kinetic_ray as kinetic

@kinetic.run(accelerator="cpu")
def double(x):
    return 2 * x

double(21)
"""


def test_a_job_that_is_told_to_go_on_does(own_cluster: Path, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(_PROGRAM)
    program = subprocess.Popen(
        [sys.executable, str(script)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    store = open_store(kinetic.config.resolve().store_url)

    def recorded() -> list[str]:
        return [key for key in store.walk("jobs") if key.endswith("/spec.json")]

    wait_until(recorded, 120, "the job to be recorded")
    os.killpg(program.pid, signal.SIGINT)  # as a terminal does: to all that runs in the foreground
    _, told = program.communicate()
    assert program.returncode == -signal.SIGINT
    (job_id,) = {key.split("/")[1] for key in recorded()}
    assert f"{job_id} goes on without you." in told
    job = kinetic.attach(job_id)
    wait_until(lambda: job.status().is_terminal, 120, "the job to end, though nobody asks for its result")
    assert job.status() is JobStatus.SUCCEEDED
    assert job.result() == 42

"""Hosts that never start: the job that wants them ends and says what their launcher said, others run."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import kinetic_ray as kinetic
from kinetic_ray.backends.local import backend
from kinetic_ray.errors import JobFailed
from kinetic_ray.jobs import JobHandle

pytestmark = [pytest.mark.integration, pytest.mark.slow]

#: Every interpreter of the cluster imports this as it starts; a simulated host's ends there.
_BREAKS = """
import os, sys
if "kinetic_ray.backends.local.node" in sys.orig_argv and "tpu-" in sys.orig_argv[-1]:
    sys.stderr.write("first word\\nno more hosts today\\n")
    sys.stderr.flush()
    os._exit(3)
"""


@pytest.fixture
def broken_hosts(kinetic_home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The home of a cluster whose hosts can't start."""
    folder = kinetic_home / "site-packages"  # of the shell's PYTHONPATH only folders of packages reach the cluster
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(_BREAKS)
    monkeypatch.setenv("PYTHONPATH", str(folder))
    yield kinetic_home
    backend.stop(kinetic_home, force=True)


def give() -> int:
    return 7


def failure_of(job: JobHandle[int]) -> JobFailed:
    with pytest.raises(JobFailed) as caught:
        job.result(timeout=170)
    return caught.value


def test_a_job_whose_hosts_never_start_says_what_their_launcher_said(broken_hosts: Path) -> None:
    doomed = kinetic.run(accelerator="tpu-v6e-8")(give).run_async()
    assert kinetic.run(accelerator="cpu")(give)() == 7
    error = failure_of(doomed)
    assert error.reason == "Unschedulable"
    told = str(error)
    assert "its hosts failed to start 3 times in a row: the slice tpu-v6e-8-0 could not be started: " in told
    assert "the node tpu-v6e-8-0.0 ended before it was up; its log, " in told
    assert "no more hosts today" in told
    assert "tpu-v6e-8-0.0.log" in told
    (row,) = [line for line in told.splitlines() if "its log, " in line]
    assert Path(row.partition("its log, ")[2].partition(", ends with:")[0]).read_text().count("first word") >= 3
    # The next job is tried anew.
    assert "3 times in a row" in str(failure_of(kinetic.run(accelerator="tpu-v6e-8")(give).run_async()))

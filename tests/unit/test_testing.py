"""kinetic_ray.testing: what counts as having come to a phase, and what a cluster does to the environment."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

import kinetic_ray as kinetic
from kinetic_ray.core.state import JobState, JobStatus, RankState, Stage
from kinetic_ray.errors import UsageError
from kinetic_ray.testing import LocalCluster, wait_for, wait_until
from kinetic_ray.testing.waiting import has_reached

QUEUED = JobState(JobStatus.PENDING, Stage.QUEUE)
RANKS = (RankState(0, phase="call"), RankState(1, phase="load"), RankState(2))
RUNNING = JobState(JobStatus.RUNNING, Stage.ENV, ranks=RANKS)
ENDED = JobState(JobStatus.FAILED, Stage.ENDED, ranks=(RankState(0, phase="call", ended=True), RankState(1)))


@pytest.mark.parametrize(
    ("state", "phase", "rank", "reached"),
    [
        (JobState(), "submitted", None, True),
        (JobState(), "queue", None, False),
        (QUEUED, "queue", None, True),
        (QUEUED, "run", None, False),
        (QUEUED, "fetch", None, False),  # no ranks yet, so not all of them
        (RUNNING, "slice", None, True),
        (RUNNING, "call", None, False),
        (RUNNING, "call", 0, True),
        (RUNNING, "load", 0, True),
        (RUNNING, "store", 0, False),
        (RUNNING, "load", 1, True),
        (RUNNING, "fetch", 2, False),
        (RUNNING, "ended", None, False),
        (RUNNING, "ended", 0, False),
        (RUNNING, "call", 7, False),
        (ENDED, "ended", None, True),
        (ENDED, "run", None, False),  # it may never have run
        (ENDED, "ended", 0, True),
        (ENDED, "ended", 1, False),
        (ENDED, "store", 0, False),  # it ended before
    ],
)
def test_what_has_come_to_a_phase(state: JobState, phase: str, rank: int | None, reached: bool) -> None:
    assert has_reached(state, phase, rank) is reached


@pytest.mark.parametrize(("phase", "rank"), [("running", None), ("run", 0), ("", None)])
def test_an_unknown_phase_is_refused_with_those_there_are(phase: str, rank: int | None) -> None:
    with pytest.raises(UsageError, match=f"no phase '{phase}': one of .*call"):
        has_reached(RUNNING, phase, rank)


def test_wait_until_gives_what_it_waited_for_or_says_what_it_saw_last() -> None:
    answers = iter(["", "", "there"])
    assert wait_until(lambda: next(answers), 20, every=0.001) == "there"
    with pytest.raises(AssertionError, match="waited 0 s for rain; last value: ''"):
        wait_until(lambda: "", 0, "rain")


def _job(kinetic_home: Path, seconds: float = 0.0) -> "kinetic.JobHandle[None]":
    backend = "kinetic_ray.testing.thread_backend:ThreadBackend"
    return kinetic.run(accelerator="cpu", backend=backend)(time.sleep).run_async(seconds)


def test_a_job_is_waited_for_also_when_it_has_gone_on(kinetic_home: Path) -> None:
    job = _job(kinetic_home)
    assert wait_for(job, "ended", timeout=30).status == JobStatus.SUCCEEDED
    assert wait_for(job, "call", timeout=0).phase == "ended"  # it was there
    assert wait_for(job, "run", rank=None, timeout=0).phase == "ended"


def test_what_will_never_come_is_not_waited_for(kinetic_home: Path) -> None:
    job = _job(kinetic_home)
    job.wait(30)
    with pytest.raises(AssertionError, match=r"to come to 'call' on rank 7, but it has ended"):
        wait_for(job, "call", rank=7, timeout=300)


def test_what_befalls_ranks_and_drivers_needs_processes(kinetic_home: Path) -> None:
    job = _job(kinetic_home)
    job.wait(30)
    cluster = LocalCluster(kinetic_home)
    with pytest.raises(UsageError, match=r"no driver of job-.* runs now \(ended\)"):
        cluster.kill_driver(job)
    for befall in (
        lambda: cluster.delay_host("tpu-v6e-16-0.0", 1.0),
        lambda: cluster.kill_host("tpu-v6e-16-0.0"),
        lambda: cluster.preempt("tpu-v6e-16-0"),
        lambda: cluster.start_slices("tpu-v6e-16"),
        cluster.status,
    ):
        with pytest.raises(UsageError, match=f"the cluster of {kinetic_home} doesn't run: start"):
            befall()


def test_calls_go_to_the_active_cluster_and_then_to_where_they_went(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = {"KINETIC_HOME": "/theirs", "KINETIC_STORE": "/their/store", "KINETIC_BACKEND": "other:Other"}
    for name, value in theirs.items():
        monkeypatch.setenv(name, value)
    before = dict(os.environ)
    with LocalCluster(tmp_path, {"tpu-v6e-16": 2}).active(), LocalCluster(tmp_path / "inner").active():
        assert os.environ["KINETIC_HOME"] == str(tmp_path / "inner")
        assert not {"KINETIC_LOCAL_SLICES", "KINETIC_STORE", "KINETIC_BACKEND"} & os.environ.keys()
    with LocalCluster(tmp_path, {"tpu-v6e-16": 2}).active():
        assert json.loads(os.environ["KINETIC_LOCAL_SLICES"]) == {"tpu-v6e-16": 2}
    assert dict(os.environ) == before


def test_only_the_fixtures_need_pytest() -> None:
    code = "import sys, kinetic_ray.testing; sys.exit('pytest' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0

"""Two clusters of one user share a store: what one has taken over, the other leaves alone."""

import threading
from pathlib import Path

import pytest

import kinetic_ray as kinetic
from tests.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(600)]


@kinetic.remote(accelerator="cpu", runtime="plain")
def count(place: str, gate: str) -> int:
    with Path(place).open("a") as runs:
        runs.write("x")
    while not Path(gate).exists():
        threading.Event().wait(0.05)
    return len(Path(place).read_text())


@pytest.fixture
def places(test_homes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, str]:
    monkeypatch.setenv("KINETIC_STORE", str(tmp_path / "store"))
    return str(tmp_path / "runs"), str(tmp_path / "gate")


def test_a_job_of_another_cluster_is_neither_lost_nor_started_again(
    own_cluster: Path, second_home: Path, places: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = count.run_async(*places).job_id
    monkeypatch.setenv("KINETIC_HOME", str(second_home))
    job = kinetic.attach(job_id)  # from the first look on: before it has a driver, and while it runs
    with pytest.raises(TimeoutError):
        job.result(timeout=0.5)
    wait_until(lambda: job.status() == "RUNNING" and Path(places[0]).exists(), 240, "the job to run")
    with pytest.raises(TimeoutError):
        job.result(timeout=0.5)
    assert count.options(name="of the second").run(str(Path(places[0]).with_name("other")), __file__) == 1
    with pytest.raises(TimeoutError):  # now the second cluster runs, and has never heard of the job
        job.result(timeout=0.5)
    Path(places[1]).touch()
    assert job.result(timeout=240) == 1


def test_a_job_of_another_cluster_can_be_cancelled(
    own_cluster: Path, second_home: Path, places: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = count.run_async(*places).job_id
    monkeypatch.setenv("KINETIC_HOME", str(second_home))
    job = kinetic.attach(job_id)
    wait_until(lambda: job.status() == "RUNNING", 240, "the job to run")
    job.cancel()
    assert (job.status(), job.phase().message) == ("STOPPED", "cancelled")  # by its driver, not for want of one

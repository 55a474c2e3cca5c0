"""The driver on a real embedded cluster: one slice of four hosts with four simulated chips each, and CPUs."""

import os
import pickle
import re
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from kinetic_ray.core.state import EventKind, JobState, Stage
from tests.integration.driver import programs
from tests.integration.driver.clusters import DEADLINE, V6E, Cluster, Job, alive, pids_of, wait_until_dead
from tests.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]


def assert_nothing_is_held(cluster: Cluster) -> None:
    """Placement groups go a moment after a job's end; then no other job holds anything."""
    nothing = {"groups": [], "leases": []}
    wait_until(lambda: cluster.submit(programs.held_in_ray).value() == nothing, DEADLINE, "all to be given back")


def kinds(job: Job) -> list[EventKind]:
    return [event.kind for log in job.journal.epochs() for event in log.events]


# What goes well.


def test_a_cpu_job_yields_its_value_and_leaves_nothing(cluster: Cluster) -> None:
    job = cluster.submit(programs.give, {"answer": 42})
    assert job.value() == {"answer": 42}
    order = [kind for kind in kinds(job) if kind not in (EventKind.RANK_PHASE, EventKind.QUEUED)]
    assert order == [
        EventKind.DRIVER_STARTED,
        EventKind.GRANTED,
        EventKind.PLACED,
        EventKind.ATTEMPT_STARTED,
        EventKind.RANK_ENDED,
        EventKind.ENDED,
    ]
    wait_until(lambda: job.index() == ["SUCCEEDED"], DEADLINE, "the index to tell of the end")
    assert job.journal.heartbeat(1) >= 1


def test_variables_reach_the_rank_and_are_gone_from_the_store(cluster: Cluster) -> None:
    job = cluster.submit(programs.variable, "COLOUR", env={"COLOUR": "teal"})
    assert job.value() == "teal"
    wait_until(lambda: job.journal.store.list(job.journal.keys.env_folder) == [], DEADLINE, "the env object to go")


def test_a_gang_of_cpu_hosts_has_a_rank_each(cluster: Cluster) -> None:
    job = cluster.submit(programs.rank, hosts=2, gather="all")
    assert [job.value(rank) for rank in range(2)] == [0, 1]


def test_a_slice_runs_one_program_over_all_its_devices(cluster: Cluster) -> None:
    job = cluster.submit(programs.all_reduce, **cluster.slice())
    assert job.value() == (16, [0, 1, 2, 3])
    state = job.wait()
    assert [(r.rank, r.worker_id, r.slice_name, r.ok) for r in state.ranks] == [
        (n, n, f"{V6E}-0", True) for n in range(4)
    ]
    assert len({r.node_id for r in state.ranks}) == 4
    values = [job.journal.store.exists(job.journal.keys.value(1, 1, rank)) for rank in range(4)]
    assert values == [True, False, False, False], "only what somebody gets is stored"


def test_reports_count_once_all_ranks_have_made_them(cluster: Cluster) -> None:
    job = cluster.submit(programs.report_steps, 30, None, hosts=2)
    state = job.wait()
    assert state.status == "SUCCEEDED"
    assert state.progress is not None
    assert (state.progress.step, state.progress.total, state.progress.metrics) == (30, 30, {"loss": 1.0 / 30})
    assert [event.fields["step"] for event in job.events(EventKind.PROGRESSED)] == list(range(1, 31))


def test_a_rank_that_never_reports_is_named_at_the_end(cluster: Cluster) -> None:
    state = cluster.submit(programs.report_steps, 3, 1, hosts=2).wait()
    assert state.status == "SUCCEEDED"
    assert state.progress is None
    (warning,) = state.warnings
    assert warning.startswith("rank 1 has reported nothing while others reported step 3")


# What fails.


def failed(state: JobState) -> tuple[str, str, int | None]:
    assert state.status == "FAILED", state
    return state.reason, state.message.splitlines()[0], state.failed_rank


def assert_no_value(job: Job) -> None:
    state = job.wait()
    outcomes = [job.journal.outcome(state.epoch, state.attempt, rank) for rank in range(len(state.ranks))]
    assert not any(outcome is not None and outcome.ok for outcome in outcomes)


def test_the_failing_rank_is_named_and_no_value_is_given(cluster: Cluster) -> None:
    job = cluster.submit(programs.fail_on, 2, **cluster.slice())
    line = f"rank 2 (host 2 of {V6E}-0): ValueError: bad batch on rank 2"
    assert failed(job.wait()) == ("UserError", line, 2)
    assert_no_value(job)
    outcome = job.journal.outcome(1, 1, 2)
    assert outcome is not None
    assert outcome.error is not None
    error = pickle.loads(job.journal.store.get(job.journal.keys.error(1, 1, 2)))
    assert (type(error), str(error)) == (ValueError, "bad batch on rank 2")


def test_a_rank_that_ends_its_process_is_the_cause_not_its_peers(cluster: Cluster) -> None:
    job = cluster.submit(programs.leave_on, 1, 3, **cluster.slice())
    reason, line, rank = failed(job.wait())
    assert (reason, rank) == ("ProcessDied", 1)
    assert line.startswith(f"rank 1 (host 1 of {V6E}-0): the process exited with code 3")
    assert_no_value(job)


def test_a_killed_rank_is_the_cause_and_takes_all_others_along(cluster: Cluster, tmp_path: Path) -> None:
    job = cluster.submit(programs.train_and_stay, str(tmp_path), **cluster.slice())
    pids = pids_of(tmp_path, 4)
    os.kill(pids[2 * 3], signal.SIGKILL)
    reason, line, rank = failed(job.wait())
    assert (reason, rank) == ("ProcessDied", 3)
    assert "was killed by SIGKILL" in line
    wait_until_dead(pids)


def test_a_killed_agent_takes_its_rank_along_and_is_no_lost_host(cluster: Cluster, tmp_path: Path) -> None:
    job = cluster.submit(programs.stay, str(tmp_path))
    pids = pids_of(tmp_path, 1)
    assert job.index() == ["RUNNING"]
    os.kill(cluster.agent_pid(job), signal.SIGKILL)
    assert failed(job.wait()) == ("ProcessDied", "rank 0 (host 0): its host agent is gone: it died", 0)
    wait_until_dead(pids)


def test_a_phase_before_the_call_is_named(cluster: Cluster) -> None:
    job = cluster.submit(programs.give, payload=cluster.store.put_blob(b"no pickle"))
    reason, line, rank = failed(job.wait())
    assert (reason, rank) == ("SetupError", 0)
    assert line.startswith("rank 0 (host 0) in phase load: ")


def test_variables_that_break_the_runtime_fail_the_setup(cluster: Cluster) -> None:
    job = cluster.submit(programs.give, 1, runtime="jax", env={"PYTHONHOME": "/nowhere"})
    reason, line, _ = failed(state := job.wait())
    assert reason == "SetupError", state
    assert line.startswith("the hosts could not be made ready: this host can't prepare the runtime 'jax'")
    log = job.journal.store.get(job.journal.keys.log(1, 1, 0)).decode()
    assert re.search("encodings|Fatal Python", state.message)
    assert re.search("encodings|Fatal Python", log)
    assert log.splitlines()[-1].startswith("kinetic: this host can't prepare the runtime 'jax'")


def test_the_deadline_stops_all_ranks(cluster: Cluster, tmp_path: Path) -> None:
    job = cluster.submit(programs.stay, str(tmp_path), hosts=2, timeout=5)
    reason, line, rank = failed(job.wait())
    assert (reason, rank) == ("DeadlineExceeded", 0)
    assert line.startswith("timeout=5 s ran out: ranks 0-1 were still running")
    wait_until_dead(pids_of(tmp_path, 2))


def test_the_deadline_names_the_rank_that_had_not_returned(cluster: Cluster, tmp_path: Path) -> None:
    job = cluster.submit(programs.stay_on, 1, str(tmp_path), hosts=2, timeout=10)
    reason, line, rank = failed(job.wait())
    assert (reason, rank) == ("DeadlineExceeded", 1)
    assert line.startswith("timeout=10 s ran out: rank 1 was still running; rank 0 had returned")


def test_what_never_fits_is_refused_with_the_numbers(cluster: Cluster) -> None:
    reason, line, _ = failed(cluster.submit(programs.give, 1, cpus=500.0).wait())
    assert reason == "Unschedulable"
    assert line.startswith("1 x 500 CPUs needs 500 CPUs, the cluster has ")
    reason, line, _ = failed(cluster.submit(programs.give, 1, **cluster.slice(num_slices=3)).wait())
    assert reason == "Unschedulable"
    assert V6E in line


# The queue.


def test_two_jobs_for_one_slice_run_one_after_the_other(cluster: Cluster, tmp_path: Path) -> None:
    first = cluster.submit(programs.wait_for, str(tmp_path / "go"), **cluster.slice())
    first.wait_until_it_calls()
    second = cluster.submit(programs.rank, **cluster.slice())
    queued = second.wait_until(lambda state: state.stage is Stage.QUEUE and bool(state.message), "a reason")
    assert f"waiting for 1 {V6E} slice; first in the queue; held by {first.job_id}" in queued.message
    assert cluster.submit(programs.give, "small jobs pass").value() == "small jobs pass"
    assert second.journal.state().stage is Stage.QUEUE
    (tmp_path / "go").touch()
    assert (first.value(), second.value()) == (0, 0)
    (end,), (grant,) = first.events(EventKind.ENDED), second.events(EventKind.GRANTED)
    assert grant.at >= end.at


def test_a_job_does_not_queue_longer_than_it_wants(cluster: Cluster, tmp_path: Path) -> None:
    first = cluster.submit(programs.stay, str(tmp_path), **cluster.slice())
    first.wait_until_it_calls()
    # Shorter than any answer takes: the reason is told in any case.
    reason, line, _ = failed(cluster.submit(programs.rank, **cluster.slice(capacity_timeout=0.01)).wait())
    assert reason == "Unschedulable"
    assert line.startswith("no room within capacity_timeout=0.01 s: waiting for 1 tpu-v6e-16 slice")
    assert first.job_id in line
    first.cancel()
    first.wait()


def test_cancel_in_the_queue(cluster: Cluster, tmp_path: Path) -> None:
    first = cluster.submit(programs.wait_for, str(tmp_path / "go"), **cluster.slice())
    first.wait_until_it_calls()
    second = cluster.submit(programs.rank, **cluster.slice())
    second.wait_until(lambda state: state.stage is Stage.QUEUE and bool(state.message), "its place in the queue")
    second.cancel()
    state = second.wait()
    assert (state.status, state.reason) == ("STOPPED", "Cancelled")
    (tmp_path / "go").touch()
    assert first.value() == 0


@pytest.mark.parametrize("program", [programs.stay, programs.stay_stubbornly])
def test_cancel_while_it_runs_ends_every_process(
    program: Callable[[str], None], cluster: Cluster, tmp_path: Path
) -> None:
    job = cluster.submit(program, str(tmp_path), hosts=2)
    pids = pids_of(tmp_path, 2)
    job.cancel()
    job.cancel()  # is harmless twice
    state = job.wait()
    assert (state.status, state.reason, state.message) == ("STOPPED", "Cancelled", "cancelled")
    assert not any(map(alive, pids)), "a rank outlived the record of its end"
    wait_until(lambda: job.index() == ["STOPPED"], DEADLINE, "the index to tell of the end")


# The driver's own troubles.


def test_a_killed_driver_leaves_no_rank_and_frees_the_slice(cluster: Cluster, tmp_path: Path) -> None:
    job = cluster.submit(programs.stay, str(tmp_path), **cluster.slice())
    pids = pids_of(tmp_path, 4)
    os.kill(job.driver_pid(), signal.SIGKILL)
    wait_until_dead(pids)
    reason, _, _ = failed(job.wait())
    assert reason == "DriverLost"
    assert cluster.submit(programs.all_reduce, **cluster.slice()).value() == (16, [0, 1, 2, 3])


def test_a_terminated_driver_stops_its_ranks_and_writes_no_end(cluster: Cluster, tmp_path: Path) -> None:
    job = cluster.submit(programs.stay, str(tmp_path))
    pids = pids_of(tmp_path, 1)
    os.kill(job.driver_pid(), signal.SIGTERM)
    wait_until_dead(pids)
    assert failed(job.wait())[0] == "DriverLost"
    assert job.events(EventKind.ENDED, epoch=1) == []


def test_a_terminated_driver_of_a_cancelled_job_says_so(cluster: Cluster, tmp_path: Path) -> None:
    job = cluster.submit(programs.stay, str(tmp_path))
    pids = pids_of(tmp_path, 1)
    job.journal.request_cancel({"by": "the test"})
    os.kill(job.driver_pid(), signal.SIGTERM)
    state = job.wait()
    assert (state.status, state.reason, state.epoch) == ("STOPPED", "Cancelled", 1)
    assert not any(map(alive, pids))


def test_a_newer_driver_fences_the_older(cluster: Cluster, tmp_path: Path) -> None:
    job = cluster.submit(programs.wait_for, str(tmp_path / "go"), **cluster.slice())
    job.wait_until_it_calls()
    old = job.driver_pid()
    with cluster.drive(cluster.store.url, job.job_id) as newer:
        wait_until(lambda: not alive(old), DEADLINE, "the older driver to leave")
        job.wait_until(lambda state: state.epoch == 2 and state.stage is Stage.RUN, "the newer driver's run")
        (tmp_path / "go").touch()
        assert job.value() == 0
        said, _ = newer.communicate(timeout=DEADLINE)
    assert newer.returncode == 0, said
    assert job.wait().epoch == 2
    assert job.events(EventKind.ENDED, epoch=1) == []


def test_a_lost_host_is_named_with_its_slice(cluster: Cluster, tmp_path: Path) -> None:
    job = cluster.submit(programs.stay, str(tmp_path), **cluster.slice())
    pids = pids_of(tmp_path, 4)
    os.kill(cluster.hosts()[3]["pid"], signal.SIGKILL)
    assert failed(job.wait()) == ("NodeLost", f"rank 3 (host 3 of {V6E}-0): its host is gone", 3)
    wait_until_dead(pids)
    assert cluster.submit(programs.all_reduce, **cluster.slice()).value() == (16, [0, 1, 2, 3])


def test_nothing_is_held_after_all_that(cluster: Cluster) -> None:
    assert_nothing_is_held(cluster)


# The entrypoint.


@pytest.fixture(scope="module")
def ended(cluster: Cluster) -> tuple[Job, Job]:
    """A job that succeeded and one that failed."""
    well, ill = cluster.submit(programs.give, 1), cluster.submit(programs.give, 1, cpus=500.0)
    well.wait()
    ill.wait()
    return well, ill


@pytest.mark.parametrize(("which", "code"), [(0, 0), (1, 1)])
def test_a_driver_of_an_ended_job_leaves_it_alone(
    cluster: Cluster, ended: tuple[Job, Job], which: int, code: int
) -> None:
    job = ended[which]
    before = kinds(job)
    with cluster.drive(cluster.store.url, job.job_id) as again:
        said, _ = again.communicate(timeout=DEADLINE)
    assert again.returncode == code, said
    assert kinds(job) == before


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        ((), "usage: python -m kinetic_ray.runner"),
        (("{store}", "job-0000000000e008000000000000"), "no job job-0000000000e008000000000000 in the store"),
        (("{store}", "../x"), "is not a kinetic id"),
        (("/nowhere/at/all", "job-0000000000e008000000000000"), "/nowhere/at/all"),
    ],
)
def test_bad_arguments_are_refused_in_a_sentence(cluster: Cluster, argv: tuple[str, ...], words: str) -> None:
    with cluster.drive(*(word.replace("{store}", cluster.store.url) for word in argv)) as driver:
        said, _ = driver.communicate(timeout=DEADLINE)
    assert driver.returncode == 64, said
    assert words in said
    assert "Traceback" not in said

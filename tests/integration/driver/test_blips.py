"""The store goes away while a job runs, and comes back: the job never notices. What nobody pushes is heard as well."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kinetic_ray.backends.local.paths import runtime_of
from kinetic_ray.core.state import EventKind
from tests.integration.driver import programs
from tests.integration.driver.clusters import DEADLINE, Cluster, Job, alive, pids_of
from tests.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]


@contextmanager
def store_away(cluster: Cluster) -> Iterator[None]:
    """Within this block the store's folder is elsewhere, as with a mount that was lost."""
    folder, elsewhere = cluster.home / "store", cluster.home / "elsewhere"
    folder.rename(elsewhere)
    try:
        yield
    finally:
        elsewhere.rename(folder)


def wait_until_missed(cluster: Cluster, job: Job) -> None:
    """Until the driver has said that it misses the store."""
    logs = runtime_of(cluster.home).ray

    def missed() -> bool:
        return any("the store is away" in log.read_text() for log in logs.rglob(f"job-driver-{job.job_id}.log"))

    wait_until(missed, DEADLINE, "the driver to miss the store")


def test_a_job_whose_store_is_away_for_a_while_yields_its_value(cluster: Cluster, tmp_path: Path) -> None:
    job = cluster.submit(programs.wait_for, str(tmp_path / "go"), hosts=2, gather="all")
    job.wait_until_it_calls()
    with store_away(cluster):
        (tmp_path / "go").touch()  # the ranks end, store their values and publish their outcomes meanwhile
        wait_until_missed(cluster, job)
    assert [job.value(rank) for rank in range(2)] == [0, 1]
    assert len(job.events(EventKind.RANK_ENDED)) == 2
    assert job.journal.newest_claim() == 1
    wait_until(lambda: job.index() == ["SUCCEEDED"], DEADLINE, "the index to tell of the end")


def test_a_failure_is_told_as_it_was_though_the_store_was_away(cluster: Cluster, tmp_path: Path) -> None:
    job = cluster.submit(programs.fail_once_there, str(tmp_path / "go"))
    job.wait_until_it_calls()
    with store_away(cluster):
        (tmp_path / "go").touch()
        wait_until_missed(cluster, job)
    state = job.wait()
    assert (state.status, state.reason, state.message) == ("FAILED", "UserError", "rank 0 (host 0): KeyError: 'there'")


def test_a_cancel_record_alone_stops_a_job(cluster: Cluster, tmp_path: Path) -> None:
    job = cluster.submit(programs.stay, str(tmp_path))
    pids = pids_of(tmp_path, 1)
    job.journal.request_cancel({"by": "a client that died just then"})
    state = job.wait()
    assert (state.status, state.reason, state.epoch) == ("STOPPED", "Cancelled", 1)
    assert not any(map(alive, pids))


def test_a_job_that_is_cleaned_up_while_it_runs_is_gone_for_good(cluster: Cluster, tmp_path: Path) -> None:
    job = cluster.submit(programs.stay, str(tmp_path))
    pids = pids_of(tmp_path, 1)
    job.journal.erase()
    wait_until(lambda: not any(map(alive, pids)), DEADLINE, "the end of its rank")
    wait_until(lambda: job.job_id not in cluster.backend.list(), DEADLINE, "the end of its driver")
    assert [key for key in cluster.store.walk("") if job.job_id in key] == []


@pytest.mark.parametrize("how", ["a value", "a cancel"])
def test_a_clean_up_right_after_the_end_is_for_good(cluster: Cluster, tmp_path: Path, how: str) -> None:
    """While the driver still leaves, and the supervisor is about to see that it has."""
    log = runtime_of(cluster.home).log
    before = len(log.read_text())  # of the tests before this one, which share the cluster
    for number in range(2):
        if how == "a value":
            job = cluster.submit(programs.give, number)
            assert job.value() == number
        else:
            job = cluster.submit(programs.wait_for, str(tmp_path / "never"))
            job.wait_until_it_calls()
            job.cancel()
            assert job.wait().status == "STOPPED"
        job.journal.erase()
        wait_until(lambda gone=job: gone.job_id not in cluster.backend.list(), DEADLINE, "the supervisor to be done")
        assert [key for key in cluster.store.walk("") if job.job_id in key] == []
        assert "Traceback" not in log.read_text()[before:]

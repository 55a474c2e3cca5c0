"""Slices and CPUs that are granted by the real broker, also by one that has died in between."""

import json
import os
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kinetic_ray.backends.base import Need
from kinetic_ray.backends.local import backend as local
from kinetic_ray.backends.local.need import usable_cpus
from kinetic_ray.core.state import EventKind, Stage
from kinetic_ray.errors import UsageError
from kinetic_ray.runner.broker import NAME as BROKER
from kinetic_ray.store import open_store
from tests.integration.driver.clusters import DEADLINE, Cluster, Job, alive
from tests.integration.local import lease_programs as programs
from tests.integration.local.clusters import ask_ray
from tests.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(300)]

ONE, THREE = "tpu-v6e-4", "tpu-v5e-4"  # of one kind there is one slice, of the other there are three; one host each


@pytest.fixture(scope="module")
def pooled(test_homes: Path) -> Iterator[Cluster]:
    with pytest.MonkeyPatch.context() as patch:
        home = Path(tempfile.mkdtemp(prefix="krt", dir=test_homes))
        patch.setenv("KINETIC_HOME", str(home))
        patch.setenv("KINETIC_LOCAL_SLICES", json.dumps({ONE: 1, THREE: 3}))
        local.start(home)
        try:
            yield Cluster(home, open_store(home / "store"))
        finally:
            local.stop(home, force=True)


def books(cluster: Cluster) -> dict[str, Any]:
    """The broker's."""
    return dict(ask_ray(cluster.home, "ray.get(ray.get_actor('kinetic-broker').snapshot.remote(), timeout=60)"))


def books_when(cluster: Cluster, predicate: Callable[[dict[str, Any]], bool], what: str) -> dict[str, Any]:
    def look() -> dict[str, Any] | None:
        told = books(cluster)
        return told if predicate(told) else None

    return wait_until(look, DEADLINE, what) or {}


def broker_pid(cluster: Cluster, other_than: int = 0) -> int:
    """The living broker's process, by Ray's own word: its title is that of whatever it does just now."""
    found = "[[one['Pid'], one['Name'], one['State']] for one in ray._private.state.actors().values()]"

    def look() -> int:
        pids = [pid for pid, name, state in ask_ray(cluster.home, found) if (name, state) == (BROKER, "ALIVE")]
        return pids[0] if pids and pids[0] != other_than and alive(pids[0]) else 0

    return wait_until(look, DEADLINE, "a broker")


def wait_until_it_queues(job: Job, behind: Job) -> None:
    job.wait_until(
        lambda state: state.stage is Stage.QUEUE and behind.job_id in state.message, "its place in the queue"
    )


def when(job: Job, kind: EventKind) -> float:
    (event,) = job.events(kind)
    return event.at


def test_a_killed_broker_forgets_neither_who_holds_nor_who_waits(pooled: Cluster, tmp_path: Path) -> None:
    go = tmp_path / "go"
    first = pooled.submit(programs.wait_for, str(go), accelerator=ONE)
    first.wait_until_it_calls()
    second = pooled.submit(programs.slice_name, accelerator=ONE)
    wait_until_it_queues(second, first)
    urgent = pooled.submit(programs.slice_name, accelerator=ONE, priority=5)
    wait_until_it_queues(urgent, first)
    before = broker_pid(pooled)
    os.kill(before, signal.SIGKILL)
    assert broker_pid(pooled, other_than=before) != before

    told = books_when(pooled, lambda now: len(now["queue"]) == 2, "all to ask again")
    assert [(lease["holder"], lease["slices"]) for lease in told["leases"]] == [(first.job_id, [f"{ONE}-0"])]
    assert [waits["holder"] for waits in told["queue"]] == [urgent.job_id, second.job_id]
    assert "held by " + first.job_id in told["queue"][0]["reason"]

    go.touch()
    assert {first.value(), urgent.value(), second.value()} == {f"{ONE}-0"}
    for earlier, later in ((first, urgent), (urgent, second)):
        assert when(later, EventKind.GRANTED) >= when(earlier, EventKind.ENDED)


def test_two_that_want_two_slices_of_three_run_one_after_the_other(pooled: Cluster, tmp_path: Path) -> None:
    go = tmp_path / "go"
    both = [pooled.submit(programs.wait_for, str(go), accelerator=THREE, num_slices=2, gather="all") for _ in range(2)]
    told = books_when(pooled, lambda now: len(now["leases"]) == len(now["queue"]) == 1, "a grant")
    assert len(told["leases"][0]["slices"]) == 2, "one holds both of its slices, the other none"
    go.touch()
    for job in both:
        assert len({job.value(rank) for rank in range(2)}) == 2
    books_when(pooled, lambda now: not now["leases"], "all to be given back")


def test_a_call_inside_a_job_that_holds_all_cpus_is_placed_at_once(pooled: Cluster) -> None:
    found = pooled.submit(programs.place_nested_call, cpus=float(usable_cpus())).value()
    assert found == {"answer": {"state": "granted", "slices": []}, "slices": ["", ""]}


def test_what_can_never_fit_is_refused_before_it_is_submitted(pooled: Cluster) -> None:
    with pytest.raises(UsageError, match=f"4 x {THREE} never fit: .*3 x {THREE}"):
        pooled.backend.check(Need(accelerator=THREE, num_slices=4))

"""A broker that was restarted, and leases whose holders have gone without a word: what the cluster's table tells."""

import asyncio
import threading
from collections.abc import Callable, Sequence

import pytest

from kinetic_ray.runner.broker import SliceBroker, Times
from kinetic_ray.runner.leases import Holdings
from kinetic_ray.runner.queue import Lease, Slice, Ticket
from tests.unit.brokers import PATIENCE, FixedPool, cpu, granted, names, run, tpu, until
from tests.waiting import wait_until

QUICK = Times(settle=0.05, look=0.02, gone=0.1, unplaced=3600.0, tell=0.01)


class Cluster:
    """The table of groups; each look is counted, and may be told something else."""

    def __init__(self, *held: Lease) -> None:
        self.held = list(held)
        self.looks = 0
        self.then: list[Sequence[Lease]] = []
        self.broken = 0
        self.ended: set[tuple[str, int]] = set()

    def __call__(self) -> Holdings:
        self.looks += 1
        if self.broken:
            self.broken -= 1
            raise RuntimeError("the GCS does not answer")
        seen = Holdings(tuple(self.held), frozenset(self.ended))
        if self.then:
            self.held = list(self.then.pop(0))
        return seen

    def end(self, job_id: str) -> None:
        self.held = [lease for lease in self.held if lease.ticket.job_id != job_id]

    async def looked(self, times: int) -> None:
        before = self.looks
        await asyncio.to_thread(wait_until, lambda: self.looks >= before + times, PATIENCE, "looks at the table")


def holding(pool: FixedPool, job_id: str, *slices: int, epoch: int = 1, wants: int = 0, yields: bool = False) -> Lease:
    ticket = Ticket(job_id, epoch, "tpu-v6e-16", chips_per_host=4, slices=wants or len(slices), yields=yields)
    return Lease(ticket, tuple(pool.slice(number) for number in slices))


def test_what_was_granted_before_is_not_granted_twice() -> None:
    pool = FixedPool(2)
    cluster = Cluster(holding(pool, "job-a", 0))

    async def scenario(broker: SliceBroker) -> None:
        assert names(await until(lambda: broker.acquire(tpu("job-b")), "granted")) == ["v6e-1"]
        waiting = asyncio.create_task(until(lambda: broker.acquire(tpu("job-c")), "granted"))
        assert (await broker.holds())["job-a"] == ["v6e-0"]
        await cluster.looked(2)
        assert not waiting.done()
        await broker.release("job-a", 1)
        assert names(await waiting) == ["v6e-0"]

    run(pool, scenario, cluster, QUICK, restarted=True)


def test_one_that_was_just_granted_has_time_to_place_itself() -> None:
    """The first look finds nothing: the group of the last grant was on its way."""
    pool = FixedPool(1)
    cluster = Cluster()
    cluster.then = [[holding(pool, "job-a", 0)]]

    async def scenario(broker: SliceBroker) -> None:
        told = await broker.acquire(tpu("job-b"), "", 0.3)
        assert "held by job-a" in told["reason"]

    run(pool, scenario, cluster, QUICK, restarted=True)


def test_a_fresh_broker_grants_without_a_second_look() -> None:
    pool, cluster = FixedPool(1), Cluster()

    async def scenario(broker: SliceBroker) -> None:
        assert names(await granted(broker, tpu("job-a"))) == ["v6e-0"]

    run(pool, scenario, cluster, Times(settle=3600.0))


def test_one_made_anew_beside_leases_of_another_is_as_good_as_restarted() -> None:
    pool = FixedPool(1)
    cluster = Cluster(holding(pool, "job-a", 0))

    async def scenario(broker: SliceBroker) -> None:
        assert "held by job-a" in (await broker.acquire(tpu("job-b"), "", 0.3))["reason"]
        assert cluster.looks >= 2

    run(pool, scenario, cluster, QUICK)


def test_those_that_wait_are_served_by_age_however_they_come_back() -> None:
    pool = FixedPool(1)
    cluster = Cluster(holding(pool, "job-0", 0))

    async def scenario(broker: SliceBroker) -> None:
        asked = [broker.acquire(tpu(name), "", 0.3) for name in ("job-3", "job-1", "call-2")]
        told = [answer["reason"] for answer in await asyncio.gather(*asked)]
        assert "position 3" in told[0]
        assert "first in the queue" in told[1]
        assert "position 2" in told[2]

    run(pool, scenario, cluster, QUICK, restarted=True)


def test_a_holder_that_asks_again_is_told_what_it_holds() -> None:
    pool = FixedPool(2)
    cluster = Cluster(holding(pool, "job-a", 1))

    async def scenario(broker: SliceBroker) -> None:
        answer = await granted(broker, tpu("job-a", epoch=2))
        assert names(answer) == ["v6e-1"]
        assert answer["slices"][0]["nodes"] == [f"node-1.0.{i}" for i in range(4)]
        assert await broker.acquire(tpu("job-a", epoch=1)) == {"state": "fenced"}

    run(pool, scenario, cluster, QUICK, restarted=True)


@pytest.mark.parametrize(
    "rest",
    [
        pytest.param(lambda pool: holding(pool, "job-a", 2, wants=2), id="one slice of two"),
        pytest.param(
            lambda pool: Lease(holding(pool, "job-a", 1, 2).ticket, (pool.slice(1), Slice("v6e-2", ()))), id="no nodes"
        ),
    ],
)
def test_a_rest_of_a_lease_is_held_until_its_holder_asks_anew(rest: Callable[[FixedPool], Lease]) -> None:
    pool = FixedPool(3)
    cluster = Cluster(rest(pool))

    async def scenario(broker: SliceBroker) -> None:
        assert "v6e-2" in (await broker.holds())["job-a"]
        answer = await until(lambda: broker.acquire(tpu("job-a", 2, epoch=2)), "granted")
        assert len(names(answer)) == 2
        assert all(len(one["nodes"]) == 4 for one in answer["slices"])

    run(pool, scenario, cluster, QUICK, restarted=True)


def test_cpus_that_are_held_stay_held() -> None:
    pool = FixedPool(1)
    cluster = Cluster(Lease(Ticket("job-a", 1, "cpu", hosts=2, cpus=1.0)))

    async def scenario(broker: SliceBroker) -> None:
        told = await broker.acquire(cpu("job-b"), "", 0.3)
        assert "0 of 2 CPUs free; held by job-a" in told["reason"]

    run(pool, scenario, cluster, QUICK, restarted=True)


def test_yielding_leases_are_still_wanted_after_a_restart() -> None:
    pool = FixedPool(1)
    cluster = Cluster(holding(pool, "call-g", 0, yields=True))

    async def scenario(broker: SliceBroker) -> None:
        asked = asyncio.create_task(broker.wanted(PATIENCE))
        await broker.acquire(tpu("job-a"), "", 0.3)
        assert await asked == ["call-g"]

    run(pool, scenario, cluster, QUICK, restarted=True)


def test_a_driver_that_goes_while_the_broker_looks_is_not_taken_for_a_holder() -> None:
    pool = FixedPool(1)
    cluster = Cluster(holding(pool, "job-a", 0))
    pool.events.put({"event": "driver_gone", "job_id": "job-a"})

    async def scenario(broker: SliceBroker) -> None:
        assert names(await until(lambda: broker.acquire(tpu("job-b")), "granted")) == ["v6e-0"]

    run(pool, scenario, cluster, Times(settle=0.05, gone=3600.0), restarted=True)


def test_nothing_is_granted_while_the_cluster_does_not_tell() -> None:
    pool = FixedPool(1)
    cluster = Cluster(holding(pool, "job-a", 0))
    cluster.broken = 1

    async def scenario(broker: SliceBroker) -> None:
        assert "held by job-a" in (await broker.acquire(tpu("job-b"), "", 0.3))["reason"]

    run(pool, scenario, cluster, QUICK)


def test_a_beginning_that_failed_is_made_again() -> None:
    pool = FixedPool(1)
    cluster = Cluster(holding(pool, "job-a", 0))
    answers = iter([RuntimeError("the GCS does not answer")])

    def capacity() -> tuple[float, int]:
        if error := next(answers, None):
            raise error
        return 2.0, 1 << 30

    async def scenario(broker: SliceBroker) -> None:
        with pytest.raises(RuntimeError, match="the GCS does not answer"):
            await broker.acquire(cpu("job-b"))
        assert names(await granted(broker, cpu("job-b"))) == []
        assert await broker.holds() == {"job-a": ["v6e-0"], "job-b": []}

    run(pool, scenario, cluster, QUICK, capacity=capacity)


# Leases that nobody holds any more.


def test_a_lease_whose_groups_are_gone_is_dropped_without_any_event() -> None:
    pool = FixedPool(1)
    cluster = Cluster(holding(pool, "job-a", 0))

    async def scenario(broker: SliceBroker) -> None:
        waiting = asyncio.create_task(until(lambda: broker.acquire(tpu("job-b"), "", 5.0), "granted"))
        await cluster.looked(5)
        assert not waiting.done(), "job-a has its group"
        cluster.end("job-a")
        assert names(await waiting) == ["v6e-0"]

    run(pool, scenario, cluster, QUICK, restarted=True)


def test_a_group_that_is_made_anew_keeps_its_lease() -> None:
    pool = FixedPool(1)
    cluster = Cluster(holding(pool, "job-a", 0))

    async def scenario(broker: SliceBroker) -> None:
        waiting = asyncio.create_task(until(lambda: broker.acquire(tpu("job-b"), "", 5.0), "granted"))
        await cluster.looked(3)
        cluster.end("job-a")
        await cluster.looked(2)
        cluster.held.append(holding(pool, "job-a", 0))
        await cluster.looked(5)
        assert not waiting.done()
        waiting.cancel()

    run(pool, scenario, cluster, Times(settle=0.05, look=0.02, gone=PATIENCE), restarted=True)


def test_a_holder_that_is_slow_to_place_itself_keeps_its_lease() -> None:
    pool, cluster = FixedPool(1), Cluster()

    async def scenario(broker: SliceBroker) -> None:
        await granted(broker, tpu("job-a"))
        waiting = asyncio.create_task(until(lambda: broker.acquire(tpu("job-b"), "", 5.0), "granted"))
        await cluster.looked(20)
        assert not waiting.done()
        waiting.cancel()

    run(pool, scenario, cluster, QUICK)


def test_one_that_had_placed_itself_and_died_while_nobody_waited_is_found_out_at_once() -> None:
    pool, cluster = FixedPool(1), Cluster()

    async def scenario(broker: SliceBroker) -> None:
        await granted(broker, tpu("job-a"))
        cluster.ended = {("job-a", 1)}
        assert names(await until(lambda: broker.acquire(tpu("job-b"), "", 5.0), "granted")) == ["v6e-0"]

    run(pool, scenario, cluster, QUICK)


def test_what_an_older_driver_had_placed_says_nothing_of_the_newer() -> None:
    pool, cluster = FixedPool(1), Cluster()
    cluster.ended = {("job-a", 1)}

    async def scenario(broker: SliceBroker) -> None:
        await granted(broker, tpu("job-a", epoch=2))
        waiting = asyncio.create_task(until(lambda: broker.acquire(tpu("job-b"), "", 5.0), "granted"))
        await cluster.looked(20)
        assert not waiting.done()
        waiting.cancel()

    run(pool, scenario, cluster, QUICK)


def test_a_holder_that_never_places_itself_loses_it_in_the_end() -> None:
    pool, cluster = FixedPool(1), Cluster()

    async def scenario(broker: SliceBroker) -> None:
        await granted(broker, tpu("job-a"))
        assert names(await until(lambda: broker.acquire(tpu("job-b"), "", 5.0), "granted")) == ["v6e-0"]

    run(pool, scenario, cluster, Times(look=0.02, unplaced=0.1))


def test_nobody_looks_while_nobody_waits() -> None:
    pool, cluster = FixedPool(1), Cluster()

    async def scenario(broker: SliceBroker) -> None:
        await granted(broker, tpu("job-a"))
        looks = cluster.looks
        waiting = asyncio.create_task(until(lambda: broker.acquire(tpu("job-b"), "", 5.0), "granted"))
        await cluster.looked(2)
        await broker.release("job-a", 1)
        await waiting
        assert cluster.looks > looks
        await asyncio.to_thread(wait_until, lambda: _is_still(cluster), PATIENCE, "the looking to end")

    run(pool, scenario, cluster, QUICK)


def _is_still(cluster: Cluster) -> bool:
    before = cluster.looks
    threading.Event().wait(10 * QUICK.look)
    return cluster.looks == before

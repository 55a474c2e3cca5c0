"""The broker's waiting, asking and taking back, on a scaler of the test's own."""

import asyncio
import queue
import threading
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any

import pytest

from kinetic_ray.errors import ConfigError
from kinetic_ray.runner.broker import SliceBroker
from kinetic_ray.runner.queue import Slice, Ticket
from kinetic_ray.runner.scaling import Event, NeverFits, Offer
from tests.waiting import wait_until

V6E = ("tpu-v6e-16", 4)
PATIENCE = 20.0


class FixedPool:
    """A scaler with a fixed number of slices, all up; events are the test's to send."""

    def __init__(self, size: int, broken: int = 0, together: int = 1) -> None:
        """The first `broken` questions fail; none is answered before `together` of them have been asked."""
        self.size = size
        self._together = together
        self._enough = threading.Event()
        self.incarnation = [0] * size
        self.asked: list[tuple[int, tuple[str, ...]]] = []
        self.leased: list[tuple[str, ...]] = []
        self.books: dict[str, Any] = {}
        self.events: queue.SimpleQueue[Event | None] = queue.SimpleQueue()
        self._broken = broken

    def slice(self, number: int) -> Slice:
        return Slice(f"v6e-{number}", tuple(f"node-{number}.{self.incarnation[number]}.{i}" for i in range(4)))

    def slices(self, kind: tuple[str, int], count: int, exclude: Sequence[str]) -> Offer:
        assert kind == V6E
        self.asked.append((count, tuple(exclude)))
        if len(self.asked) >= self._together:
            self._enough.set()
        self._enough.wait(PATIENCE)
        if self._broken:
            self._broken -= 1
            raise ConfigError("hosts can't be started: out of processes")
        self.check(kind, count)
        free = [self.slice(n) for n in range(self.size) if f"v6e-{n}" not in exclude][:count]
        return Offer(tuple(free), "" if len(free) == count else "all slices are busy")

    def check(self, kind: tuple[str, int], count: int) -> None:
        if count > self.size:
            raise NeverFits(f"there are {self.size} slices of tpu-v6e-16, {count} were asked for")

    def leases(self, names: Sequence[str], books: Mapping[str, Any]) -> None:
        self.leased.append(tuple(names))
        self.books = dict(books)

    def follow(self, tell: Callable[[Event], None]) -> None:
        while (event := self.events.get()) is not None:
            tell(event)


def tpu(name: str, slices: int = 1, epoch: int = 1) -> dict[str, Any]:
    return Ticket(name, epoch, V6E[0], chips_per_host=4, slices=slices).to_dict()


def cpu(name: str, cpus: float = 1.0) -> dict[str, Any]:
    return Ticket(name, 1, "cpu", hosts=1, cpus=cpus).to_dict()


def run(pool: FixedPool, scenario: Callable[[SliceBroker], Coroutine[Any, Any, None]], cpus: float = 2.0) -> None:
    async def main() -> None:
        broker = SliceBroker(pool, lambda: (cpus, 1 << 30))
        await asyncio.wait_for(scenario(broker), PATIENCE)

    try:
        asyncio.run(main())
    finally:
        pool.events.put(None)


async def until(waiting: Callable[[], Awaitable[dict[str, Any]]], state: str) -> dict[str, Any]:
    """Polls an acquire as a driver does, until it is answered with a state."""
    while (answer := await waiting())["state"] != state:
        assert answer["state"] == "waiting"
    return answer


def names(answer: dict[str, Any]) -> list[str]:
    assert answer["state"] == "granted", answer
    return [one["name"] for one in answer["slices"]]


def test_a_free_slice_is_granted_by_name_with_its_nodes() -> None:
    async def scenario(broker: SliceBroker) -> None:
        answer = await broker.acquire(tpu("job-a"))
        nodes = [f"node-0.0.{i}" for i in range(4)]
        assert answer == {"state": "granted", "slices": [{"name": "v6e-0", "nodes": nodes}]}

    run(FixedPool(1), scenario)


def test_acquire_is_safe_to_repeat() -> None:
    async def scenario(broker: SliceBroker) -> None:
        assert names(await broker.acquire(tpu("job-a"))) == names(await broker.acquire(tpu("job-a"))) == ["v6e-0"]
        assert await broker.holds() == {"job-a": ["v6e-0"]}

    run(FixedPool(2), scenario)


def test_one_waits_for_the_other_and_is_told_why() -> None:
    async def scenario(broker: SliceBroker) -> None:
        await broker.acquire(tpu("job-a"))
        told = await broker.acquire(tpu("job-b"), "", 5.0)
        assert told["state"] == "waiting"
        assert told["reason"].startswith("waiting for 1 tpu-v6e-16 slice; first in the queue")
        assert "job-a" in told["reason"]
        second = asyncio.create_task(until(lambda: broker.acquire(tpu("job-b"), told["reason"], 5.0), "granted"))
        await broker.release("job-a", 1)
        assert names(await second) == ["v6e-0"]
        assert await broker.where("job-b") == ""

    run(FixedPool(1), scenario)


def test_the_word_changes_when_the_place_in_the_queue_does() -> None:
    async def scenario(broker: SliceBroker) -> None:
        for name in ("job-a", "job-b", "job-c"):
            told = await broker.acquire(tpu(name), "", 0.3)
        assert "position 2 in the queue, behind job-b" in told["reason"]
        changed = asyncio.create_task(broker.acquire(tpu("job-c"), told["reason"], PATIENCE))
        await broker.release("job-b", 1)
        assert "first in the queue" in (await changed)["reason"]

    run(FixedPool(1), scenario)


def test_two_that_want_two_slices_each_never_hold_one_each() -> None:
    async def scenario(broker: SliceBroker) -> None:
        first = asyncio.create_task(until(lambda: broker.acquire(tpu("job-a", 2)), "granted"))
        second = asyncio.create_task(until(lambda: broker.acquire(tpu("job-b", 2)), "granted"))
        assert names(await first) == ["v6e-0", "v6e-1"]
        assert not second.done()
        await broker.release("job-a", 1)
        assert len(names(await second)) == 2

    run(FixedPool(3), scenario)


def test_hosts_for_several_that_wait_are_asked_for_at_once() -> None:
    pool = FixedPool(2, together=2)

    async def scenario(broker: SliceBroker) -> None:
        both = await asyncio.gather(broker.acquire(tpu("job-a")), broker.acquire(tpu("job-b")))
        assert sorted(names(both[0]) + names(both[1])) == ["v6e-0", "v6e-1"]
        assert sorted(pool.asked) == [(1, ()), (2, ())]

    run(pool, scenario)


def test_while_hosts_are_being_started_the_reason_tells_of_it() -> None:
    pool = FixedPool(1, together=2)

    async def scenario(broker: SliceBroker) -> None:
        told = await broker.acquire(tpu("job-a"), "", 5.0)
        assert told["reason"] == "waiting for 1 tpu-v6e-16 slice; first in the queue; starting its hosts"
        await broker.acquire(tpu("job-b"), "", 0.3)  # the second question, at which the pool has its hosts
        assert names(await until(lambda: broker.acquire(tpu("job-a"), told["reason"], 5.0), "granted")) == ["v6e-0"]

    run(pool, scenario)


def test_what_never_fits_is_refused_and_blocks_nobody() -> None:
    async def scenario(broker: SliceBroker) -> None:
        big, small = await asyncio.gather(
            until(lambda: broker.acquire(tpu("job-big", 3)), "refused"),
            until(lambda: broker.acquire(tpu("job-small", 1)), "granted"),
        )
        assert big["reason"] == "there are 2 slices of tpu-v6e-16, 3 were asked for"
        assert names(small) == ["v6e-0"]

    run(FixedPool(2), scenario)


def test_one_behind_more_than_the_pool_has_in_all_still_gets_its_turn() -> None:
    async def scenario(broker: SliceBroker) -> None:
        await broker.acquire(tpu("job-a"))
        second = asyncio.create_task(until(lambda: broker.acquire(tpu("job-b")), "granted"))
        third = asyncio.create_task(until(lambda: broker.acquire(tpu("job-c")), "granted"))
        await broker.release("job-a", 1)
        await second
        await broker.release("job-b", 1)
        assert names(await third) == ["v6e-0"]

    run(FixedPool(1), scenario)


def test_cpu_jobs_run_while_a_slice_is_waited_for_and_queue_among_themselves() -> None:
    async def scenario(broker: SliceBroker) -> None:
        await broker.acquire(tpu("job-a"))
        await broker.acquire(tpu("job-b"), "", 0.3)
        assert names(await broker.acquire(cpu("job-c", 2.0))) == []
        told = await broker.acquire(cpu("job-d"), "", 5.0)
        assert told["reason"] == "waiting for 1 x 1 CPUs; first in the queue, 0 of 2 CPUs free; held by job-c"
        refused = await broker.acquire(cpu("job-e", 3.0))
        assert refused == {"state": "refused", "reason": "1 x 3 CPUs needs 3 CPUs, the cluster has 2"}

    run(FixedPool(1), scenario)


def test_a_driver_that_is_gone_gives_back_its_lease_and_its_place() -> None:
    pool = FixedPool(1)

    async def scenario(broker: SliceBroker) -> None:
        await broker.acquire(tpu("job-a"))
        await broker.acquire(tpu("job-b"), "", 0.3)
        third = asyncio.create_task(until(lambda: broker.acquire(tpu("job-c")), "granted"))
        pool.events.put({"event": "driver_gone", "job_id": "job-b"})
        pool.events.put({"event": "driver_gone", "job_id": "job-a"})
        assert names(await third) == ["v6e-0"]
        assert await broker.holds() == {"job-c": ["v6e-0"]}

    run(pool, scenario)


def test_a_newer_driver_takes_over_and_the_older_is_fenced() -> None:
    pool = FixedPool(1)

    async def scenario(broker: SliceBroker) -> None:
        await broker.acquire(tpu("job-a", epoch=1))
        assert names(await broker.acquire(tpu("job-a", epoch=2))) == ["v6e-0"]
        assert await broker.acquire(tpu("job-a", epoch=1)) == {"state": "fenced"}
        await broker.release("job-a", 1)
        assert await broker.holds() == {"job-a": ["v6e-0"]}
        await broker.release("job-a", 2)
        assert await broker.holds() == {}

    run(pool, scenario)


def test_a_waiting_driver_learns_that_it_is_fenced() -> None:
    async def scenario(broker: SliceBroker) -> None:
        await broker.acquire(tpu("job-a"))
        old = asyncio.create_task(until(lambda: broker.acquire(tpu("job-b", epoch=1), "", 5.0), "fenced"))
        await broker.acquire(tpu("job-b", epoch=1), "", 0.3)
        new = asyncio.create_task(until(lambda: broker.acquire(tpu("job-b", epoch=2), "", 5.0), "granted"))
        assert await old == {"state": "fenced"}
        await broker.release("job-a", 1)
        await new

    run(FixedPool(1), scenario)


def test_a_slice_that_lost_a_host_is_not_granted_until_it_has_new_nodes() -> None:
    pool = FixedPool(1)

    async def scenario(broker: SliceBroker) -> None:
        await broker.acquire(tpu("job-a"))
        waiting = asyncio.create_task(until(lambda: broker.acquire(tpu("job-b"), "", 0.3), "granted"))
        pool.events.put({"event": "host_lost", "node_id": "node-0.0.2", "slice": "v6e-0", "worker_id": 2})
        pool.events.put({"event": "driver_gone", "job_id": "job-a"})
        await asyncio.to_thread(wait_until, lambda: pool.asked.count((1, ())) >= 2, PATIENCE, "another question")
        assert not waiting.done()
        pool.incarnation[0] = 1
        pool.events.put({"event": "slice_up", "slice": "v6e-0"})
        assert (await waiting)["slices"][0]["nodes"][0] == "node-0.1.0"

    run(pool, scenario)


def test_a_scaler_that_fails_is_asked_again_and_the_reason_tells_of_it() -> None:
    pool = FixedPool(1, broken=1)

    async def scenario(broker: SliceBroker) -> None:
        told = await broker.acquire(tpu("job-a"), "", 5.0)
        assert told["reason"].endswith("no hosts for now: hosts can't be started: out of processes")
        assert names(await until(lambda: broker.acquire(tpu("job-a"), told["reason"], 5.0), "granted")) == ["v6e-0"]

    run(pool, scenario)


def test_threads_end_with_the_stream() -> None:
    pool = FixedPool(1)

    async def scenario(broker: SliceBroker) -> None:
        await broker.acquire(tpu("job-a"))

    run(pool, scenario)
    for thread in threading.enumerate():
        if thread.name == "kinetic-events":
            thread.join(PATIENCE)
            pytest.fail("still listening") if thread.is_alive() else None


class Confused(FixedPool):
    """A scaler with a fault: what it raises is no error that anybody expects."""

    def slices(self, kind: tuple[str, int], count: int, exclude: Sequence[str]) -> Offer:
        raise KeyError("hosts")


def test_a_fault_while_asking_refuses_the_job_instead_of_leaving_it_in_the_queue() -> None:
    async def scenario(broker: SliceBroker) -> None:
        answer = await until(lambda: broker.acquire(tpu("job-a")), "refused")
        assert "KeyError" in answer["reason"]
        assert await broker.where("job-a") == ""
        assert (await broker.acquire(cpu("job-b")))["state"] == "granted"

    run(Confused(1), scenario)

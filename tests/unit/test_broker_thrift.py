"""What the broker does before hosts are started: on a scaler that starts them when the test lets it."""

import asyncio
import threading
from collections.abc import Sequence

from kinetic_ray.runner.broker import SliceBroker, Times
from kinetic_ray.runner.scaling import Offer
from kinetic_ray.runner.thrift import Patience
from tests.unit.brokers import PATIENCE, FixedPool, granted, names, run, tpu, until, until_told
from tests.waiting import wait_until

#: So patient that only events go on, and so impatient that nothing else matters.
FOR_EVER = Times(patience=Patience(3600.0, 3600.0, 3600.0))
HARDLY = Times(patience=Patience(0.02, 0.02, 0.02))


class OnDemand(FixedPool):
    """Up to eight slices, of which none is up before it was asked for and let start."""

    def __init__(self) -> None:
        super().__init__(8, shared=True)
        self.up = 0
        self.may_start = threading.Event()
        self.may_start.set()

    def slices(self, kind: tuple[str, int], count: int, exclude: Sequence[str], *, start: bool = True) -> Offer:
        if start:
            self.check(kind, count)
            self.asked.append((count, tuple(exclude)))
            if len(self._at_hand(count, exclude).slices) < count:
                self.may_start.wait(PATIENCE)
            while self.up < self.size and len(self._at_hand(count, exclude).slices) < count:
                self.up += 1
        return self._at_hand(count, exclude)

    def _at_hand(self, count: int, exclude: Sequence[str]) -> Offer:
        free = [self.slice(n) for n in range(self.up) if f"v6e-{n}" not in exclude][:count]
        return Offer(tuple(free), shared=len(free) < count)

    async def asked_times(self, times: int) -> None:
        await asyncio.to_thread(wait_until, lambda: len(self.asked) >= times, PATIENCE, "a question")


def call(name: str, **more: object) -> dict[str, object]:
    return tpu(f"call-{name}", yields=True, **more)


def test_an_idle_lease_is_waited_for_instead_of_new_hosts() -> None:
    pool = OnDemand()

    async def scenario(broker: SliceBroker) -> None:
        await granted(broker, call("a"))
        for before, after in (("call-a", call("b")), ("call-b", tpu("job-c"))):
            asked = asyncio.create_task(broker.wanted(PATIENCE))
            waiting = asyncio.create_task(until(lambda after=after: broker.acquire(after), "granted"))  # type: ignore[misc]
            assert await asked == [before]
            await broker.release(before, 1)
            assert names(await waiting) == ["v6e-0"]
        assert pool.up == 1

    run(pool, scenario, times=FOR_EVER)


def test_the_lease_of_an_instance_that_ends_is_waited_for_as_well() -> None:
    """Nobody can want it, but its release may be on the way."""
    pool = OnDemand()

    async def scenario(broker: SliceBroker) -> None:
        await granted(broker, tpu("call-actor"))
        waiting = asyncio.create_task(until(lambda: broker.acquire(tpu("call-next"), "", 0.1), "granted"))
        await until_told(broker, tpu("call-next"), "held by call-actor")
        await broker.release("call-actor", 1)
        assert names(await waiting) == ["v6e-0"]
        assert pool.up == 1

    run(pool, scenario, times=FOR_EVER)


def test_hosts_are_started_where_nobody_gives_anything_back() -> None:
    pool = OnDemand()

    async def scenario(broker: SliceBroker) -> None:
        await granted(broker, tpu("call-actor"))
        assert names(await granted(broker, tpu("call-next"))) == ["v6e-1"]
        assert names(await granted(broker, call("a"))) == ["v6e-2"]
        assert names(await granted(broker, call("b"))) == ["v6e-3"]

    run(pool, scenario, times=HARDLY)


def test_what_nobody_holds_is_asked_for_at_once_and_for_all_jobs_together() -> None:
    pool = OnDemand()

    async def scenario(broker: SliceBroker) -> None:
        both = await asyncio.gather(granted(broker, tpu("job-a")), granted(broker, tpu("job-b")))
        assert sorted(names(both[0]) + names(both[1])) == ["v6e-0", "v6e-1"]
        assert names(await granted(broker, call("a"))) == ["v6e-2"]

    run(pool, scenario, times=FOR_EVER)


def test_what_is_up_and_free_is_taken_without_a_start_while_calls_hold_others() -> None:
    pool = OnDemand()
    pool.up = 3

    async def scenario(broker: SliceBroker) -> None:
        found = [names(await granted(broker, call(name))) for name in "abc"]
        assert found == [["v6e-0"], ["v6e-1"], ["v6e-2"]]
        assert pool.asked == [(1, ())], "of the first alone, for which nothing is to be spared"

    run(pool, scenario, times=FOR_EVER)


def test_calls_that_queue_have_one_slice_more_started_at_a_time() -> None:
    pool = OnDemand()

    async def scenario(broker: SliceBroker) -> None:
        await granted(broker, call("0"))
        pool.may_start.clear()
        waiting = [
            asyncio.create_task(until(lambda number=number: broker.acquire(call(str(number))), "granted"))  # type: ignore[misc]
            for number in range(1, 6)
        ]
        await pool.asked_times(2)
        await until_told(broker, call("5"), "position 5")
        assert [count for count, _ in pool.asked] == [1, 1]
        pool.may_start.set()
        found = await asyncio.gather(*waiting)
        assert sorted(name for one in found for name in names(one)) == [f"v6e-{n}" for n in range(1, 6)]
        assert {count for count, _ in pool.asked} == {1}

    run(pool, scenario, times=HARDLY)


def test_calls_in_a_fixed_pool_may_use_all_of_it_at_once() -> None:
    pool = FixedPool(3, together=2)

    async def scenario(broker: SliceBroker) -> None:
        all_of_it = await asyncio.gather(*(granted(broker, call(name)) for name in "abc"))
        assert sorted(name for one in all_of_it for name in names(one)) == ["v6e-0", "v6e-1", "v6e-2"]

    run(pool, scenario, times=HARDLY)


def test_what_is_given_back_while_hosts_start_is_granted_at_once() -> None:
    pool = OnDemand()

    async def scenario(broker: SliceBroker) -> None:
        await granted(broker, call("a"))
        pool.may_start.clear()
        waiting = asyncio.create_task(until(lambda: broker.acquire(tpu("job-b")), "granted"))
        await until_told(broker, tpu("job-b"), "starting its hosts")
        await broker.release("call-a", 1)
        assert names(await waiting) == ["v6e-0"]
        assert pool.up == 1
        pool.may_start.set()
        assert names(await granted(broker, tpu("job-c"))) == ["v6e-1"]

    run(pool, scenario, times=HARDLY)

"""The broker's waiting, asking and taking back, on a scaler of the test's own."""

import asyncio
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from kinetic_ray.errors import ConfigError, SubmissionError
from kinetic_ray.runner.broker import SliceBroker
from kinetic_ray.runner.scaling import Offer
from tests.unit.brokers import (
    PATIENCE,
    V6E,
    FixedPool,
    cpu,
    granted,
    names,
    reason_of,
    run,
    tpu,
    until,
    until_told,
)
from tests.waiting import wait_until


def test_a_free_slice_is_granted_by_name_with_its_nodes() -> None:
    async def scenario(broker: SliceBroker) -> None:
        answer = await granted(broker, tpu("job-a"))
        nodes = [f"node-0.0.{i}" for i in range(4)]
        assert answer == {"state": "granted", "slices": [{"name": "v6e-0", "nodes": nodes}]}

    run(FixedPool(1), scenario)


def test_acquire_is_safe_to_repeat() -> None:
    async def scenario(broker: SliceBroker) -> None:
        assert names(await granted(broker, tpu("job-a"))) == names(await granted(broker, tpu("job-a"))) == ["v6e-0"]
        assert await broker.holds() == {"job-a": ["v6e-0"]}

    run(FixedPool(2), scenario)


def test_one_waits_for_the_other_and_is_told_why() -> None:
    async def scenario(broker: SliceBroker) -> None:
        await granted(broker, tpu("job-a"))
        told = await broker.acquire(tpu("job-b"), "", 5.0)
        assert told["state"] == "waiting"
        assert told["reason"].startswith("waiting for 1 tpu-v6e-16 slice; first in the queue")
        assert "job-a" in told["reason"]
        second = asyncio.create_task(until(lambda: broker.acquire(tpu("job-b"), told["reason"], 5.0), "granted"))
        await broker.release("job-a", 1)
        assert names(await second) == ["v6e-0"]
        assert await reason_of(broker, "job-b") == ""

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
        both = await asyncio.gather(granted(broker, tpu("job-a")), granted(broker, tpu("job-b")))
        assert sorted(names(both[0]) + names(both[1])) == ["v6e-0", "v6e-1"]
        assert sorted(pool.asked) == [(1, ()), (2, ())]

    run(pool, scenario)


def test_while_hosts_are_being_started_the_reason_tells_of_it() -> None:
    pool = FixedPool(1, together=2)

    async def scenario(broker: SliceBroker) -> None:
        told = await until_told(broker, tpu("job-a"), "starting")
        assert told == "waiting for 1 tpu-v6e-16 slice; first in the queue; starting its hosts"
        await broker.acquire(tpu("job-b"), "", 0.3)  # the second question, at which the pool has its hosts
        assert names(await until(lambda: broker.acquire(tpu("job-a"), told, 5.0), "granted")) == ["v6e-0"]

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


class Pensive(FixedPool):
    """Takes its time over what it can't ever have, and says a word with what it has."""

    def __init__(self) -> None:
        super().__init__(2)
        self.go_on = threading.Event()

    def check(self, kind: tuple[str, int], count: int) -> None:
        if count == 3:
            self.go_on.wait(PATIENCE)
        super().check(kind, count)

    def slices(self, kind: tuple[str, int], count: int, exclude: Sequence[str], *, start: bool = True) -> Offer:
        return Offer(super().slices(kind, count, exclude, start=start).slices, "it is here")


def test_one_behind_what_is_refused_late_gets_what_it_was_offered_before() -> None:
    pool = Pensive()

    async def scenario(broker: SliceBroker) -> None:
        big, small = tpu("job-big", 3), tpu("job-small")
        await until_told(broker, big, "starting its hosts")
        await broker.acquire(small, "", 0.3)
        await until_told(broker, big, "it is here")  # the small one's offer, while it is held up
        pool.go_on.set()
        await until(lambda: broker.acquire(big), "refused")
        assert names(await granted(broker, small)) == ["v6e-0"]

    run(pool, scenario)


def test_one_behind_more_than_the_pool_has_in_all_still_gets_its_turn() -> None:
    async def scenario(broker: SliceBroker) -> None:
        await granted(broker, tpu("job-a"))
        second = asyncio.create_task(until(lambda: broker.acquire(tpu("job-b")), "granted"))
        third = asyncio.create_task(until(lambda: broker.acquire(tpu("job-c")), "granted"))
        await broker.release("job-a", 1)
        await second
        await broker.release("job-b", 1)
        assert names(await third) == ["v6e-0"]

    run(FixedPool(1), scenario)


def test_cpu_jobs_run_while_a_slice_is_waited_for_and_queue_among_themselves() -> None:
    async def scenario(broker: SliceBroker) -> None:
        await granted(broker, tpu("job-a"))
        await broker.acquire(tpu("job-b"), "", 0.3)
        assert names(await granted(broker, cpu("job-c", 2.0))) == []
        told = await broker.acquire(cpu("job-d"), "", 5.0)
        assert told["reason"] == "waiting for 1 x 1 CPUs; first in the queue, 0 of 2 CPUs free; held by job-c"
        refused = await broker.acquire(cpu("job-e", 3.0))
        assert refused == {"state": "refused", "reason": "1 x 3 CPUs needs 3 CPUs, the cluster has 2"}

    run(FixedPool(1), scenario)


def test_a_driver_that_is_gone_gives_back_its_lease_and_its_place() -> None:
    pool = FixedPool(1)

    async def scenario(broker: SliceBroker) -> None:
        await granted(broker, tpu("job-a"))
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
        await granted(broker, tpu("job-a", epoch=1))
        assert names(await granted(broker, tpu("job-a", epoch=2))) == ["v6e-0"]
        assert await broker.acquire(tpu("job-a", epoch=1)) == {"state": "fenced"}
        await broker.release("job-a", 1)
        assert await broker.holds() == {"job-a": ["v6e-0"]}
        await broker.release("job-a", 2)
        assert await broker.holds() == {}

    run(pool, scenario)


def test_a_waiting_driver_learns_that_it_is_fenced() -> None:
    async def scenario(broker: SliceBroker) -> None:
        await granted(broker, tpu("job-a"))
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
        await granted(broker, tpu("job-a"))
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
        told = await until_told(broker, tpu("job-a"), "no hosts")
        assert told.endswith("no hosts for now: hosts can't be started: out of processes")
        assert names(await until(lambda: broker.acquire(tpu("job-a"), told, 5.0), "granted")) == ["v6e-0"]

    run(pool, scenario)


NO_START = SubmissionError(
    "the slice v6e-0 could not be started: the node v6e-0.0 ended before it was up; its log says so"
)


def test_hosts_that_fail_to_start_again_and_again_fail_the_job_and_no_other() -> None:
    pool = FixedPool(1, broken=4, error=NO_START)

    async def scenario(broker: SliceBroker) -> None:
        refused = await until(lambda: broker.acquire(tpu("job-a")), "refused")
        assert refused["reason"] == f"its hosts failed to start 3 times in a row: {NO_START}"
        assert len(pool.asked) == 3
        assert names(await until(lambda: broker.acquire(cpu("job-b")), "granted")) == []
        # Each job has its own count: what failed for one may have been mended since.
        assert names(await until(lambda: broker.acquire(tpu("job-c")), "granted")) == ["v6e-0"]
        assert len(pool.asked) == 5

    run(pool, scenario)


def test_a_start_that_fails_twice_and_then_comes_right_is_granted() -> None:
    pool = FixedPool(1, broken=2, error=NO_START)

    async def scenario(broker: SliceBroker) -> None:
        assert names(await until(lambda: broker.acquire(tpu("job-a")), "granted")) == ["v6e-0"]

    run(pool, scenario)


class Alternating(FixedPool):
    """Every other start fails, and what doesn't finds all slices in use; the sixth question finds them free."""

    def slices(self, kind: tuple[str, int], count: int, exclude: Sequence[str], *, start: bool = True) -> Offer:
        offer = super().slices(kind, count, exclude, start=start)
        if start and len(self.asked) == 6:
            return offer
        if start and len(self.asked) % 2:
            raise NO_START
        return Offer((), "all slices are busy")


def test_only_failures_in_a_row_count() -> None:
    pool = Alternating(1)

    async def scenario(broker: SliceBroker) -> None:
        asking = asyncio.create_task(until(lambda: broker.acquire(tpu("job-a"), "x", 5.0), "granted"))
        while len(pool.asked) < 6:
            pool.events.put({"event": "room"})  # has those that wait ask again
            await asyncio.wait({asking}, timeout=0.05)
        assert names(await asking) == ["v6e-0"]

    run(pool, scenario)


@pytest.mark.parametrize("error", [ConfigError("the supervisor is away"), ConnectionRefusedError("nobody listens")])
def test_a_supervisor_that_is_away_is_waited_for(error: Exception) -> None:
    pool = FixedPool(1, broken=4, error=error)

    async def scenario(broker: SliceBroker) -> None:
        assert names(await until(lambda: broker.acquire(tpu("job-a")), "granted")) == ["v6e-0"]
        assert len(pool.asked) == 5

    run(pool, scenario)


def test_threads_end_with_the_stream() -> None:
    pool = FixedPool(1)

    async def scenario(broker: SliceBroker) -> None:
        await granted(broker, tpu("job-a"))

    run(pool, scenario)
    for thread in threading.enumerate():
        if thread.name == "kinetic-events":
            thread.join(PATIENCE)
            pytest.fail("still listening") if thread.is_alive() else None


class Confused(FixedPool):
    """A scaler with a fault: what it raises is no error that anybody expects."""

    def slices(self, kind: tuple[str, int], count: int, exclude: Sequence[str], *, start: bool = True) -> Offer:
        raise KeyError("hosts")


def test_a_fault_while_asking_refuses_the_job_instead_of_leaving_it_in_the_queue() -> None:
    async def scenario(broker: SliceBroker) -> None:
        answer = await until(lambda: broker.acquire(tpu("job-a")), "refused")
        assert "KeyError" in answer["reason"]
        assert await reason_of(broker, "job-a") == ""
        assert (await granted(broker, cpu("job-b")))["state"] == "granted"

    run(Confused(1), scenario)


# Priority.


def test_the_more_urgent_is_served_first() -> None:
    async def scenario(broker: SliceBroker) -> None:
        await granted(broker, tpu("job-a"))
        await broker.acquire(tpu("job-b"), "", 0.3)
        told = await broker.acquire(tpu("job-c", priority=5), "", 0.3)
        assert "first in the queue" in told["reason"]
        assert "position 2 in the queue, behind job-c" in await reason_of(broker, "job-b")
        later = asyncio.create_task(until(lambda: broker.acquire(tpu("job-b"), "", 5.0), "granted"))
        await broker.release("job-a", 1)
        assert names(await until(lambda: broker.acquire(tpu("job-c", priority=5)), "granted")) == ["v6e-0"]
        assert not later.done()
        await broker.release("job-c", 1)
        await later

    run(FixedPool(1), scenario)


def test_one_that_was_passed_asks_for_hosts_of_its_own() -> None:
    """Its offer was for one slice, which the more urgent one has taken."""
    pool = FixedPool(2, together=2)

    async def scenario(broker: SliceBroker) -> None:
        first = asyncio.create_task(until(lambda: broker.acquire(tpu("job-a"), "", 5.0), "granted"))
        await asyncio.to_thread(wait_until, lambda: pool.asked, PATIENCE, "the first question")
        urgent = names(await until(lambda: broker.acquire(tpu("job-b", priority=5), "", 5.0), "granted"))
        assert sorted(urgent + names(await first)) == ["v6e-0", "v6e-1"]

    run(pool, scenario)


# Yielding.


def test_an_idle_lease_is_wanted_as_soon_as_somebody_waits() -> None:
    async def scenario(broker: SliceBroker) -> None:
        await granted(broker, tpu("call-g", yields=True))
        assert await broker.wanted(0.0) == []
        asked = asyncio.create_task(broker.wanted(PATIENCE))
        waiting = asyncio.create_task(until(lambda: broker.acquire(tpu("job-a"), "", 5.0), "granted"))
        assert await asked == ["call-g"]
        assert await broker.wanted(0.0, ["call-g"]) == ["call-g"], "the answer stands while somebody waits"
        await broker.release("call-g", 1)
        assert names(await waiting) == ["v6e-0"]
        assert await broker.wanted(PATIENCE, ["call-g"]) == []

    run(FixedPool(1), scenario)


def test_nobody_yields_for_what_is_free() -> None:
    async def scenario(broker: SliceBroker) -> None:
        await granted(broker, tpu("call-g", yields=True))
        asked = asyncio.create_task(broker.wanted(PATIENCE))
        await granted(broker, tpu("job-a"))
        await granted(broker, cpu("job-c"))
        assert not asked.done()
        asked.cancel()

    run(FixedPool(2), scenario)


class Reluctant(FixedPool):
    """Answers the first question; then it takes its time, or fails."""

    def __init__(self, error: Exception | None) -> None:
        super().__init__(2)
        self._error = error
        self.go_on = threading.Event()

    def slices(self, kind: tuple[str, int], count: int, exclude: Sequence[str], *, start: bool = True) -> Offer:
        if not start:
            return Offer(())
        answer = super().slices(kind, count, exclude)
        if len(self.asked) > 1:
            if self._error is not None:
                raise self._error
            self.go_on.wait(PATIENCE)
        return answer


@pytest.mark.parametrize("error", [None, ConfigError("out of processes")], ids=["starting hosts", "failing"])
def test_an_idle_lease_is_wanted_while_other_hosts_start_or_fail_to(error: Exception | None) -> None:
    pool = Reluctant(error)

    async def scenario(broker: SliceBroker) -> None:
        await granted(broker, tpu("call-g", yields=True))
        asked = asyncio.create_task(broker.wanted(PATIENCE))
        await broker.acquire(tpu("job-a"), "", 0.3)
        assert await asked == ["call-g"]
        pool.go_on.set()

    run(pool, scenario)


def test_cpus_are_yielded_too() -> None:
    async def scenario(broker: SliceBroker) -> None:
        await granted(broker, cpu("call-g", 2.0, yields=True))
        asked = asyncio.create_task(broker.wanted(PATIENCE))
        await broker.acquire(cpu("job-c"), "", 0.3)
        assert await asked == ["call-g"]

    run(FixedPool(1), scenario)


@pytest.mark.parametrize(("shared", "holders"), [(True, ["call-g"]), (False, [])])
def test_slices_of_other_kinds_are_wanted_where_hosts_are_shared(shared: bool, holders: list[str]) -> None:
    class Kinds(FixedPool):
        """Has the slice of one kind; of the other there is none for now."""

        def slices(self, kind: tuple[str, int], count: int, exclude: Sequence[str], *, start: bool = True) -> Offer:
            return (
                super().slices(kind, count, exclude, start=start)
                if kind == V6E
                else Offer((), "hosts are in use", shared)
            )

    async def scenario(broker: SliceBroker) -> None:
        await granted(broker, tpu("call-g", yields=True))
        other = {**tpu("job-a"), "accelerator": "tpu-v5e-16"}
        await until_told(broker, other, "hosts are in use")
        assert await broker.wanted(0.0) == holders

    run(Kinds(1), scenario)


# Nested.


def test_a_nested_call_that_can_never_have_its_turn_is_refused() -> None:
    async def scenario(broker: SliceBroker) -> None:
        await granted(broker, tpu("job-a", 2))
        inner = tpu("call-n", 2, ancestors=["job-a"])
        refused = await until(lambda: broker.acquire(inner), "refused")
        assert refused["reason"] == (
            "2 tpu-v6e-16 slices for a nested call, beside the 2 that its callers hold until it returns: "
            "there are 3 slices of tpu-v6e-16, 4 were asked for"
        )
        assert names(await granted(broker, tpu("call-m", 1, ancestors=["job-a"]))) == ["v6e-2"]

    run(FixedPool(3), scenario)


def test_a_nested_call_does_not_wait_behind_who_waits_for_its_caller() -> None:
    async def scenario(broker: SliceBroker) -> None:
        await granted(broker, tpu("job-a"))
        await broker.acquire(tpu("job-b", 2), "", 0.3)
        assert names(await until(lambda: broker.acquire(tpu("call-n", ancestors=["job-a"])), "granted")) == ["v6e-1"]

    run(FixedPool(2), scenario)


def test_nested_cpu_calls_are_granted_at_once_and_take_nothing() -> None:
    async def scenario(broker: SliceBroker) -> None:
        await granted(broker, cpu("job-a", 2.0))
        await broker.acquire(cpu("job-w"), "", 0.3)
        for number in range(5):
            assert names(await granted(broker, cpu(f"call-{number}", 2.0, ancestors=["job-a"]))) == []
        await broker.release("job-a", 1)
        await until(lambda: broker.acquire(cpu("job-w")), "granted")

    run(FixedPool(1), scenario)


# What others are told.


def test_the_supervisor_is_told_of_every_lease_and_of_who_waits() -> None:
    pool = FixedPool(1)

    async def scenario(broker: SliceBroker) -> None:
        await granted(broker, tpu("job-a", name="train", priority=2))
        await granted(broker, cpu("call-c", 0.5, yields=True))
        await until_told(broker, tpu("job-b", name="f"), "all slices are busy")
        books = await broker.snapshot()
        assert books["leases"] == [
            {"holder": "job-a", "name": "train", "accelerator": "tpu-v6e-16", "slices": ["v6e-0"], "cpus": 0.0}
            | {"priority": 2, "idle_ok": False},
            {"holder": "call-c", "name": "", "accelerator": "cpu", "slices": [], "cpus": 0.5}
            | {"priority": 0, "idle_ok": True},
        ]
        (waits,) = books["queue"]
        reason = await reason_of(broker, "job-b")
        wish = "1 tpu-v6e-16 slice"
        assert waits == {"holder": "job-b", "name": "f", "wish": wish, "reason": reason, "priority": 0}
        await asyncio.to_thread(wait_until, lambda: pool.books == books, PATIENCE, "word of it")
        assert pool.leased[-1] == ("v6e-0",)
        await broker.release("job-a", 1)
        await until(lambda: broker.acquire(tpu("job-b", name="f")), "granted")
        await broker.release("job-b", 1)
        await asyncio.to_thread(wait_until, lambda: pool.leased[-1] == (), PATIENCE, "word of the end")

    run(pool, scenario)


def test_word_that_was_lost_is_sent_again() -> None:
    class Deaf(FixedPool):
        deaf = 2

        def leases(self, names: Sequence[str], books: Mapping[str, Any]) -> None:
            if self.deaf:
                self.deaf -= 1
                raise ConnectionError("nobody listens")
            super().leases(names, books)

    pool = Deaf(1)

    async def scenario(broker: SliceBroker) -> None:
        await granted(broker, tpu("job-a"))
        await asyncio.to_thread(wait_until, lambda: pool.leased == [("v6e-0",)], PATIENCE, "word of it")

    run(pool, scenario)


def test_the_books_are_told_however_many_questions_are_open() -> None:
    """Questions wait for hosts, for minutes maybe, and each takes a thread."""
    pool = FixedPool(1, together=1000)

    async def scenario(broker: SliceBroker) -> None:
        waiting = [asyncio.create_task(broker.acquire(tpu(f"job-{number:02}"))) for number in range(70)]
        await asyncio.to_thread(wait_until, lambda: len(pool.asked) >= 64, PATIENCE, "many questions")
        await broker.acquire(tpu("job-late"), "", 0.0)

        def told() -> bool:
            return "job-late" in [one["holder"] for one in pool.books["queue"]]

        await asyncio.to_thread(wait_until, told, PATIENCE, "word of the last")
        pool.let_go()
        await asyncio.gather(*waiting)

    run(pool, scenario)


def test_who_has_missed_what_was_told_asks_again() -> None:
    pool = FixedPool(1)

    async def scenario(broker: SliceBroker) -> None:
        await granted(broker, tpu("job-a"))
        await until_told(broker, tpu("job-b"), "all slices are busy")
        asked = len(pool.asked)
        pool.events.put({"event": "following"})
        await asyncio.to_thread(wait_until, lambda: len(pool.asked) > asked, PATIENCE, "another question")

    run(pool, scenario)

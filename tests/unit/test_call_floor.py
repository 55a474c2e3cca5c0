"""The desk's floor and its instances without a cluster: what they ask for, and what they leave behind."""

import asyncio
import gc
import threading
import weakref
from collections.abc import Callable
from typing import Any, cast

import pytest

from kinetic_ray.runner.calls.agents import Agents
from kinetic_ray.runner.calls.asks import Asks, Refused
from kinetic_ray.runner.calls.errands import Code, Errand
from kinetic_ray.runner.calls.failures import CallFailure
from kinetic_ray.runner.calls.floor import Floor
from kinetic_ray.runner.calls.instances import Instances
from kinetic_ray.runner.calls.placing import take_place
from kinetic_ray.runner.calls.wish import Order, Wish
from kinetic_ray.runner.queue import Lease, Ticket
from tests.unit.loops import PATIENCE, turn, until


class Broker:
    """Stands in for the way to the broker: nothing is ever granted."""

    def __init__(self, answer: Callable[[], None] = lambda: None) -> None:
        self.asked: list[Ticket] = []
        self.released: list[tuple[str, int]] = []
        self._answer = answer

    async def acquire(self, ticket: Ticket, on_reason: Callable[[str], None]) -> Lease:
        self.asked.append(ticket)
        on_reason("all slices are busy")
        self._answer()
        await asyncio.Event().wait()
        raise AssertionError

    async def release(self, holder: str, epoch: int) -> None:
        self.released.append((holder, epoch))


class Arguments:
    """Of a call."""


def errand(number: int = 1, **more: Any) -> Errand:
    order = Order(Wish(), "digest", "f", "01000000", **more)
    done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    return Errand(number, order, order.to_bytes(), Code(), Arguments(), done)


def floor(broker: Broker) -> Floor:
    agents = Agents(None, lambda *_: None, lambda _: None)
    return Floor(cast(Asks, broker), agents, lambda *_: None, simulated=True)


def instances(broker: Broker) -> Instances:
    agents = Agents(None, lambda *_: None, lambda _: None)
    return Instances(cast(Asks, broker), agents, lambda *_: None, simulated=True)


async def ready(_: Errand) -> None:
    """All arguments are there."""


def refuse() -> None:
    raise Refused("2 x tpu-v6e-16 never fit")


def break_off() -> None:
    raise ValueError("an answer that nobody understands")


def test_a_call_that_is_over_is_forgotten_however_long_it_could_have_waited() -> None:
    async def scenario() -> None:
        broker = Broker()
        there = floor(broker)
        call = errand(capacity_timeout=1e6)
        arguments = weakref.ref(call.packed)
        there.add(call)
        await until(lambda: bool(broker.asked))
        there.drop(call, "cancelled")
        with pytest.raises(CallFailure, match="cancelled"):
            await call.done
        del call
        await until(lambda: not there.gangs)
        gc.collect()
        assert arguments() is None
        assert broker.released == [(broker.asked[0].job_id, 1)]

    asyncio.run(scenario())


def test_a_call_that_waits_too_long_is_told_for_what() -> None:
    async def scenario() -> None:
        broker = Broker()
        there = floor(broker)
        call = errand(capacity_timeout=0.01)
        there.add(call)
        with pytest.raises(CallFailure, match=r"capacity_timeout=0\.01 s: all slices are busy"):
            await call.done
        await until(lambda: not there.gangs)
        assert not there.is_busy

    asyncio.run(scenario())


@pytest.mark.parametrize(("answer", "told"), [(refuse, "never fit"), (break_off, "an answer that nobody understands")])
def test_where_no_lease_is_to_be_had_all_calls_of_its_kind_are_told(answer: Callable[[], None], told: str) -> None:
    async def scenario() -> None:
        broker = Broker(answer)
        there = floor(broker)
        calls = [errand(number) for number in range(3)]
        for call in calls:
            there.add(call)
        for call in calls:
            with pytest.raises(CallFailure, match=told):
                await call.done
        await until(lambda: not there.gangs)
        assert {holder for holder, _ in broker.released} == {ticket.job_id for ticket in broker.asked}

    asyncio.run(scenario())


@pytest.mark.parametrize(("answer", "told"), [(refuse, "never fit"), (break_off, "an answer that nobody understands")])
def test_an_instance_that_cannot_be_made_is_dead(answer: Callable[[], None], told: str) -> None:
    async def scenario() -> None:
        broker = Broker(answer)
        there = instances(broker)
        create = errand(kind="create", actor="act-1")
        with pytest.raises(CallFailure, match=told):
            await there.run(create, ready)
        with pytest.raises(CallFailure, match=told):
            await there.run(errand(2, kind="method", actor="act-1", method="m"), ready)
        await until(lambda: bool(broker.released))
        assert not there.is_busy

    asyncio.run(scenario())


def test_an_instance_that_is_killed_while_it_waits_asks_no_more() -> None:
    async def scenario() -> None:
        broker = Broker()
        there = instances(broker)
        made = asyncio.create_task(there.run(errand(kind="create", actor="act-1"), ready))
        await until(lambda: bool(broker.asked))
        there.kill("act-1")
        with pytest.raises(CallFailure, match=r"kinetic\.kill"):
            await made
        await until(lambda: bool(broker.released))
        assert not there.is_busy

    asyncio.run(scenario())


def test_what_waits_is_told_with_the_brokers_reason() -> None:
    async def scenario() -> None:
        broker = Broker()
        there, made = floor(broker), instances(broker)
        for number in (1, 2):
            there.add(errand(number))
        making = asyncio.create_task(made.run(errand(3, kind="create", actor="act-1"), ready))
        await until(lambda: len(broker.asked) == 3)
        waits = [*there.waits(), *made.waits()]
        assert [(one.call, one.client, one.name, one.reason) for one in waits] == [
            (call, "01000000", "f", "all slices are busy") for call in (1, 2, "act-1")
        ]
        made.kill("act-1")
        with pytest.raises(CallFailure):
            await making
        assert made.waits() == []

    asyncio.run(scenario())


def test_a_call_of_an_instance_that_is_not_there_says_which() -> None:
    async def scenario() -> None:
        there = instances(Broker())
        with pytest.raises(CallFailure, match=r"f: there is no instance act-7: .* Make a new one"):
            await there.run(errand(kind="method", actor="act-7", method="m"), ready)

    asyncio.run(scenario())


class Groups:
    """Stands in for a lease's placement groups, which take their time to be asked for."""

    def __init__(self) -> None:
        self.begun, self.go = threading.Event(), threading.Event()
        self.held = 0

    def make(self, _lease: Lease) -> Any:
        self.begun.set()
        assert self.go.wait(PATIENCE)
        self.held += 1
        return self

    def remove(self) -> None:
        self.held -= 1


def test_who_is_cancelled_while_a_place_is_taken_leaves_nothing_there() -> None:
    async def scenario() -> None:
        groups = Groups()
        taking = asyncio.create_task(take_place(Lease(Ticket("call-a", 1, "cpu")), groups.make))
        assert await asyncio.to_thread(groups.begun.wait, PATIENCE)
        taking.cancel()
        await turn()
        assert not taking.done()
        groups.go.set()
        with pytest.raises(asyncio.CancelledError):
            await taking
        assert groups.held == 0

    asyncio.run(scenario())


def test_a_place_that_is_taken_stays_taken() -> None:
    async def scenario() -> None:
        groups = Groups()
        groups.go.set()
        assert await take_place(Lease(Ticket("call-a", 1, "cpu")), groups.make) is groups
        assert groups.held == 1

    asyncio.run(scenario())

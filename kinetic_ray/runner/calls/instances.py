"""Instances of classes: each has a gang of its own, which serves its methods one after the other and nothing else."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ray.exceptions import RayError

from kinetic_ray.core.state import Reason
from kinetic_ray.runner.book import reading_of
from kinetic_ray.runner.calls.agents import Agent, Agents
from kinetic_ray.runner.calls.asks import Asks, Refused
from kinetic_ray.runner.calls.errands import TRIES, Errand, Value, new_gang_id
from kinetic_ray.runner.calls.failures import CallFailure
from kinetic_ray.runner.calls.gangs import Gang, NotBegun
from kinetic_ray.runner.calls.roster import Phase
from kinetic_ray.runner.calls.seating import ticket_of
from kinetic_ray.runner.calls.sequence import PATIENCE, Sequence
from kinetic_ray.runner.calls.telling import Wait
from kinetic_ray.runner.inbox import HostLost

Ready = Callable[[Errand], Awaitable[None]]
#: The ends of so many instances are remembered, for those who still call them.
_REMEMBERED = 1000


@dataclass(eq=False)
class Instance:
    """One instance.

    Attributes:
        actor: Its id.
        client: The process that made it, with which it ends.
        gang: Its gang.
        turn: Held by the call that is its.
        sequence: Puts calls back into the order in which they were made.
        making: Makes it.
        leaving: Why it is about to go, once its host is.
        death: Why it is gone.
    """

    actor: str
    client: str
    gang: Gang
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    sequence: Sequence = field(default_factory=Sequence)
    making: asyncio.Task[Value] | None = None
    leaving: CallFailure | None = None
    death: CallFailure | None = None


class Instances:
    """All of them, in one event loop."""

    def __init__(self, asks: Asks, agents: Agents, on_recall: Callable[[str, str], None], *, simulated: bool) -> None:
        """Starts with none; see :class:`Floor`."""
        self._asks = asks
        self._agents = agents
        self._on_recall = on_recall
        self._simulated = simulated
        self._alive: dict[str, Instance] = {}
        self._deaths: dict[str, CallFailure] = {}
        self._clearing: dict[str, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._awaited: dict[str, asyncio.Event] = {}

    @property
    def is_busy(self) -> bool:
        return bool(self._alive)

    def gangs(self) -> list[Gang]:
        return [one.gang for one in self._alive.values()]

    def waits(self) -> list[Wait]:
        """Instances that wait for their gangs, and why."""
        return [
            Wait(one.actor, one.client, one.gang.order.name, one.gang.key, one.gang.reason)
            for one in self._alive.values()
            if one.gang.reason and not one.gang.hosts
        ]

    def clients(self) -> set[str]:
        """Processes that have some."""
        return {one.client for one in self._alive.values()}

    def owner_at(self, agent: Agent) -> Gang | None:
        """The gang whose children are at an agent."""
        return next((one.gang for one in self._alive.values() if one.gang.gang_id == agent.tenant), None)

    async def run(self, errand: Errand, ready: Ready) -> Value:
        """Makes an instance, or calls one.

        Args:
            errand: The call.
            ready: Waits for its arguments. What comes later to the same instance waits as well.

        Raises:
            CallFailure: It has no value.
        """
        if errand.order.kind == "create":
            return await self._create(errand, ready)
        instance = self._find(errand.order.actor) or await self._on_its_way(errand.order.actor)
        if instance is None:
            raise self._death_of(errand.order.actor, errand.order.name)
        await instance.sequence.enter(errand.order.client, errand.place)
        return await self._call(instance, errand, ready)

    def kill(self, actor: str, message: str = "it was killed by kinetic.kill()") -> None:
        """Ends an instance; what runs on it fails."""
        instance = self._find(actor)
        if instance is not None:
            failure = CallFailure(str(Reason.CANCELLED), message, where=instance.gang.where)
            self._bury(instance, failure)

    async def until_cleared(self, actor: str, patience: float) -> None:
        """Waits until an instance that was ended has given its place back, so that the next one may have it."""
        if (clearing := self._clearing.get(actor)) is not None:
            await asyncio.wait({clearing}, timeout=patience)

    def leave(self, client: str) -> None:
        """A process has gone, and with it what it made."""
        for instance in list(self._alive.values()):
            if instance.client == client:
                self.kill(instance.actor, "the process that made it has gone")

    def lose_host(self, lost: HostLost) -> None:
        for instance in list(self._alive.values()):
            if instance.gang.lose_host(lost):
                self._lost(instance, *reading_of(lost))

    def expect_loss(self, node_id: str) -> None:
        """A host is about to be taken away: what runs there may use its time of grace, nothing new begins."""
        for instance in list(self._alive.values()):
            if instance.gang.expect_loss(node_id) and instance.leaving is None:
                where = instance.gang.where
                instance.leaving = CallFailure(str(Reason.PREEMPTED), "its host was being preempted", where=where)
                self._spawn(self._leave_place(instance, instance.leaving))

    async def _leave_place(self, instance: Instance, why: CallFailure) -> None:
        async with instance.turn:  # after what runs there
            if instance.gang.phase is Phase.LENT:
                await self._take_back(instance.gang)
            if instance.gang.is_broken:
                self._bury(instance, why)
            else:  # its making has been begun anew elsewhere
                instance.leaving = None

    def lose_agent(self, agent: Agent, why: str) -> None:
        for instance in list(self._alive.values()):
            if instance.gang.lose_agent(agent, why):
                self._lost(instance, Reason.NODE_LOST, f"its host agent is gone: {why}")

    async def lend(self, actor: str, client: str, patience: float) -> dict[str, Any] | None:
        """Lets a process call an instance on one host directly, as soon as it is idle."""
        instance = self._find(actor)
        if instance is None or instance.gang.order.wish.ranks > 1:
            return None
        try:
            async with asyncio.timeout(patience), instance.turn:
                if instance.death is not None or instance.making is None or not instance.making.done():
                    return None
                gang = instance.gang
                if gang.phase is Phase.LENT and gang.client != client:
                    await self._take_back(gang)
                await gang.lend(client)
                gang.enter(Phase.LENT)
                return {"gang": gang.gang_id, "agent": gang.agent.actor}
        except (TimeoutError, RayError):
            return None

    # Making.

    async def _on_its_way(self, actor: str) -> Instance | None:
        """An instance whose making Ray may deliver after a call of it."""
        if actor not in self._deaths:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._awaited.setdefault(actor, asyncio.Event()).wait(), PATIENCE)
            self._awaited.pop(actor, None)
        return self._find(actor)

    async def _create(self, errand: Errand, ready: Ready) -> Value:
        new_id = new_gang_id()
        gang = Gang(new_id, errand, self._agents, simulated=self._simulated)
        instance = self._alive[errand.order.actor] = Instance(errand.order.actor, errand.order.client, gang)
        await instance.turn.acquire()  # here, and so before any call of it, whichever Ray delivers first
        instance.making = self._spawn(self._make(instance, errand, ready))
        instance.making.add_done_callback(lambda _: instance.turn.release())
        if (awaited := self._awaited.get(errand.order.actor)) is not None:
            awaited.set()
        try:
            return await asyncio.shield(instance.making)
        except CallFailure:
            raise
        except asyncio.CancelledError:
            if instance.death is not None:  # it was killed while it was made; else the caller takes its call back
                raise instance.death from None
            self.kill(instance.actor, "its making was cancelled")
            raise

    async def _make(self, instance: Instance, errand: Errand, ready: Ready) -> Value:
        try:
            await ready(errand)
            while instance.death is None:
                try:
                    await self._place(instance, errand)
                    return await instance.gang.serve(errand)
                except NotBegun as exc:
                    errand.tries += 1
                    await self._give_up_place(instance.gang)
                    if errand.tries >= TRIES:
                        raise exc.failure from exc
            raise instance.death
        except CallFailure as exc:
            self._bury(instance, exc)
            raise
        except Exception as exc:
            text = f"the desk could not make it: {type(exc).__name__}: {exc}"
            failure = CallFailure(str(Reason.SETUP_ERROR), text, where=errand.order.name)
            self._bury(instance, failure)
            raise failure from exc

    async def _place(self, instance: Instance, errand: Errand) -> None:
        gang = instance.gang
        gang.epoch += 1
        ticket = ticket_of(errand.order, gang.gang_id, gang.epoch)
        patience = errand.patience
        try:
            async with asyncio.timeout(patience):
                lease = await self._asks.acquire(ticket, partial(setattr, gang, "reason"))
        except Refused as exc:
            raise CallFailure(str(Reason.UNSCHEDULABLE), str(exc), where=errand.order.name) from exc
        except TimeoutError as exc:
            text = f"no room within capacity_timeout={patience:g} s: {gang.reason or 'its turn had not come'}"
            raise CallFailure(str(Reason.UNSCHEDULABLE), text, where=errand.order.name) from exc
        await gang.settle(lease)

    # Calling.

    async def _call(self, instance: Instance, errand: Errand, ready: Ready) -> Value:
        async with instance.turn:
            await ready(errand)
            if instance.death is not None:
                raise instance.death
            gang = instance.gang
            if gang.phase is Phase.LENT:
                await self._take_back(gang)
            try:
                return await gang.serve(errand)
            except NotBegun as exc:
                self._bury(instance, instance.leaving or exc.failure)
                raise self._death_of(instance.actor) from exc
            except CallFailure as exc:
                if instance.death is not None:
                    raise instance.death from exc
                if gang.has_children and not gang.is_broken:
                    raise
                self._bury(instance, exc)
                if exc.is_users or exc.reason == Reason.DEADLINE_EXCEEDED:  # which is this call's own
                    raise
                raise self._death_of(instance.actor) from exc

    async def _take_back(self, gang: Gang) -> None:
        self._on_recall(gang.client, gang.gang_id)
        gang.enter(Phase.BUSY)
        try:
            await gang.recall()
        except RayError:
            gang.is_broken = True

    # The end.

    def _find(self, actor: str) -> Instance | None:
        return self._alive.get(actor)

    def _death_of(self, actor: str, name: str = "") -> CallFailure:
        text = f"there is no instance {actor}: its making never came here, or it has ended since. Make a new one"
        unknown = CallFailure(str(Reason.PROCESS_DIED), text, where=name, actor=actor)
        return self._deaths.get(actor, unknown)

    def _lost(self, instance: Instance, reason: Reason, why: str) -> None:
        if not instance.turn.locked():  # else the call that runs tells of it, and better
            self._bury(instance, CallFailure(str(reason), why, where=instance.gang.where))

    def _bury(self, instance: Instance, failure: CallFailure) -> None:
        if instance.death is not None:
            return
        told = failure.with_fields(actor=instance.actor)
        if told.reason == Reason.DEADLINE_EXCEEDED:  # of one call; the others find it dead
            told = told.with_fields(reason=str(Reason.PROCESS_DIED))
        instance.death = self._deaths[instance.actor] = told
        while len(self._deaths) > _REMEMBERED:
            del self._deaths[next(iter(self._deaths))]
        self._alive.pop(instance.actor, None)
        making = instance.making
        if making is not None and not making.done() and making is not asyncio.current_task():
            making.cancel()
        clearing = self._clearing[instance.actor] = self._spawn(self._clear(instance, failure))
        clearing.add_done_callback(lambda _: self._clearing.pop(instance.actor, None))

    async def _clear(self, instance: Instance, failure: CallFailure) -> None:
        if instance.making is not None:  # what it is placing has to be there before it can be removed
            await asyncio.wait({instance.making})
        await instance.gang.end_children(failure.reason, failure.message)
        await self._give_up_place(instance.gang)

    async def _give_up_place(self, gang: Gang) -> None:
        try:
            await gang.vacate(rests=False)
        finally:
            await self._asks.release(gang.gang_id, gang.epoch)

    def _spawn(self, coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

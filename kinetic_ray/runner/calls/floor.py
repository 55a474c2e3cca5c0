"""Where calls meet gangs: holds both, and does what the roster decides whenever something has changed."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from kinetic_ray.core.state import Reason
from kinetic_ray.runner.calls import roster
from kinetic_ray.runner.calls.agents import Agent, Agents
from kinetic_ray.runner.calls.asks import Asks, Refused
from kinetic_ray.runner.calls.errands import TRIES, Errand, new_gang_id
from kinetic_ray.runner.calls.failures import CallFailure
from kinetic_ray.runner.calls.gangs import Gang, NotBegun
from kinetic_ray.runner.calls.lending import Hooks, Lending
from kinetic_ray.runner.calls.roster import Phase
from kinetic_ray.runner.calls.seating import ticket_of
from kinetic_ray.runner.calls.telling import Wait
from kinetic_ray.runner.calls.waiting import Waiting
from kinetic_ray.runner.calls.wish import Order
from kinetic_ray.runner.inbox import HostLost

#: Why calls wait for which no gang is asked for any more.
_AT_WORK = "waiting for a gang that is at work; there will be no other"
_LOG = logging.getLogger(__name__)


class Floor:
    """All gangs for functions, and the calls that wait for them. All in one event loop, so without locks."""

    def __init__(self, asks: Asks, agents: Agents, on_recall: Callable[[str, str], None], *, simulated: bool) -> None:
        """Starts empty.

        Args:
            asks: To the broker.
            agents: The cluster's.
            on_recall: Told of a process and the gang that isn't lent to it any more.
            simulated: Whether chips are CPU devices that stand for them.
        """
        self.gangs: dict[str, Gang] = {}
        self._asks = asks
        self._agents = agents
        self._on_recall = on_recall
        self._simulated = simulated
        self._waiting = Waiting()
        self._running: dict[str, Errand] = {}
        self._lending = Lending(Hooks(on_recall, self._do_release, self.turn, self._spawn))
        self._wanted: frozenset[str] = frozenset()
        self._refused: set[str] = set()
        self._left: set[str] = set()
        self._asking: dict[str, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._alarm: asyncio.TimerHandle | None = None
        self._turning = False

    def owner_at(self, agent: Agent) -> Gang | None:
        """The gang whose children are at an agent."""
        return self.gangs.get(agent.tenant)

    @property
    def borrowers(self) -> set[str]:
        """Processes whose calls may run where the desk doesn't see them."""
        return {one.client for one in self.gangs.values() if one.phase in (Phase.LENT, Phase.RECALLED)}

    @property
    def is_busy(self) -> bool:
        """Whether calls wait or run, or may run where the desk doesn't see them."""
        return bool(self._waiting or self._running or self.borrowers)

    def waits(self) -> list[Wait]:
        """The calls that wait, and why."""
        reasons: dict[str, str] = {}
        for gang in self.gangs.values():
            if gang.phase is Phase.ASKING:
                reasons.setdefault(gang.key, gang.reason or "the slice broker hasn't answered yet")
        return [
            Wait(need.number, need.client, name, need.key, reasons.get(need.key, _AT_WORK))
            for need, name in self._waiting.told()
        ]

    # What happens.

    def add(self, errand: Errand) -> None:
        """A call whose arguments are there."""
        if errand.done.done():
            return
        self._left.discard(errand.order.client)
        self._waiting.add(errand)
        if (patience := errand.patience) is not None:
            alarm = asyncio.get_running_loop().call_later(patience, self._out_of_patience, errand, patience)
            errand.done.add_done_callback(lambda _: alarm.cancel())  # it would keep arguments and value till then
        self.turn()

    def drop(self, errand: Errand, message: str) -> None:
        """Nobody waits for the call any more: it is ended if it runs."""
        self._waiting.pop(errand.number)
        gang = self.gangs.get(errand.gang)
        if gang is not None and self._running.get(gang.gang_id) is errand:
            self._spawn(gang.end_children(str(Reason.CANCELLED), message))
        self._fail(errand, CallFailure(str(Reason.CANCELLED), message, where=errand.order.name))
        self.turn()

    def leave(self, client: str) -> None:
        """A process has gone: what it had is free again."""
        self._lending.forget(client)
        self._left.add(client)
        for gang in self.gangs.values():
            if gang.client != client:
                continue
            if gang.phase is Phase.LENT:
                self._lending.recall(gang, is_gone=True)
            elif gang.phase is Phase.RECALLED:
                self._lending.abandon(gang)
        gone = "the process that called it has gone"
        for errand in [*self._waiting.all(), *self._running.values()]:
            if errand.order.client == client:
                self.drop(errand, gone)

    async def lend(self, client: str, key: str, patience: float) -> dict[str, Any] | None:
        """A gang for the process alone, once there is one that is idle after serving it."""
        return await self._lending.borrow(client, key, patience)

    def lose_host(self, lost: HostLost) -> None:
        self._agents.lose_node(lost.node_id)
        for gang in list(self.gangs.values()):
            if gang.lose_host(lost):
                self._lost(gang)

    def expect_loss(self, node_id: str) -> None:
        """A host is about to be taken away: what runs there may use its time of grace, nothing new begins."""
        for gang in list(self.gangs.values()):
            if gang.expect_loss(node_id):
                self._lost(gang)

    def lose_agent(self, agent: Agent, why: str) -> None:
        for gang in list(self.gangs.values()):
            if gang.lose_agent(agent, why):
                self._lost(gang)

    def displace(self, gang_id: str) -> None:
        """One of a resting gang's places was given to another gang."""
        gang = self.gangs.get(gang_id)
        if gang is not None and gang.phase is Phase.RESTING:
            self._do_end(gang)

    def want(self, wanted: list[str], waiting: set[str]) -> None:
        """The broker says which leases are wanted, and who waits."""
        keys = {gang.gang_id: gang.key for gang in self.gangs.values()}
        self._wanted = roster.wanted_by_others(wanted, waiting, keys)
        self.turn()

    def _lost(self, gang: Gang) -> None:
        if gang.phase is Phase.LENT:  # a call may run there, with its time of grace
            self._lending.recall(gang)
        elif gang.phase is Phase.IDLE:
            self._do_release(gang)
        elif gang.phase is Phase.RESTING:
            self._do_end(gang)

    # Deciding and doing.

    def turn(self) -> None:
        """Looks at everything again, once whatever happens now has happened."""
        if not self._turning:
            self._turning = True
            asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        self._turning = False
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        now = time.monotonic()
        self._left &= {one.client for one in self.gangs.values()}
        standings = [
            one.standing(is_wanted=one.gang_id in self._wanted, is_left=one.client in self._left)
            for one in self.gangs.values()
        ]
        self._refused &= {one.key for one in standings if one.phase is not Phase.RESTING}
        needs = self._waiting.needs(len(standings) + roster.MAX_ASKS)
        plan = roster.plan(needs, standings, now, self._lending.borrowers, self._refused)
        for step in plan.steps:
            self._do(step)
        if plan.look_at is not None:
            later = max(0.0, plan.look_at - now) + 0.001
            self._alarm = asyncio.get_running_loop().call_later(later, self.turn)

    def _do(self, step: roster.Step) -> None:
        match step:
            case roster.Serve(gang, number):
                self._do_serve(self.gangs[gang], number)
            case roster.Ask(number, gang):
                self._do_ask(self._waiting[number], gang)
            case roster.Withdraw(gang):
                self._do_withdraw(self.gangs[gang])
            case roster.Recall(gang):
                self._lending.recall(self.gangs[gang])
            case roster.Lend(gang, client):
                self._lending.lend(self.gangs[gang], client)
            case roster.Release(gang):
                self._do_release(self.gangs[gang])
            case roster.End(gang):
                self._do_end(self.gangs[gang])

    def _do_serve(self, gang: Gang, number: int) -> None:
        errand = self._waiting[number]
        self._waiting.pop(number)
        gang.enter(Phase.BUSY)
        errand.gang = gang.gang_id
        errand.tries += 1
        self._running[gang.gang_id] = errand
        self._spawn(self._serve(gang, errand))

    async def _serve(self, gang: Gang, errand: Errand) -> None:
        try:
            value = await gang.serve(errand)
            if not errand.done.done():
                errand.done.set_result(value)
        except NotBegun as exc:
            self._try_again(errand, exc.failure)
        except CallFailure as exc:
            self._fail(errand, exc)
        except BaseException as exc:
            gang.is_broken = True
            text = f"the desk could not serve it: {type(exc).__name__}: {exc}"
            self._fail(errand, CallFailure(str(Reason.SETUP_ERROR), text, where=errand.order.name))
            raise
        finally:
            del self._running[gang.gang_id]
            if gang.is_broken:
                self._do_release(gang)
            else:
                gang.enter(Phase.IDLE)
            self.turn()

    def _do_ask(self, errand: Errand, gang_id: str | None) -> None:
        gang = self.gangs.get(gang_id or "")
        if gang is None:
            new_id = new_gang_id()
            gang = self.gangs[new_id] = Gang(new_id, errand, self._agents, simulated=self._simulated)
        gang.enter(Phase.ASKING)
        gang.epoch += 1
        self._asking[gang.gang_id] = self._spawn(self._ask(gang, errand.order))

    async def _ask(self, gang: Gang, order: Order) -> None:
        ticket = ticket_of(order, gang.gang_id, gang.epoch)
        try:
            lease = await self._asks.acquire(ticket, partial(setattr, gang, "reason"))
            await gang.settle(lease)
        except Refused as exc:
            self._refuse(gang, str(exc))
        except NotBegun as exc:
            first = self._waiting.first_of(gang.key)
            if first is not None:
                first.tries += 1
                self._waiting.pop(first.number)
                self._try_again(first, exc.failure)
            self._do_release(gang)
        except Exception as exc:
            self._refuse(gang, f"the desk could not ask for it: {type(exc).__name__}: {exc}")
            raise
        else:
            gang.enter(Phase.IDLE)
        finally:
            self._asking.pop(gang.gang_id, None)
        self.turn()

    def _refuse(self, gang: Gang, why: str) -> None:
        """Calls for which there will be no gang at all fail; where there are some, they wait for those."""
        self._do_release(gang)
        with_lease = (Phase.IDLE, Phase.BUSY, Phase.LENT, Phase.RECALLED)
        if any(one.key == gang.key and one.phase in with_lease for one in self.gangs.values()):
            self._refused.add(gang.key)
            return
        while (errand := self._waiting.first_of(gang.key)) is not None:
            self._waiting.pop(errand.number)
            self._fail(errand, CallFailure(str(Reason.UNSCHEDULABLE), why, where=errand.order.name))

    def _do_withdraw(self, gang: Gang) -> None:
        if gang.lease is not None:  # granted: what is being placed has to be there before it can be removed
            return
        if (asking := self._asking.pop(gang.gang_id, None)) is not None:
            asking.cancel()
        self._do_release(gang)

    def _do_release(self, gang: Gang) -> None:
        """Gives the lease back, or the ticket."""
        gang.enter(Phase.LEAVING)
        self._spawn(self._release(gang))

    async def _release(self, gang: Gang) -> None:
        rests = gang.can_rest
        try:
            await gang.vacate(rests=rests)
        except BaseException:
            gang.is_broken = True
            raise
        finally:
            await self._asks.release(gang.gang_id, gang.epoch)
            gang.lease = None
            if rests and not gang.is_broken:
                gang.enter(Phase.RESTING)
            else:
                self.gangs.pop(gang.gang_id, None)
            self.turn()

    def _do_end(self, gang: Gang) -> None:
        self.gangs.pop(gang.gang_id, None)
        self._spawn(gang.end_children("", ""))

    # Calls that get no value.

    def _try_again(self, errand: Errand, failure: CallFailure) -> None:
        errand.gang = ""
        if errand.done.done():
            return
        if errand.tries < TRIES:
            self._waiting.add(errand)
        else:
            self._fail(errand, failure)

    def _out_of_patience(self, errand: Errand, patience: float) -> None:
        if self._waiting.pop(errand.number) is None:
            return
        reasons = [one.reason for one in self.gangs.values() if one.key == errand.need.key and one.reason]
        text = f"no room within capacity_timeout={patience:g} s: {reasons[0] if reasons else 'its turn had not come'}"
        self._fail(errand, CallFailure(str(Reason.UNSCHEDULABLE), text, where=errand.order.name))
        self.turn()

    def _fail(self, errand: Errand, failure: CallFailure) -> None:
        if not errand.done.done():
            errand.done.set_exception(failure)

    def _spawn(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._finished)
        return task

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _LOG.error("a task of the desk broke off", exc_info=error)

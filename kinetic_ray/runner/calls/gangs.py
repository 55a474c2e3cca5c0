"""One gang that serves calls: its hosts, its children, and what a call on all of them comes to."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import replace
from typing import Any

import ray
from ray.exceptions import RayActorError, RayError, RayTaskError

from kinetic_ray.core.state import Reason
from kinetic_ray.runner.calls.agents import Agent, Agents
from kinetic_ray.runner.calls.errands import Errand, Value, keys_of
from kinetic_ray.runner.calls.failures import CallFailure
from kinetic_ray.runner.calls.heads import call_head
from kinetic_ray.runner.calls.packing import Packed, PackedList
from kinetic_ray.runner.calls.placing import await_place, take_place
from kinetic_ray.runner.calls.roster import Phase, Standing
from kinetic_ray.runner.calls.rounds import Round, last_line
from kinetic_ray.runner.calls.seating import Meeting, plan_key, tasks_of
from kinetic_ray.runner.inbox import HostLost
from kinetic_ray.runner.queue import CPU, Lease
from kinetic_ray.runner.slices import Host, Misplaced, Placement, check_hosts, hosts_of, node_address

#: Seconds that an idle gang keeps its lease while nobody wants it.
KEEPS_CPUS, KEEPS_SLICES = 1.0, 300.0
#: Until Ray's head knows that a removed group's resources are free. Who wants them sooner waits half a second or more.
_NOTED_WITHIN = 0.11
#: Arguments of this size are put into Ray's store once for all ranks.
_SHARED = 100 << 10
_HEADS = 256


class NotBegun(Exception):
    """The gang was lost, or could not be made ready, before any rank had the call: it may be served elsewhere."""

    def __init__(self, failure: CallFailure) -> None:
        super().__init__(failure.message)
        self.failure = failure


class Gang:
    """Agents and warm children that serve one call after the other.

    Attributes:
        gang_id: Its id, under which it holds leases.
        order: The order that it was made for, or served last.
        key: What it is made for.
        stem: The same without the code.
        phase: What it does.
        since: Since when.
        client: Whom it served last, or is lent to.
        epoch: Of its newest ticket.
        lease: What it holds.
        has_served: Whether it has served under this lease.
        is_broken: Whether it has lost a host, so that its lease is worth nothing.
        has_children: Whether there are warm children.
        lends: How often it was lent.
        door: Held while it is lent or recalled.
        reason: Why it waits for a lease, or for its hosts.
    """

    def __init__(self, gang_id: str, errand: Errand, agents: Agents, *, simulated: bool) -> None:
        self.gang_id = gang_id
        self.order = order = errand.order
        self.key, self.stem = keys_of(errand.told)
        self.phase = Phase.ASKING
        self.since = time.monotonic()
        self.client = order.client
        self.epoch = 0
        self.lease: Lease | None = None
        self.has_served = False
        self.is_broken = False
        self.has_children = False
        self.lends = 0
        self.door = asyncio.Lock()
        self.reason = ""
        self.hosts: tuple[Host, ...] = ()
        self._agents = agents
        self._simulated = simulated
        self._placement: Placement | None = None
        self._mine: list[Agent] = []
        self._seat: str | None = None  # whose calls the hosts take; None: nobody's
        self._round: Round | None = None
        self._moving = asyncio.Lock()  # while children come and go: an end must not hit those that come after
        self._heads: dict[tuple[bytes, str, bool], bytes] = {}

    @property
    def where(self) -> str:
        """For people, e.g. "train on tpu-v6e-16-0"."""
        names = sorted({host.slice_name for host in self.hosts if host.slice_name})
        return f"{self.order.name} on {', '.join(names) or CPU}"

    @property
    def agent(self) -> Agent:
        """That of rank 0."""
        return self._mine[0]

    @property
    def can_rest(self) -> bool:
        """Whether its children may stay without a lease: those on CPUs take next to nothing while they wait."""
        return self.has_children and self.order.wish.accelerator == CPU and not self.is_broken

    def enter(self, phase: Phase) -> None:
        self.phase = phase
        self.since = time.monotonic()

    def standing(self, *, is_wanted: bool, is_left: bool = False) -> Standing:
        wish = self.order.wish
        return Standing(
            self.gang_id,
            self.key,
            self.phase,
            self.since,
            self.stem,
            (wish.accelerator, wish.chips_per_host),
            self.client,
            self.has_served,
            is_wanted,
            KEEPS_CPUS if wish.accelerator == CPU else KEEPS_SLICES,
            lends=wish.ranks == 1,
            is_left=is_left,
        )

    # Its place.

    async def settle(self, lease: Lease) -> None:
        """Takes the place that it was granted.

        Raises:
            NotBegun: The place is not to be had.
        """
        self.lease, self.has_served, self.is_broken = lease, False, False
        self.reason = "its hosts are being made ready"
        before = self._mine
        try:
            self._placement = await take_place(lease)
            places = zip(hosts_of(lease), await await_place(self._placement), strict=True)
            hosts = [replace(host, node_id=host.node_id or node) for host, node in places]
            plan = plan_key(self.order.wish)
            self._mine = [self._agents.take(host, self.gang_id, plan, self.stem) for host in hosts]
            for agent in self._mine:
                agent.stem, agent.plan = self.stem, plan
            found = await asyncio.gather(*(agent.describe() for agent in self._mine))
            self.hosts = check_hosts(hosts, found)
        except (Misplaced, RayError) as exc:
            self.is_broken = True
            raise NotBegun(self._failure(Reason.SETUP_ERROR, f"the hosts could not be made ready: {exc}")) from exc
        if any(agent.tenant != self.gang_id for agent in self._mine):  # others were there, or it is another place
            await self._leave_behind([agent for agent in before if agent not in self._mine])

    async def vacate(self, *, rests: bool) -> None:
        """Leaves its place; what it leaves there is at most warm children, which take nothing of the lease."""
        if not rests:
            await self.end_children("", "")
        self._agents.give_back(self._mine)
        if not rests:
            self._mine = []
        placement, self._placement = self._placement, None
        if placement is not None:
            await asyncio.to_thread(placement.remove)
            await asyncio.sleep(_NOTED_WITHIN)

    async def end_children(self, reason: str, message: str) -> None:
        """Ends all children with all below them; a running call fails for the reason given."""
        async with self._moving:
            await self._end_all(reason, message)

    async def _end_all(self, reason: str, message: str) -> None:
        self._seat, self.has_children = None, False
        await asyncio.gather(*(one.end(self.gang_id, reason, message) for one in self._mine if not one.dead))

    async def _leave_behind(self, agents: Sequence[Agent]) -> None:
        """Its children at a former place are of no use any more."""
        self._seat = None
        await asyncio.gather(*(one.end(self.gang_id) for one in agents if not one.dead))

    # Lending.

    async def lend(self, client: str) -> None:
        """Lets a process call the host directly."""
        await self._open(client, None)
        self.client = client
        self.lends += 1

    async def recall(self) -> None:
        """Takes that back; returns when no call runs there any more."""
        self._seat = None
        await self.agent.actor.retire.remote(self.gang_id)

    async def unused_for(self) -> float:
        """Seconds since a process that it is lent to has used it."""
        seconds: float = await self.agent.actor.unused_for.remote()
        return seconds

    async def end_if_used(self, still: Callable[[], bool] = lambda: True) -> None:
        """Ends what runs there for nobody, if it is `still` so that nothing else can run there."""
        if await self.unused_for() == 0.0 and still():
            await self.end_children(str(Reason.CANCELLED), "the process that called it has gone")

    # A call.

    async def serve(self, errand: Errand) -> Value:
        """Runs a call on all ranks.

        Raises:
            NotBegun: No rank has had it.
            CallFailure: It has no value.
        """
        key, self.stem = keys_of(errand.told)
        if key != self.key and errand.order.kind == "function":  # an instance stays where it is
            self.key, self._seat = key, None
        self.order, self.client, self.has_served = errand.order, errand.order.client, True
        try:
            if self._seat != "":
                await self._open("", errand.code.archive)
            await self._teach(errand)
        except RayActorError as exc:
            self.is_broken = True
            raise NotBegun(self._failure(Reason.NODE_LOST, f"a host was lost: {last_line(exc)}")) from exc
        except RayError as exc:
            await self.end_children(str(Reason.CANCELLED), "its gang could not begin")
            raise self._told(exc, None) from exc
        if self.is_broken:
            raise NotBegun(self._failure(Reason.NODE_LOST, "a host was lost"))
        if errand.done.done():  # nobody waits for it any more
            raise self._failure(Reason.CANCELLED, "it was cancelled before it began")
        return await self._run(errand)

    def lose_host(self, lost: HostLost) -> bool:
        """A host is gone; whether it was one of its."""
        if all(host.node_id != lost.node_id for host in self.hosts) or not self._mine:
            return False
        self.is_broken = True
        if self._round is not None:
            self._round.lose_host(lost)
        return True

    def expect_loss(self, node_id: str) -> bool:
        """A host is about to be taken away, which its rank is told if it is at work; whether it is one of its."""
        going = [agent for agent in self._mine if agent.node_id == node_id]
        self.is_broken = self.is_broken or bool(going)
        if self._round is not None:  # before any rank can fail of it
            self._round.expect_loss(node_id)
        for agent in going:
            agent.actor.announce_end.remote(self.gang_id)
        return bool(going)

    def lose_agent(self, agent: Agent, why: str) -> bool:
        """An agent is gone; whether it was one of its."""
        if agent not in self._mine:
            return False
        self.is_broken = True
        if self._round is not None:
            self._round.lose_agent(self._mine.index(agent), why)
        return True

    async def _open(self, client: str, archive: Any) -> None:
        """Has every host ready for calls; a warm child of a gang of one stays."""
        async with self._moving:
            self._seat = None
            if len(self._mine) > 1:  # children that have met others can't meet anew
                await self._end_all(str(Reason.CANCELLED), "its gang begins anew")
            await self._open_all(client, archive)
            self._seat = client

    async def _open_all(self, client: str, archive: Any) -> None:
        wish = self.order.wish
        tasks = tasks_of(wish, self.gang_id, self.hosts, await self._meeting(), simulated=self._simulated)
        opening = []
        for agent, task, host in zip(self._mine, tasks, self.hosts, strict=True):
            seat = {"gang": self.gang_id, "client": client, "wish": wish.to_dict(), "task": task.to_dict()}
            seat["prints"] = (self.order.client, self.order.name, host.where)
            has_it = agent.archive == wish.bundle
            opening.append(_answer(agent.actor.open.remote(seat, None if has_it else archive)))
            agent.tenant, agent.archive = self.gang_id, wish.bundle
            agent.opened = (self.gang_id, self.order)
        self.has_children = True
        await _all(opening)

    async def _meeting(self) -> Meeting:
        slices = max(1, self.order.wish.num_slices)
        if len(self._mine) == 1:
            return Meeting()
        address = await asyncio.to_thread(node_address, self.hosts[0].node_id)
        ports = [await self.agent.actor.free_port.remote() for _ in range(2 if slices > 1 else 1)]
        return Meeting(*(f"{address}:{port}" for port in ports))

    async def _teach(self, errand: Errand) -> None:
        digest = errand.order.function
        new = [agent for agent in self._mine if not agent.knows(digest)]
        if new and errand.code.function is None:
            raise self._failure(Reason.SETUP_ERROR, "its code is not known here any more: call again")
        await _all([_answer(agent.actor.learn.remote(digest, errand.code.function)) for agent in new])
        for agent in new:
            agent.note_learned(digest)

    async def _run(self, errand: Errand) -> Value:
        packed = errand.packed
        if isinstance(packed, Packed) and len(self._mine) > 1 and packed.nbytes > _SHARED:
            packed = await asyncio.to_thread(ray.put, packed)
        this = self._round = Round(self.hosts, self._mine, self.end_children, self._told)
        try:
            values = await this.hear([self._send(agent, errand, host, packed) for agent, host in self._places()])
        finally:
            self._round = None
        if this.book.has_failed:
            self.is_broken = self.is_broken or bool(this.book.lost)
            raise this.book.verdict(self.where, self.gang_id)
        if errand.order.gather == "all":
            return PackedList([values[rank] for rank in range(len(self._mine))])
        return values[0]

    def _places(self) -> Iterator[tuple[Agent, Host]]:
        return zip(self._mine, self.hosts, strict=True)

    def _send(self, agent: Agent, errand: Errand, host: Host, packed: Any) -> Any:
        order = errand.order
        keeps = host.rank == 0 or order.gather == "all"
        known = (errand.told, "", keeps)
        if (head := self._heads.get(known)) is None:
            if len(self._heads) >= _HEADS:
                self._heads.clear()
            head = self._heads[known] = call_head(gang=self.gang_id, client="", order=order, keeps=keeps)
        return agent.actor.call.options(name=f"{order.name} on {host.where}").remote(head, packed)

    def _told(self, error: BaseException, rank: int | None) -> CallFailure:
        cause = error.cause if isinstance(error, RayTaskError) else error
        if isinstance(cause, CallFailure):
            if cause.reason == Reason.SETUP_ERROR and rank is not None:
                self._mine[rank].learned.clear()  # it may have forgotten what it was told
            return cause if cause.rank is not None else cause.with_fields(rank=rank)
        return self._failure(Reason.SETUP_ERROR, last_line(cause)).with_fields(rank=rank)

    def _failure(self, reason: Reason, message: str) -> CallFailure:
        return CallFailure(str(reason), message, where=self.where, gang=self.gang_id)


async def _all(coroutines: Sequence[Coroutine[Any, Any, Any]]) -> None:
    """Waits for all, also if one fails; then raises the first failure."""
    for result in await asyncio.gather(*coroutines, return_exceptions=True):
        if isinstance(result, BaseException):
            raise result


async def _answer(ref: Any) -> Any:
    return await ref

"""The desk's host agents: Ray actors that serve one gang after the other, kept while their node lives."""

from __future__ import annotations

import asyncio
import secrets
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from kinetic_ray.core.state import Reason
from kinetic_ray.runner.calls.failures import CallFailure
from kinetic_ray.runner.calls.functions import Functions
from kinetic_ray.runner.calls.heads import read_head, split
from kinetic_ray.runner.calls.host import CallHost
from kinetic_ray.runner.calls.packing import Packed
from kinetic_ray.runner.calls.wish import Order
from kinetic_ray.runner.slices import Host

#: Concurrent calls of an agent: those that wait for their turn, the control of it, those that clients send themselves.
_CALLS, _CONTROL, _DIRECT = 8, 8, 4
#: Agents that rest on one node with warm children; where there are as many, the one that has rested longest is used.
MAX_RESTING = 6
#: Agents without children that are kept on a node, and the seconds after which others end.
KEPT, UNUSED = 2, 300.0
#: Until an agent that doesn't answer is killed.
PATIENCE = 15.0
#: Seconds that a call that came too late waits for its function, to be passed on with it.
_ON_ITS_WAY = 5.0
#: Functions that an agent is believed to know.
_LEARNED = 32

Method = TypeVar("Method", bound=Callable[..., Any])


def _control(method: Method) -> Method:
    """Of those that have threads of their own, so that no call holds them up."""
    return cast(Method, ray.method(concurrency_group="control")(method))


def _direct(method: Method) -> Method:
    """Of those that clients call: few threads, which stay warm, and none that the desk's own calls might wait for."""
    return cast(Method, ray.method(concurrency_group="direct")(method))


class RemoteCallHost:
    """A :class:`CallHost` in its actor. Speaks to the desk, and knows when it was last used."""

    def __init__(self, title: str, desk: Any, place: str) -> None:
        """Does nothing yet.

        Args:
            title: What Ray shows for this actor.
            desk: The desk's handle.
            place: By what name the desk knows this agent.
        """
        self._host = CallHost(title, self._say, self._forward, in_actor=True)
        self._desk = desk
        self._place = place
        self._running: set[int] = set()  # threads
        self._for_desk: set[int] = set()  # those of them that run the desk's own calls
        self._used_at = time.monotonic()
        self._functions = Functions()
        self._archive: tuple[str, Any] = ("", None)

    def __repr__(self) -> str:
        return repr(self._host)

    @_control
    def describe(self) -> dict[str, Any]:
        return self._host.describe()

    @_control
    def free_port(self) -> int:
        return self._host.free_port()

    @_control
    def hold(self) -> None:
        self._host.hold()

    @_control
    def open(self, seat: dict[str, Any], bundle: bytes | None = None) -> dict[str, Any]:
        if bundle is not None:
            self._archive = (seat["wish"]["bundle"], bundle)
        self._used_at = time.monotonic()
        return self._host.open(seat, bundle)

    @_control
    def retire(self, gang: str) -> None:
        self._host.retire(gang)

    @_control
    def end(self, gang: str, reason: str = "", message: str = "") -> None:
        self._host.end(gang, reason, message)

    @_control
    def announce_end(self, gang: str) -> None:
        self._host.announce_end(gang)

    @_control
    def stop(self) -> None:
        self._host.stop()

    @_control
    def unused_for(self) -> float:
        """Seconds since the last call ended; 0 while one runs."""
        return 0.0 if self._running else time.monotonic() - self._used_at

    def learn(self, digest: str, function: Packed) -> None:
        self._functions.add(digest, function)
        self._host.learn(digest, function)

    @_direct
    def direct(self, head: bytes, packed: Packed | bytes | None = None) -> Packed:
        """A call from the client to whom this host is lent."""
        return self._serve(head, packed)

    def call(self, head: bytes, packed: Packed | bytes | None = None) -> Packed:
        if packed is None:
            head, packed = split(head)
        if read_head(head).client != "":
            return self._serve(head, packed)
        self._for_desk.add(threading.get_ident())
        try:
            return self._serve(head, packed)
        finally:
            self._for_desk.discard(threading.get_ident())

    def _serve(self, head: bytes, packed: Packed | bytes | None) -> Packed:
        thread = threading.get_ident()
        self._running.add(thread)
        try:
            return cast(Packed, self._host.call(head, packed))
        finally:
            self._used_at = time.monotonic()
            self._running.discard(thread)

    def _say(self, client: str, rank: int, name: str, lines: Sequence[str]) -> None:
        self._desk.say.remote(self._place, client, rank, name, list(lines))

    def _forward(self, order: bytes, packed: Packed) -> Packed:
        """A call that came too late for this host goes to the desk, with the code that it needs."""
        told = Order.from_bytes(order)
        if threading.get_ident() in self._for_desk:  # its gang is served with it: passed on, it would wait for itself
            text = f"{told.name}: its gang is not open on this host any more"
            raise CallFailure(str(Reason.SETUP_ERROR), text)
        # It may be on its way still: Ray keeps no order in an actor with threads.
        function = self._functions.get(told.function, _ON_ITS_WAY if told.kind == "function" else 0.0)
        digest, archive = self._archive
        has_archive = archive is not None and digest == told.wish.bundle
        code = [None if function is None else ray.put(function), ray.put(archive) if has_archive else None]
        value: Packed = ray.get(self._desk.call.remote(order, code, packed))
        return value


@dataclass(eq=False)
class Agent:
    """The desk's end of one.

    Attributes:
        place: Its name.
        node_id: Where it is.
        actor: Its handle.
        tenant: Id of the gang whose children are there; "" for none.
        plan: What its zygote was made for.
        stem: What the tenant was made for, but for its code.
        used: Whether a gang has it now.
        rested_at: Since when none has.
        learned: Digests of the functions that it was told last.
        archive: Digest of the last archive that it was sent.
        dead: Why it is gone, once it is.
        slice_name: The slice that its host belongs to; "" for a CPU host.
        opened: The gang that it was opened for last, and what that served.
    """

    place: str
    node_id: str
    actor: Any
    tenant: str = ""
    plan: str = ""
    stem: str = ""
    used: bool = True
    rested_at: float = 0.0
    learned: dict[str, None] = field(default_factory=dict)
    archive: str = ""
    found: dict[str, Any] | None = None
    dead: str = ""
    slice_name: str = ""
    opened: tuple[str, Order] | None = None

    @property
    def actor_id(self) -> str:
        """As Ray's errors name it."""
        return str(self.actor._actor_id.hex())  # noqa: SLF001 - a handle says it nowhere else

    def knows(self, digest: str) -> bool:
        """Whether it knows a function; one that was used long ago it may have forgotten."""
        if digest not in self.learned:
            return False
        self.learned[digest] = self.learned.pop(digest)
        return True

    def note_learned(self, digest: str) -> None:
        self.learned[digest] = None
        while len(self.learned) > _LEARNED:
            del self.learned[next(iter(self.learned))]

    async def describe(self) -> dict[str, Any]:
        """What it says of its host."""
        if self.found is None:
            self.found = await self.actor.describe.remote()
        return self.found

    async def end(self, gang: str, reason: str = "", message: str = "") -> None:
        """Ends a gang's child; an agent that doesn't answer goes with it."""
        try:
            await asyncio.wait_for(_answer(self.actor.end.remote(gang, reason, message)), PATIENCE)
        except (TimeoutError, RayError):
            self.kill()
        if self.tenant == gang:
            self.tenant = ""

    def kill(self) -> None:
        """Ends it and all that it runs."""
        ray.kill(self.actor, no_restart=True)


class Agents:
    """All agents of the cluster, in one event loop."""

    def __init__(self, desk: Any, on_death: Callable[[Agent, str], None], on_displaced: Callable[[str], None]) -> None:
        """Starts with none.

        Args:
            desk: The desk's handle, for the agents.
            on_death: Told of an agent that is gone, and why.
            on_displaced: Told of a gang that rests, and one of whose places is given to another.
        """
        self._desk = desk
        self._on_death = on_death
        self._on_displaced = on_displaced
        self._all: dict[str, Agent] = {}
        self._watches: set[asyncio.Task[None]] = set()

    def at(self, place: str) -> Agent | None:
        return self._all.get(place)

    def find(self, actor_id: str) -> Agent | None:
        """One that lives as far as is known."""
        return next((agent for agent in self._all.values() if agent.actor_id == actor_id), None)

    def take(self, host: Host, gang: str, plan: str, stem: str) -> Agent:
        """An agent on a host for a gang: the one that has its children, else one that rests, else a new one."""
        here = [agent for agent in self._all.values() if agent.node_id == host.node_id and not agent.used]
        chosen = choose(here, gang, plan, stem, at_most=1 if host.slice_name else MAX_RESTING)
        if chosen is None:
            return self._create(host)
        chosen.used = True
        if chosen.tenant not in ("", gang):
            displaced, chosen.tenant = chosen.tenant, ""
            self._on_displaced(displaced)
        return chosen

    def give_back(self, agents: Sequence[Agent]) -> None:
        """The gang that had them has no lease any more; its children may stay."""
        for agent in agents:
            agent.used = False
            agent.rested_at = time.monotonic()

    def trim(self) -> None:
        """Ends what is left of a time when many were at work at once: each takes its memory."""
        for agent in surplus(list(self._all.values()), time.monotonic()):
            agent.used = True  # nobody takes it any more
            agent.kill()

    def lose_node(self, node_id: str) -> None:
        """A node is gone, and all agents there."""
        for agent in list(self._all.values()):
            if agent.node_id == node_id:
                agent.kill()

    def _create(self, host: Host) -> Agent:
        place = f"calls/{host.slice_name or 'cpu'}/host-{host.worker_id}/{secrets.token_hex(4)}"
        options = {
            "name": place,
            "num_cpus": 0,
            "max_restarts": 0,
            "max_concurrency": _CALLS,
            "scheduling_strategy": NodeAffinitySchedulingStrategy(host.node_id, soft=False),
        }
        kind = ray.remote(concurrency_groups={"control": _CONTROL, "direct": _DIRECT})(RemoteCallHost)
        actor = kind.options(**options).remote(f"calls on {host.where}", self._desk, place)
        agent = self._all[place] = Agent(place, host.node_id, actor, slice_name=host.slice_name)
        watch = asyncio.ensure_future(self._watch(agent))
        self._watches.add(watch)
        watch.add_done_callback(self._watches.discard)
        return agent

    async def _watch(self, agent: Agent) -> None:
        try:
            await agent.actor.hold.remote()
            why = "it was stopped"
        except RayError as exc:
            why = str(exc).strip().splitlines()[0]
            agent.kill()  # one that only could not be reached must not go on either
        agent.dead = why
        self._all.pop(agent.place, None)
        self._on_death(agent, why)


def surplus(agents: Sequence[Agent], now: float) -> list[Agent]:
    """Agents that can go: unused for long, with nobody's children, and more of them on their node than are kept."""
    spare: dict[str, list[Agent]] = defaultdict(list)
    for agent in sorted(agents, key=lambda agent: -agent.rested_at):
        if not agent.used and agent.tenant == "" and now - agent.rested_at > UNUSED:
            spare[agent.node_id].append(agent)
    return [agent for on_node in spare.values() for agent in on_node[KEPT:]]


def choose(resting: Sequence[Agent], gang: str, plan: str, stem: str, at_most: int) -> Agent | None:
    """The best of a node's agents that no gang has now; None for a new one.

    Args:
        resting: These.
        gang: Who asks.
        plan: What its zygote has to be made for.
        stem: What the gang is made for, but for its code: warm children of older code are of little use.
        at_most: With as many that rest no new one is made.
    """

    def rank(agent: Agent) -> tuple[bool, bool, bool, bool, float]:
        is_free = agent.tenant == ""
        return agent.tenant != gang, not is_free, agent.stem != stem, agent.plan not in ("", plan), agent.rested_at

    best = min(resting, key=rank, default=None)
    if best is None or best.tenant in (gang, "") or best.stem == stem or len(resting) >= at_most:
        return best
    return None


async def _answer(ref: Any) -> Any:
    return await ref

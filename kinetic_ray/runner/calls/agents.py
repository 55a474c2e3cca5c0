"""The desk's host agents: Ray actors that serve one gang after the other, kept while their node lives."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from kinetic_ray.runner.calls.remote_host import RemoteCallHost
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
#: Functions that an agent is believed to know.
_LEARNED = 32


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
        heard: Number of the last lines that it has passed on.
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
    heard: int = 0

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

    def is_news(self, number: int) -> bool:
        """Whether lines come for the first time: it says again what it isn't sure to have said."""
        is_news, self.heard = number > self.heard, max(number, self.heard)
        return is_news

    async def flush(self, client: str, patience: float) -> None:
        """Has it pass on what was printed by now, for a client that goes; gives up after `patience` seconds."""
        with contextlib.suppress(TimeoutError, RayError):
            await asyncio.wait_for(_answer(self.actor.flush.remote(client, patience)), patience)

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

    async def flush(self, client: str, patience: float) -> None:
        """Has all of them pass on what was printed by now."""
        await asyncio.gather(*(agent.flush(client, patience) for agent in self._all.values() if agent.opened))

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

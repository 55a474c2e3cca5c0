"""What became of a host that a process called itself: Ray tells it of an actor, the desk knows whose and why."""

from __future__ import annotations

import asyncio
import contextlib
from collections import OrderedDict, deque
from collections.abc import Callable

from kinetic_ray.core.state import Reason
from kinetic_ray.runner.book import reading_of
from kinetic_ray.runner.calls.agents import Agent
from kinetic_ray.runner.calls.failures import CallFailure
from kinetic_ray.runner.calls.verdict import LOOK_AROUND
from kinetic_ray.runner.inbox import HostLost
from kinetic_ray.runner.slices import node_is_alive

#: Hosts and agents whose ends are remembered.
_REMEMBERED = 256


class Fates:
    """The ends of hosts and agents, in one event loop."""

    def __init__(self, is_alive: Callable[[str], bool] = node_is_alive, patience: float = LOOK_AROUND) -> None:
        """Knows of none.

        Args:
            is_alive: Whether Ray believes in a node.
            patience: Seconds in which word of a host may still come.
        """
        self._is_alive = is_alive
        self._patience = patience
        self._hosts: OrderedDict[str, HostLost] = OrderedDict()
        self._agents: deque[Agent] = deque(maxlen=_REMEMBERED)
        self._news = asyncio.Event()

    def lose_host(self, lost: HostLost) -> None:
        self._hosts[lost.node_id] = lost
        while len(self._hosts) > _REMEMBERED:
            self._hosts.popitem(last=False)
        self._news.set()

    def lose_agent(self, agent: Agent) -> None:
        self._agents.append(agent)

    def find(self, actor_id: str) -> Agent | None:
        """An agent that is gone."""
        return next((agent for agent in reversed(self._agents) if agent.actor_id == actor_id), None)

    async def of(self, agent: Agent) -> CallFailure:
        """How a call failed that a process had sent to an agent."""
        lost = await self._loss_at(agent.node_id)
        if lost is not None:
            reason, message = reading_of(lost)
        else:
            reason = Reason.PROCESS_DIED
            message = f"its host agent is gone: {agent.dead or 'Ray has lost the connection to it'}"
        gang, order = agent.opened or ("", None)
        name = "the call" if order is None else order.name
        actor = "" if order is None else order.actor
        where = f"{name} on {agent.slice_name or 'cpu'}"
        return CallFailure(str(reason), message, rank=0, where=where, gang=gang, actor=actor)

    async def _loss_at(self, node_id: str) -> HostLost | None:
        """The loss of a host, of which word may still be on its way; of a silent one only Ray knows."""
        loop = asyncio.get_running_loop()
        until = loop.time() + self._patience
        while (lost := self._hosts.get(node_id)) is None and (left := until - loop.time()) > 0:
            self._news.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._news.wait(), left)
        if lost is None and not await asyncio.to_thread(self._is_alive, node_id):
            return HostLost(node_id, "", 0, "Silent")
        return lost

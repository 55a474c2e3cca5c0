"""The desk: one detached actor a cluster that takes `.remote()` calls, finds gangs for them and gives their values."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import ray
from ray.exceptions import RayError

from kinetic_ray import wire
from kinetic_ray.errors import KineticError
from kinetic_ray.runner.calls.agents import Agent, Agents
from kinetic_ray.runner.calls.asks import Asks
from kinetic_ray.runner.calls.clients import Clients
from kinetic_ray.runner.calls.errands import CodeMemory, Errand, Readiness, Value, keys_of, read_order
from kinetic_ray.runner.calls.fates import Fates
from kinetic_ray.runner.calls.floor import Floor
from kinetic_ray.runner.calls.instances import Instances
from kinetic_ray.runner.calls.packing import Packed, keep_packed
from kinetic_ray.runner.calls.telling import Telling
from kinetic_ray.runner.inbox import HostLost
from kinetic_ray.runner.once import Once
from kinetic_ray.runner.scaling import SocketScaler, follow, is_simulated
from kinetic_ray.runner.slices import remove_groups
from kinetic_ray.runner.standing import standing_actor

NAME = "kinetic-desk"
#: Calls of all processes that may wait or run at once, their long polls among them.
_CONCURRENCY = 100_000
_LEND_PATIENCE = 60.0
#: Until a killed instance counts as gone, though its host doesn't answer.
_CLEAR_PATIENCE = 15.0
#: For agents that pass on the last lines for a process that goes.
_FLUSH_PATIENCE = 2.0
#: For what blocks: gangs that wait to be placed must not hold up one that gives its place back.
_THREADS = 64
#: How often it is looked whether those who call still live, and the supervisor hears that the cluster is in use.
_LOOK = 1.0
_LOG = logging.getLogger(__name__)


class Desk:
    """The actor. Runs in one event loop, so nothing here needs a lock."""

    def __init__(self, supervisor: str) -> None:
        """Does nothing yet.

        Args:
            supervisor: Socket of the embedded cluster's supervisor.
        """
        keep_packed()
        self._supervisor = supervisor
        self._beginning = Once(self._start)
        self._tasks: set[asyncio.Task[None]] = set()
        self._number = 0
        self._errands: dict[int, Errand] = {}
        self._memory = CodeMemory()
        self._readiness = Readiness()
        self._clients = Clients()
        self._telling = Telling()
        self._asks = Asks(supervisor)
        self._fates = Fates()
        self._agents: Agents
        self._floor: Floor
        self._instances: Instances

    async def call(self, order: bytes, code: Sequence[Any], packed: Any) -> Value:
        """Runs a call, whenever there is a gang for it.

        Args:
            order: An :class:`Order`'s bytes.
            code: Refs of the packed function and of the project's archive (or None), in a list, so that Ray leaves
                them as they are; an empty list where the desk has had them before. Behind them, of a method's call,
                its place among those of its process, and the one before it that went straight to the host, if any.
            packed: The arguments; a list with a ref of them where they are large.

        Raises:
            CallFailure: It has no value.
        """
        await self._beginning.ensure()
        told = read_order(order)
        self._clients.welcome(told.client)
        self._number += 1
        arguments = packed if isinstance(packed, Packed) else packed[0]
        done: asyncio.Future[Value] = asyncio.get_running_loop().create_future()
        place = code[2] if len(code) > 2 else -1
        errand = Errand(self._number, told, order, self._memory.complete(told, code), arguments, done, place=place)
        self._errands[errand.number] = errand
        try:
            if told.kind != "function":
                await self._readiness.wait(code[3:])
                return await self._instances.run(errand, self._ready)
            await self._ready(errand)
            self._floor.add(errand)
            return await errand.done
        except asyncio.CancelledError:
            self._floor.drop(errand, "cancelled")
            raise
        finally:
            del self._errands[errand.number]
            if done.done() and not done.cancelled():
                done.exception()  # seen, also where nobody waited for it
            done.cancel()

    async def lend(self, order: bytes) -> dict[str, Any] | None:
        """A gang of one host for a process alone, as soon as it is idle after serving that process.

        Returns:
            {"gang": its id, "agent": its agent's handle}; None where there is nothing to lend.
        """
        await self._beginning.ensure()
        told = read_order(order)
        if told.wish.ranks > 1:
            return None
        if told.kind == "method":
            return await self._instances.lend(told.actor, told.client, _LEND_PATIENCE)
        return await self._floor.lend(told.client, keys_of(order)[0], _LEND_PATIENCE)

    async def listen(self, client: str, patience: float, got: Sequence[Any] | None = None) -> dict[str, Any]:
        """What a process is to be told, as soon as there is something, or after `patience` seconds.

        Args:
            client: The process.
            patience: Seconds.
            got: "box" and "number" of the last answer that has come, ("", 0) before the first: then one that was lost
                on its way comes again. None: all have come.

        Returns:
            {"lines": [[function, rank, where, text], ...], "recalled": [ids of gangs that aren't lent any more],
            "box": where this was kept, "number": the answer's}. Lines without a function are kinetic's own.
        """
        await self._beginning.ensure()
        return await self._clients.listen(client, patience, got)

    async def flush(self, client: str) -> None:
        """A process is about to go: listening to it has all that its calls have printed by now, and waits no more."""
        await self._beginning.ensure()
        await self._agents.flush(client, _FLUSH_PATIENCE)
        self._clients.hurry(client)

    async def leave(self, client: str) -> None:
        """A process goes: its calls are dropped, what it made ends."""
        await self._beginning.ensure()
        self._leave(client)

    async def kill_actor(self, actor: str, no_restart: bool = True) -> None:  # noqa: ARG002 - as Ray's own kill takes it
        """Ends an instance; returns when it is gone and its place is free."""
        await self._beginning.ensure()
        self._instances.kill(actor)
        await self._instances.until_cleared(actor, _CLEAR_PATIENCE)

    async def say(self, place: str, number: int, source: Sequence[Any], lines: Sequence[str]) -> None:
        """An agent passes on what a child has printed; returns when it may pass on more.

        Args:
            place: The agent's name.
            number: Of these lines among its; the same again are no news.
            source: See :class:`Source`.
            lines: What was printed.
        """
        await self._beginning.ensure()
        agent = self._agents.at(place)
        if agent is None or agent.is_news(number):
            client, name, rank, where = source
            await self._clients.say(client, [[name, rank, where, line] for line in lines])

    async def explain(self, actor_id: str) -> None:
        """Says what became of a host that a process has called itself, where its Ray actor is gone or out of reach.

        Raises:
            CallFailure: What the call has come to. Nothing is raised where the actor is none of the desk's.
        """
        await self._beginning.ensure()
        agent = self._agents.find(actor_id) or self._fates.find(actor_id)
        if agent is not None:
            raise await self._fates.of(agent)

    async def snapshot(self) -> dict[str, Any]:
        """What there is, for people and tests."""
        await self._beginning.ensure()
        gangs = [*self._floor.gangs.values(), *self._instances.gangs()]
        return {
            "gangs": [
                {
                    "gang": gang.gang_id,
                    "name": gang.order.name,
                    "phase": str(gang.phase),
                    "client": gang.client,
                    "slices": [one.name for one in gang.lease.slices] if gang.lease else [],
                    "reason": gang.reason,
                }
                for gang in gangs
            ],
            "calls": [
                {"name": one.order.name, "client": one.order.client, "gang": one.gang} for one in self._errands.values()
            ],
        }

    # The beginning.

    async def _start(self) -> None:
        loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(_THREADS, "kinetic-desk"))
        context = ray.get_runtime_context()
        simulated = is_simulated()
        self._agents = Agents(context.current_actor, self._lose_agent, self._displace)
        self._floor = Floor(self._asks, self._agents, self._clients.recall, simulated=simulated)
        self._instances = Instances(self._asks, self._agents, self._clients.recall, simulated=simulated)
        await asyncio.to_thread(remove_groups, "call-")  # what a desk before this one held has died with it
        await self._asks.release_strays("call-")
        follow(SocketScaler(self._supervisor), loop, self._hear)
        self._spawn(self._asks.follow_wanted(self._floor.want))
        self._spawn(self._look_after())

    # What happens.

    async def _ready(self, errand: Errand) -> None:
        """Waits until the arguments are there, so that no gang has to."""
        packed = errand.packed
        inline = isinstance(packed, Packed)
        await self._readiness.wait([live.obj for live in packed.live if live.is_value] if inline else [packed])

    def _lose_agent(self, agent: Agent, why: str) -> None:
        self._fates.lose_agent(agent)
        self._floor.lose_agent(agent, why)
        self._instances.lose_agent(agent, why)

    def _displace(self, gang: str) -> None:
        self._floor.displace(gang)

    def _leave(self, client: str) -> None:
        self._clients.leave(client)
        self._instances.leave(client)
        self._floor.leave(client)
        for errand in list(self._errands.values()):
            if errand.order.client == client and not errand.done.done():
                self._floor.drop(errand, "the process that called it has gone")

    async def _hear(self, event: Mapping[str, Any]) -> None:
        if event["event"] == "host_going":
            self._floor.expect_loss(event["node_id"])
            self._instances.expect_loss(event["node_id"])
        elif event["event"] == "host_lost":
            worker = int(event.get("worker_id") or 0)
            lost = HostLost(event["node_id"], str(event.get("slice", "")), worker, str(event.get("reason", "")))
            self._fates.lose_host(lost)
            self._floor.lose_host(lost)
            self._instances.lose_host(lost)

    async def _look_after(self) -> None:
        """Notices processes that have died, and tells the supervisor that the cluster is in use."""
        while True:
            await asyncio.sleep(_LOOK)
            try:
                self._agents.trim()
                self._tell_why()
                if clients := self._calling() | self._clients.behind():
                    for client in (clients | self._clients.known()) & await asyncio.to_thread(_dead_jobs):
                        self._leave(client)
                if self._floor.is_busy or self._instances.is_busy or self._errands:
                    await asyncio.to_thread(wire.call, self._supervisor, {"op": "hello"})
            except (KineticError, OSError, RayError) as exc:
                _LOG.warning("looking after processes: %s", exc)

    def _tell_why(self) -> None:
        """Tells processes whose calls wait for long what they wait for."""
        waits = [*self._floor.waits(), *self._instances.waits()]
        for client, line in self._telling.look(waits, time.monotonic()):
            self._clients.note(client, line)

    def _calling(self) -> set[str]:
        calling = {errand.order.client for errand in self._errands.values()}
        return calling | self._floor.borrowers | self._instances.clients()

    def _spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _LOG.error("a task of the desk broke off", exc_info=error)


def _dead_jobs() -> set[str]:
    """Ray jobs that have ended, in hex."""
    from ray._private.worker import global_worker

    client = global_worker.gcs_client
    table = client.get_all_job_info(skip_submission_job_info_field=True, skip_is_running_tasks_field=True)
    return {job_id.hex() for job_id, info in table.items() if info.is_dead}


def find_desk(supervisor: str) -> Any:
    """The cluster's desk, made if there is none yet."""
    # A call is never run twice.
    return standing_actor(Desk, NAME, max_task_retries=0, max_concurrency=_CONCURRENCY).remote(supervisor)

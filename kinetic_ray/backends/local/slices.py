"""The simulated slices: started for who asks, dead as a whole when one host is, stopped when nobody uses them."""

from __future__ import annotations

import asyncio
import contextlib
import math
import shutil
import time
from collections.abc import Collection, Coroutine, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kinetic_ray.backends.local import env, pool, preempt, residents
from kinetic_ray.backends.local.head import Head, HeadReport
from kinetic_ray.backends.local.hub import Hub
from kinetic_ray.backends.local.launch import Launcher, LaunchFailed
from kinetic_ray.backends.local.nursery import Nursery
from kinetic_ray.backends.local.paths import Runtime
from kinetic_ray.backends.local.plan import NodePlan
from kinetic_ray.backends.local.simulated import Host, SimulatedSlice
from kinetic_ray.core.accelerators import Accelerator
from kinetic_ray.errors import SubmissionError

#: More at once starve each other until all of them fail.
_STARTS_AT_ONCE = 4
_START_TIMEOUT, _TRIES = 90.0, 3
#: A slice that was handed out is not taken away for another within this time: its user is still on the way to it.
_HELD_S = 10.0
#: A lost slice's name rests until Ray has noticed too: else its successor could be placed on the dead hosts.
_REST_S = 10.0
#: What a host with a child that has loaded jax may need.
_HOST_MEMORY = 350 * 2**20
_OBJECT_STORE = 128 * 2**20


@dataclass(slots=True)
class Slices:
    """All simulated slices of a cluster. Lives in one event loop; decisions are made without waiting in between."""

    runtime: Runtime
    launcher: Launcher
    head: Head
    hub: Hub
    limits: pool.Limits
    nursery: Nursery
    held_s: float = _HELD_S
    _slices: dict[str, SimulatedSlice] = field(default_factory=dict)
    _leased: frozenset[str] = frozenset()
    _gate: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_STARTS_AT_ONCE))
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _room: asyncio.TimerHandle | None = None

    async def request(
        self, accelerator: Accelerator, count: int, leased: Collection[str] | None, *, start: bool = True
    ) -> dict[str, Any]:
        """Slices that are up and not leased; the missing ones are started first, if they can be.

        Args:
            accelerator: What kind.
            count: How many.
            leased: Names of all slices, of any kind, that are in use; None from one who doesn't know.
            start: Whether missing ones are started; else it answers at once with what is up.

        Returns:
            {"slices": [...]}, and "wait" with the reason if missing ones were to be started and are fewer.

        Raises:
            SubmissionError: They could not be started.
        """
        if leased is not None:
            self.lease(leased)
        chosen, wait = self._choose(accelerator, count) if start else (self._at_hand(accelerator, count), "")
        for one in chosen:
            one.used_at = one.handed_at = time.monotonic()
        await asyncio.gather(*(asyncio.shield(one.ready) for one in chosen))
        up = [one for one in chosen if one.state == "up"]
        for one in up:
            one.used_at = one.handed_at = time.monotonic()
        answer: dict[str, Any] = {"slices": [one.offer() for one in up]}
        if wait or len(up) < len(chosen):
            answer["wait"] = wait or "a slice was lost while the others were starting"
            self._look_again()
        return answer

    def foresee(self, accelerator: Accelerator, count: int) -> None:
        """Starts what somebody is about to ask for, if there is room for it without stopping anything."""
        plan = self._plan(accelerator, count)
        if not plan.stop:
            self._begin_all(accelerator, plan.start)

    def lease(self, names: Collection[str]) -> None:
        """Notes which slices are in use."""
        for name in self._leased.difference(names) & self._slices.keys():
            self._slices[name].used_at = time.monotonic()
            self._slices[name].handed_at = -math.inf  # who was on the way has come and gone: it may make room at once
            self._slices[name].hurry.set()
        self._leased = frozenset(names)

    def to_list(self) -> list[dict[str, Any]]:
        """As `status` shows them."""
        return [one.to_dict() for one in sorted(self._slices.values(), key=lambda one: one.name)]

    def shapes(self) -> dict[str, preempt.Shape]:
        """What there is to take away."""
        return {name: preempt.Shape(len(one.hosts), one.state) for name, one in self._slices.items()}

    def take_away(self, asked: preempt.Preemption) -> None:
        """Takes a slice away; returns at once, with those that use it about to be told, or left in silence."""
        one = self._slices[asked.slice_name]
        one.rest = asked.return_after
        if one.state == "starting":  # nobody is there yet who could be told
            self._stop(one.name)
            return
        one.state = "silent" if asked.silent else "going"
        if one.name in self._leased or time.monotonic() - one.handed_at < self.held_s:
            one.hurry.clear()
        else:  # nobody needs the grace
            one.hurry.set()
        self._spawn(self._silence(one, asked) if asked.silent else self._announce(one, asked))

    def stop_idle(self, seconds: float) -> None:
        """Stops what nobody has used for so long."""
        for name in pool.idle_since(self._standing(), self._leased, time.monotonic() - seconds):
            self._stop(name)

    async def close(self) -> None:
        """Stops everything, and waits for it."""
        for one in tuple(self._slices.values()):
            self._stop(one.name)
        while self._tasks:
            await asyncio.wait(tuple(self._tasks))

    # Deciding.

    def _look_again(self) -> None:
        """What was handed out may be taken for others then. One word for all: each makes all that wait ask again."""
        if self._room is None:
            self._room = asyncio.get_running_loop().call_later(self.held_s, self._say_room)

    def _say_room(self) -> None:
        self._room = None
        self.hub.publish("room")

    def _choose(self, accelerator: Accelerator, count: int) -> tuple[list[SimulatedSlice], str]:
        self._make_memory(accelerator, count)
        plan = self._plan(accelerator, count)
        for name in plan.stop:
            self._stop(name)
        used = [self._slices[name] for name in plan.use]
        return [*used, *self._begin_all(accelerator, plan.start)], plan.wait

    def _at_hand(self, accelerator: Accelerator, count: int) -> list[SimulatedSlice]:
        names = pool.at_hand(accelerator, count, self._standing(), self._unusable())
        return [self._slices[name] for name in names]

    def _plan(self, accelerator: Accelerator, count: int) -> pool.Plan:
        return pool.plan(self.limits, accelerator, count, self._standing(), self._unusable(), self._kept())

    def _standing(self) -> list[pool.Standing]:
        """The slices there are; those that are on their way out still take their place in a fixed pool."""
        pooled = self.limits.pool is not None
        there = [one for one in self._slices.values() if pooled or one.state in ("starting", "up")]
        return [
            pool.Standing(
                one.name, pool.kind_of(one.accelerator), len(one.hosts), one.state == "up", self._used_at(one)
            )
            for one in there
        ]

    def _used_at(self, one: SimulatedSlice) -> float:
        return time.monotonic() if one.name in self._leased else one.used_at

    def _unusable(self) -> set[str]:
        return {*self._leased, *(one.name for one in self._slices.values() if one.state not in ("starting", "up"))}

    def _kept(self) -> set[str]:
        """What must not be stopped for another's sake."""
        now = time.monotonic()
        return {*self._unusable(), *(n for n, one in self._slices.items() if now - one.handed_at < self.held_s)}

    def _make_memory(self, accelerator: Accelerator, count: int) -> None:
        import psutil

        standing = [s for s in self._standing() if s.kind != pool.kind_of(accelerator)]
        needed = count * accelerator.hosts * _HOST_MEMORY
        if name := pool.short_of_memory(psutil.virtual_memory().available, needed, standing, self._kept()):
            self._stop(name)

    # Doing.

    def _begin_all(self, accelerator: Accelerator, count: int) -> list[SimulatedSlice]:
        return [self._begin(name, accelerator) for name in pool.next_names(accelerator, count, self._slices)]

    def _begin(self, name: str, accelerator: Accelerator) -> SimulatedSlice:
        hosts = [Host(worker_id) for worker_id in range(accelerator.hosts)]
        ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        one = SimulatedSlice(name, accelerator, hosts, ready, time.monotonic())
        self._slices[name] = one
        self.nursery.begin()
        one.starter = self._spawn(self._start(one))
        return one

    async def _start(self, one: SimulatedSlice) -> None:
        try:
            report = await self.head.report()
            async with asyncio.TaskGroup() as starting:
                for host in one.hosts:
                    starting.create_task(self._start_host(one, host, report))
        except BaseException as exc:  # noqa: BLE001 - also when it is stopped: whoever waits for the slice gets it
            one.state = "stopping"
            await self._end(one)
            one.ready.set_exception(SubmissionError(f"the slice {one.name} could not be started: {_cause(exc)}"))
            one.ready.exception()  # seen, whether or not anybody waits
            return
        one.state = "up"
        self.hub.publish("slice_up", slice=one.name, accelerator=one.accelerator.name)
        one.ready.set_result(None)

    async def _start_host(self, one: SimulatedSlice, host: Host, report: HeadReport) -> None:
        environ = env.host_environment(one.accelerator, one.name, host.worker_id, self.runtime.nursery)
        plan = NodePlan(
            name=f"{one.name}.{host.worker_id}",
            temp_dir=str(self._folder(one, host)),
            socket_dir=str(self.runtime.sockets),
            chips=one.accelerator.chips_per_host,
            object_store=_OBJECT_STORE,
            gcs_address=report.gcs_address,
            runtime_env_port=report.runtime_env_port,
        )
        for attempt in range(_TRIES):
            async with self._gate:
                try:
                    launched, said = await self.launcher.start(plan, environ, _START_TIMEOUT)
                    break
                except LaunchFailed:
                    if attempt + 1 == _TRIES:
                        raise
        host.launched, host.node_id, host.state = launched, said["node_id"], "up"
        launched.ended.add_done_callback(lambda _: self._host_ended(one, host))

    def _host_ended(self, one: SimulatedSlice, host: Host) -> None:
        """A host is gone: at once the drivers are told, then the rest of its slice follows, as under KubeRay."""
        host.state = "lost"
        self._spawn(self.launcher.end_orphans())
        if one.state == "starting" and one.starter is not None:
            one.starter.cancel()
        if one.state in ("up", "going", "silent"):
            one.rest = max(one.rest, _REST_S)
            there = [other.worker_id for other in one.hosts if other is host or other.state == "up"]
            reason = "Preempted" if one.state == "going" else "NodeLost"
            self._lose(one, preempt.losses(there, host.worker_id, reason))

    async def _announce(self, one: SimulatedSlice, asked: preempt.Preemption) -> None:
        """A preemption as Google means it: a word, the time of grace, the end."""
        taken = [host for host in one.hosts if asked.takes(host.worker_id)]
        for host in taken:
            self._tell("host_going", one, host, "Preempted", grace=asked.grace)
        await _wait(one.hurry, asked.grace)
        if one.state == "going":
            self._lose(one, preempt.losses([h.worker_id for h in one.hosts], asked.worker_id, "Preempted"))

    async def _silence(self, one: SimulatedSlice, asked: preempt.Preemption) -> None:
        """A host that is lost without a word: it stops answering, and whoever needs it has to find that out."""
        frozen = [(self._folder(one, h), h.launched.pid) for h in one.hosts if h.launched and asked.takes(h.worker_id)]
        await asyncio.gather(*(asyncio.to_thread(residents.freeze, *host) for host in frozen))
        await _wait(one.hurry, preempt.SILENCE_S)
        await asyncio.gather(*(asyncio.to_thread(residents.end, *host) for host in frozen))

    def _lose(self, one: SimulatedSlice, losses: Sequence[tuple[int, str]]) -> None:
        one.state = "lost"
        for worker_id, reason in losses:
            self._tell("host_lost", one, one.hosts[worker_id], reason)
        self._spawn(self._end(one))

    def _tell(self, event: str, one: SimulatedSlice, host: Host, reason: str, **more: float) -> None:
        about = {"node_id": host.node_id, "slice": one.name, "worker_id": host.worker_id, "reason": reason}
        self.hub.publish(event, **about, **more)

    def _stop(self, name: str) -> None:
        one = self._slices[name]
        if one.state == "starting" and one.starter is not None:
            one.starter.cancel()
        elif one.state == "up":
            one.state = "stopping"
            self._spawn(self._end(one))
        one.hurry.set()

    async def _end(self, one: SimulatedSlice) -> None:
        await asyncio.gather(*(self.launcher.stop(host.launched) for host in one.hosts if host.launched))
        for host in one.hosts:
            shutil.rmtree(self._folder(one, host), ignore_errors=True)
        asyncio.get_running_loop().call_later(one.rest, self._remove, one)

    def _folder(self, one: SimulatedSlice, host: Host) -> Path:
        """The host's Ray folder."""
        return self.runtime.hosts / f"{one.name}.{host.worker_id}"

    def _remove(self, one: SimulatedSlice) -> None:
        if self._slices.get(one.name) is one:
            del self._slices[one.name]
            self.hub.publish("room")

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


async def _wait(event: asyncio.Event, seconds: float) -> None:
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(event.wait(), seconds)


def _cause(exc: BaseException) -> str:
    if isinstance(exc, BaseExceptionGroup):
        return _cause(exc.exceptions[0])
    return "it was stopped, or one of its hosts died" if isinstance(exc, asyncio.CancelledError) else str(exc)

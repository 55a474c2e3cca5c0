"""The life of one pod: its surroundings, its containers in their order, its end."""

from __future__ import annotations

import asyncio
import contextlib
import traceback
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from cluster.sim.kubelet import events, faults, phases, shapes, states, tpus
from cluster.sim.kubelet.client import ApiError, log
from cluster.sim.kubelet.container import ContainerWorker
from cluster.sim.kubelet.events import Event
from cluster.sim.kubelet.faults import ForcedExit
from cluster.sim.kubelet.fields import PodFacts
from cluster.sim.kubelet.folders import Folders
from cluster.sim.kubelet.launches import PodFolder
from cluster.sim.kubelet.objects import MissingError
from cluster.sim.kubelet.phases import Condition, Phase
from cluster.sim.kubelet.reporter import Reporter
from cluster.sim.kubelet.sandbox import CommandError, Sandbox
from cluster.sim.kubelet.shapes import Json, stamp
from cluster.sim.kubelet.states import Kind
from cluster.sim.kubelet.surroundings import Surroundings
from cluster.sim.kubelet.volumes import VolumeError

_RETRY, _WIND_UP = 1.0, 5.0


class Host(Protocol):
    """What a pod asks of its node."""

    @property
    def record(self) -> Json: ...

    @property
    def address(self) -> str: ...

    @property
    def reachable(self) -> bool: ...

    async def present(self) -> None:
        """Wait until it is there."""


@dataclass(frozen=True, slots=True)
class Imposed:
    """An end that was none of the containers' own doing."""

    reason: str
    message: str
    disruption: bool = False


SHUTDOWN = Imposed(faults.SHUTDOWN_REASON, faults.SHUTDOWN_MESSAGE, disruption=True)
DEADLINE = Imposed("DeadlineExceeded", "Pod was active on the node longer than the specified deadline")


class PodWorker:
    """Runs one pod."""

    def __init__(self, record: Json, host: Host, around: Surroundings) -> None:
        self.record = record
        self.host = host
        self._around = around
        self._folders = Folders(around, shapes.uid_of(record))
        inits = record["spec"].get("initContainers") or []
        kinds = [*((one, states.kind_of(one, init=True)) for one in inits)]
        kinds += [(one, Kind.MAIN) for one in record["spec"]["containers"]]
        first = states.INITIALIZING if inits else states.CREATING
        self.containers = [ContainerWorker(one, kind, self, around, first) for one, kind in kinds]
        self._reporter = Reporter(record, around.api, self.status, lambda: host.reachable)
        self._sandbox: Sandbox | None = None
        self._began = stamp()
        self._stopped = False  # told to end, and nothing runs any more
        self.stopping = False
        self._deleting = False
        self._imposed: Imposed | None = None
        self._forced: ForcedExit | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._running: dict[str, asyncio.Task[None]] = {}
        self._life: asyncio.Task[None] | None = None

    # What its containers ask.

    @property
    def sandbox(self) -> Sandbox:
        if self._sandbox is None:
            raise CommandError("the pod has no sandbox yet")
        return self._sandbox

    @property
    def place(self) -> PodFolder:
        return self._folders.place

    @property
    def sources(self) -> Mapping[str, Path]:
        return self._folders.sources

    @property
    def read_only(self) -> frozenset[str]:
        return frozenset(self._folders.read_only)

    def facts(self) -> PodFacts:
        address = self._sandbox.address if self._sandbox else ""
        allocatable = self.host.record["status"].get("allocatable") or {}
        return PodFacts(self.record, address, self.host.address, allocatable)

    def device_variables(self, container: Json) -> dict[str, str]:
        chips = tpus.chips_of(container)
        on_host = tpus.chips_of({"resources": {"limits": self.host.record["status"].get("allocatable") or {}}})
        shape = tpus.host_shape(shapes.labels_of(self.host.record), on_host)
        return tpus.device_variables(shape, chips, self.host.address) if shape and chips else {}

    def tell(self, event: Event) -> None:
        if self.host.reachable:
            self._around.recorder.tell(event, self.record, shapes.node_of(self.record))

    def changed(self) -> None:
        self._reporter.changed()

    async def present(self) -> None:
        await self.host.present()

    # Its status.

    @property
    def phase(self) -> Phase:
        policy = str(self.record["spec"].get("restartPolicy") or "Always")
        found = phases.phase(policy, [one.status for one in self.containers], self._stopped)
        return Phase.FAILED if self._imposed and found in phases.OVER else found

    def status(self) -> Json:
        """What the API server is told of it."""
        now = self.phase
        statuses = [one.status for one in self.containers]
        stated = phases.conditions(now, statuses, self._sandbox is not None, phases.gates_of(self.record))
        imposed = self._imposed if now in phases.OVER else None  # told with the end of the last container, not after
        if imposed and imposed.disruption:
            stated = (*stated, Condition("DisruptionTarget", True, "TerminationByKubelet", imposed.message))
        status: Json = {
            "phase": str(now),
            "conditions": [self._reporter.dated(one) for one in stated],
            "startTime": self._began,
            "hostIP": self.host.address,
            "hostIPs": [{"ip": self.host.address}],
            "containerStatuses": [one.json() for one in statuses if one.kind is Kind.MAIN],
        }
        if len(statuses) > len(status["containerStatuses"]):
            status["initContainerStatuses"] = [one.json() for one in statuses if one.kind is not Kind.MAIN]
        if self._sandbox is not None:
            status |= {"podIP": self._sandbox.address, "podIPs": [{"ip": self._sandbox.address}]}
        if imposed:
            status |= {"reason": imposed.reason, "message": imposed.message}
        return status

    # Its life.

    def start(self) -> None:
        """Begin."""
        self._go(self._reporter.run())
        self._life = self._go(self._run())
        limit = self.record["spec"].get("activeDeadlineSeconds")
        if limit is not None:
            self._go(self._expire(float(limit)))

    async def _expire(self, limit: float) -> None:
        await asyncio.sleep(limit)
        await self._impose(DEADLINE, self._grace())

    def _go(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log("pod", shapes.name_of(self.record), "".join(traceback.format_exception(task.exception())))

    async def _run(self) -> None:
        self.changed()
        await self._surround()
        for one in self.containers:
            if one.kind is Kind.MAIN:
                break
            if not await self._initialize(one):
                return
        mains = [one for one in self.containers if one.kind is Kind.MAIN]
        await asyncio.wait([self._begin(one) for one in mains])
        if not self.stopping:
            await self._stop_sidecars(self._grace())
        if self.phase in phases.OVER:
            await self.sandbox.close()

    async def _surround(self) -> None:
        own = not self.record["spec"].get("hostNetwork")
        address = self._around.addresses.take(self.host.record) if own else self.host.address
        self._sandbox = Sandbox(self.record, address, self._around.options.gateway, self._around.memory)
        self._folders.write_system(self.facts())
        for volume in self.record["spec"].get("volumes") or []:
            await self._make_volume(volume)
        self.changed()

    async def _make_volume(self, volume: Json) -> None:
        """Make a volume, however often what it needs is missing."""
        while True:
            if await self._try_volume(volume):
                return
            await asyncio.sleep(_RETRY)

    async def _try_volume(self, volume: Json) -> bool:
        try:
            await self._folders.make_volume(volume, self.facts())
        except (VolumeError, MissingError, OSError) as wrong:
            self.tell(events.mount_failed(volume["name"], str(wrong)))
            return False
        except ApiError as refused:
            log("volume", shapes.name_of(self.record), refused)
            return False
        return True

    async def _initialize(self, one: ContainerWorker) -> bool:
        """Run an init container to its end, or a sidecar until it has started; whether the next may follow."""
        task = self._begin(one)
        if one.kind is Kind.SIDECAR:
            started = asyncio.create_task(one.started.wait())
            await asyncio.wait([task, started], return_when=asyncio.FIRST_COMPLETED)
            started.cancel()
            return one.started.is_set() and not self.stopping
        await asyncio.wait([task])
        return one.status.succeeded and not self.stopping

    def _begin(self, one: ContainerWorker) -> asyncio.Task[None]:
        self._running[one.name] = task = self._go(one.run())
        return task

    # Its end.

    def _grace(self) -> float:
        asked = self.record["metadata"].get("deletionGracePeriodSeconds")
        own = self.record["spec"].get("terminationGracePeriodSeconds")
        return float(asked if asked is not None else 30 if own is None else own)

    def update(self, record: Json) -> None:
        """Take a newer record: it may ask for an end, or for a quicker one."""
        self.record = record
        forced = faults.forced_exit(shapes.annotations_of(record))
        if forced != self._forced:
            self._forced = forced
            for one in self.containers:
                if forced and one.name == forced.container and one.process is not None:
                    one.process.end_as(forced.code, forced.reason)
        if record["metadata"].get("deletionTimestamp"):
            if self._grace() == 0:
                self.kill()
            if not self._deleting:
                self.stopping = self._deleting = True
                self._go(self._delete())

    async def _delete(self) -> None:
        await self._stop(self._grace())
        await self._reporter.write()
        await self.close()
        await self._reporter.delete()

    async def shut_down(self, notice: float) -> None:
        """End because the node does: its record stays, as failed."""
        await self._impose(SHUTDOWN, min(self._grace(), notice))

    async def _impose(self, imposed: Imposed, grace: float) -> None:
        if self.stopping or self.phase in phases.OVER:
            return
        self.stopping, self._imposed = True, imposed
        await self._stop(grace)
        await self._reporter.write()
        if self._sandbox is not None:
            await self._sandbox.close()

    async def _stop(self, grace: float) -> None:
        mains = [one for one in self.containers if one.kind is not Kind.SIDECAR]
        await asyncio.gather(*(one.stop(grace) for one in mains))
        await self._stop_sidecars(grace)
        if self._life is not None and not self._running:
            self._life.cancel()
        ends = [task for task in (self._life, *self._running.values()) if task is not None]
        if ends:
            await asyncio.wait(ends, timeout=_WIND_UP)
        if self.phase not in phases.OVER:
            self._stopped = True

    async def _stop_sidecars(self, grace: float) -> None:
        for one in reversed(self.containers):
            if one.kind is Kind.SIDECAR:
                await one.stop(grace)

    async def ended(self) -> None:
        """Wait until its containers have ended for good."""
        if self._life is not None:
            await asyncio.wait([self._life])

    def kill(self) -> None:
        """End all of it, now."""
        self.stopping = True
        for one in self.containers:
            one.kill()

    def cut_power(self) -> None:
        """Kill all its processes, and say nothing."""
        for one in self.containers:
            one.cut_power()

    async def cut_network(self, off: bool) -> None:
        if self._sandbox is not None:
            await self._sandbox.cut(off)

    async def force(self) -> None:
        """Take all of it away: its record is gone already."""
        self.kill()
        if self._running:
            await asyncio.wait(self._running.values(), timeout=_WIND_UP)
        await self.close()

    async def close(self) -> None:
        """Take away what the pod has on the machine. Its containers have ended."""
        current = asyncio.current_task()
        others = [task for task in self._tasks if task is not current]
        for task in others:
            task.cancel()
        if others:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.gather(*others, return_exceptions=True)
        if self._sandbox is not None:
            await self._sandbox.close()
            if not self._sandbox.host_network:
                self._around.addresses.give_back(self._sandbox.address)
        await self._folders.remove()

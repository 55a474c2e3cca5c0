"""One fake node: its lease, its conditions, its pods, and what happens to it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import Any

from cluster.sim.kubelet import events, faults, shapes, states
from cluster.sim.kubelet.client import MERGE, STRATEGIC, ApiError, log
from cluster.sim.kubelet.events import Event
from cluster.sim.kubelet.faults import Fault, NodeFault
from cluster.sim.kubelet.pod import PodWorker
from cluster.sim.kubelet.shapes import Json, fine_stamp, stamp
from cluster.sim.kubelet.surroundings import Surroundings

KUBELET_PORT = 10250
_LEASE_SECONDS, _RENEW_EVERY, _STATUS_EVERY = 40, 10.0, 300.0
_LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"


class NodeWorker:
    """Plays the kubelet of one node."""

    def __init__(self, record: Json, around: Surroundings) -> None:
        self.record = record
        self.name = shapes.name_of(record)
        self.pods: dict[str, PodWorker] = {}
        self._around = around
        self._here = asyncio.Event()
        self._here.set()
        self._fault: NodeFault | None = None
        self._missed: dict[str, tuple[str, Json]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._changing: asyncio.Task[None] | None = None
        self._shutting_down = False

    # What its pods ask.

    @property
    def address(self) -> str:
        """Its own address; the gateway's if it has none."""
        given = (self.record.get("status") or {}).get("addresses") or []
        found = next((str(one["address"]) for one in given if one["type"] == "InternalIP"), "")
        return found or self._around.options.gateway

    @property
    def reachable(self) -> bool:
        return self._here.is_set()

    async def present(self) -> None:
        await self._here.wait()

    # Its own life.

    def start(self) -> None:
        self._tell(events.kubelet_starting())
        self._tasks.add(asyncio.create_task(self._live()))

    async def stop(self) -> None:
        """Tell nothing any more."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _tell(self, event: Event) -> None:
        if self.reachable:
            self._around.recorder.tell(event, self.record | {"kind": "Node"}, self.name)

    async def _live(self) -> None:
        """Renew the lease, and now and then the status, while the node is there."""
        renewals = 0
        while True:
            await self._here.wait()
            try:
                if renewals % int(_STATUS_EVERY / _RENEW_EVERY) == 0 and not self._shutting_down:
                    await self._write_status(ready=True)
                await self._renew()
            except ApiError as wrong:
                log("node", self.name, wrong)
            renewals += 1
            await asyncio.sleep(_RENEW_EVERY)

    async def _renew(self) -> None:
        spec = {"holderIdentity": self.name, "leaseDurationSeconds": _LEASE_SECONDS, "renewTime": fine_stamp()}
        if await self._around.api.call("PATCH", f"{_LEASES}/{self.name}", {"spec": spec}, MERGE) is None:
            owner = {"apiVersion": "v1", "kind": "Node", "name": self.name, "uid": shapes.uid_of(self.record)}
            meta = {"name": self.name, "ownerReferences": [owner]}
            body: Json = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": meta, "spec": spec}
            await self._around.api.call("POST", _LEASES, body)

    async def _write_status(self, ready: bool) -> None:
        status = {
            "conditions": faults.node_conditions(ready, self._shutting_down, stamp(), self.record),
            "daemonEndpoints": {"kubeletEndpoint": {"Port": KUBELET_PORT}},
            "declaredFeatures": ["ExtendWebSocketsToKubelet"],  # how the API server passes exec on to us
        }
        was = _is_ready(self.record)
        await self._around.api.call("PATCH", f"/api/v1/nodes/{self.name}/status", {"status": status}, STRATEGIC)
        if was != ready:
            self._tell(events.node_ready(self.name, ready))

    # What happens to it.

    def update(self, record: Json) -> None:
        """Take a newer record: it may ask for a fault, or for the end of one."""
        self.record = record
        wanted = faults.node_fault(shapes.annotations_of(record))
        if wanted != self._fault:
            self._fault, before = wanted, self._changing
            self._changing = task = asyncio.create_task(self._change(wanted, before))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _change(self, wanted: NodeFault | None, before: asyncio.Task[None] | None) -> None:
        if before is not None:  # one after the other, in the order in which they were asked for
            await asyncio.wait([before])
        log("node", self.name, wanted or "comes back")
        if wanted is None:
            await self._come_back()
        elif wanted.has_notice:
            await self._shut_down(wanted)
        else:
            self._here.clear()
            for pod in list(self.pods.values()):
                if wanted.fault is Fault.CRASH:
                    pod.cut_power()
                await pod.cut_network(off=True)

    async def settled(self) -> None:
        """Wait until what was asked for has happened to it."""
        if self._changing is not None:
            await asyncio.wait([self._changing])

    async def _shut_down(self, wanted: NodeFault) -> None:
        self._shutting_down = True
        self._tell(events.node_shutdown())
        with contextlib.suppress(ApiError):
            await self._write_status(ready=False)
            await self._announce(wanted.fault is Fault.MAINTENANCE, notice=True)
        await asyncio.gather(*(pod.shut_down(wanted.notice) for pod in list(self.pods.values())))
        self._here.clear()

    async def _announce(self, maintenance: bool, notice: bool) -> None:
        path = f"/api/v1/nodes/{self.name}"
        label = "ONGOING" if maintenance and notice else None
        meta: Json = {"labels": {faults.MAINTENANCE_LABEL: label}}
        spec: Json = {"taints": faults.taints(self.record["spec"], notice)}
        await self._around.api.call("PATCH", path, {"metadata": meta, "spec": spec}, MERGE)

    async def _come_back(self) -> None:
        announced, self._shutting_down = self._shutting_down, False
        self._here.set()
        for pod in list(self.pods.values()):
            await pod.cut_network(off=False)
            pod.changed()
        try:
            if announced:
                await self._announce(maintenance=False, notice=False)
            await self._write_status(ready=True)
            await self._renew()
        except ApiError as wrong:
            log("node", self.name, wrong)
        missed, self._missed = self._missed, {}
        for kind, record in missed.values():
            self.on_pod(kind, record)

    # Its pods.

    def on_pod(self, kind: str, record: Json) -> None:
        """Hear of a pod that is bound to it; a node that is away hears of it when it is back."""
        uid = shapes.uid_of(record)
        if not self.reachable:
            self._missed[uid] = (kind, record)
            return
        worker = self.pods.get(uid)
        if kind == "DELETED":
            self.pods.pop(uid, None)
            self._around.recorder.forget(uid)
            if worker is not None:
                self._spawn(worker.force())
        elif worker is not None:
            worker.update(record)
        elif record["metadata"].get("deletionTimestamp"):  # of a time before this kubelet
            self._spawn(self._forget(record))
        elif not shapes.is_over(record):
            self._admit(uid, record)

    def _admit(self, uid: str, record: Json) -> None:
        gone = states.lost(record, stamp())
        if self._shutting_down:
            refused = {"reason": faults.REFUSED_REASON, "message": faults.REFUSED_MESSAGE}
            gone = {"phase": "Failed", **refused}
        if gone is not None:
            self._spawn(self._give_up(record, gone))
            return
        self.pods[uid] = worker = PodWorker(record, self, self._around)
        worker.start()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _give_up(self, record: Json, status: Json) -> None:
        """Say of a pod that it won't run."""
        body: Json = {"metadata": {"uid": shapes.uid_of(record)}, "status": status}
        with contextlib.suppress(ApiError):
            await self._around.api.call("PATCH", f"{_path(record)}/status", body, STRATEGIC)

    async def _forget(self, record: Json) -> None:
        body: Json = {"gracePeriodSeconds": 0, "preconditions": {"uid": shapes.uid_of(record)}}
        with contextlib.suppress(ApiError):
            await self._around.api.call("DELETE", _path(record), body)


def _path(record: Json) -> str:
    return f"/api/v1/namespaces/{shapes.namespace_of(record)}/pods/{shapes.name_of(record)}"


def _is_ready(record: Json) -> bool:
    stated = (record.get("status") or {}).get("conditions") or []
    return any(one["type"] == "Ready" and one["status"] == "True" for one in stated)

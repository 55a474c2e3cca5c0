"""Writes the status of one pod to the API server, whenever it has changed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from cluster.sim.kubelet import shapes
from cluster.sim.kubelet.client import STRATEGIC, Api, ApiError, log
from cluster.sim.kubelet.phases import Condition
from cluster.sim.kubelet.shapes import Json, stamp


class Reporter:
    """One pod's status, as it was last written."""

    def __init__(self, pod: Json, api: Api, status: Callable[[], Json], present: Callable[[], bool]) -> None:
        """Take who is reported of.

        Args:
            pod: Its record.
            api: Where to.
            status: Gives the status as it is.
            present: Whether its host can reach the API server.
        """
        self._path = f"/api/v1/namespaces/{shapes.namespace_of(pod)}/pods/{shapes.name_of(pod)}"
        self._uid = shapes.uid_of(pod)
        self._api = api
        self._status = status
        self._present = present
        self._dirty = asyncio.Event()
        self._writing = asyncio.Lock()
        self._written: Json = {}
        self._since: dict[str, tuple[bool, str]] = {}

    def changed(self) -> None:
        self._dirty.set()

    def dated(self, condition: Condition) -> Json:
        """A condition with the moment since which it has been as it is."""
        known = self._since.get(condition.type)
        if known is None or known[0] != condition.holds:
            self._since[condition.type] = known = (condition.holds, stamp())
        return condition.json(known[1])

    async def run(self) -> None:
        """Write what changes, for ever."""
        while True:
            await self._dirty.wait()
            self._dirty.clear()
            await self.write()

    async def write(self) -> None:
        """Write the status as it is now, unless it is written already or the host is away."""
        async with self._writing:
            status = self._status()
            if status == self._written or not self._present():
                return
            body = {"metadata": {"uid": self._uid}, "status": status}
            try:
                await self._api.call("PATCH", f"{self._path}/status", body, STRATEGIC)
                self._written = status
            except ApiError as refused:  # 409: another pod has its name by now
                if refused.status != 409:
                    log("status", self._path, refused)

    async def delete(self) -> None:
        """Say that nothing of the pod is left, so that its record may go."""
        body: Json = {"gracePeriodSeconds": 0, "preconditions": {"uid": self._uid}}
        try:
            await self._api.call("DELETE", self._path, body)
        except ApiError as refused:
            if refused.status != 409:
                log("delete", self._path, refused)

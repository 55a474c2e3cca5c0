"""Sends events to the API server: what happens again is counted, not told twice."""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import dataclass, replace

from cluster.sim.kubelet import events, shapes
from cluster.sim.kubelet.client import MERGE, Api, ApiError, log
from cluster.sim.kubelet.events import Event
from cluster.sim.kubelet.shapes import Json, stamp


@dataclass(frozen=True, slots=True)
class _Told:
    name: str
    count: int


class Recorder:
    """Takes events from whoever has one, at once, and sends them one after the other."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._waiting: asyncio.Queue[tuple[Event, Json, str]] = asyncio.Queue()
        self._told: dict[tuple[str, Event], _Told] = {}

    def tell(self, event: Event, about: Json, node: str) -> None:
        """Send an event about a pod or a node, from a node's kubelet."""
        self._waiting.put_nowait((event, about, node))

    def forget(self, uid: str) -> None:
        """Count anew what may happen to a thing of this id: it is gone."""
        for key in [key for key in self._told if key[0] == uid]:
            del self._told[key]

    async def run(self) -> None:
        """Send what comes, for ever."""
        while True:
            event, about, node = await self._waiting.get()
            try:
                await self._send(event, about, node)
            except ApiError as refused:
                if refused.status != 403:  # the namespace is being deleted
                    log("event", shapes.name_of(about), event.reason, refused)

    async def _send(self, event: Event, about: Json, node: str) -> None:
        key, now = (shapes.uid_of(about), event), stamp()
        told = self._told.get(key)
        path = f"/api/v1/namespaces/{shapes.namespace_of(about) or 'default'}/events"
        if told is not None:
            told = replace(told, count=told.count + 1)
            changed = {"count": told.count, "lastTimestamp": now}
            if await self._api.call("PATCH", f"{path}/{told.name}", changed, MERGE) is not None:
                self._told[key] = told
                return
        told = _Told(f"{shapes.name_of(about)}.{secrets.token_hex(8)}", 1)
        await self._api.call("POST", path, events.record(event, about, node, told.name, now))
        self._told[key] = told

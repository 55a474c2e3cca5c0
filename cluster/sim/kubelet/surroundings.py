"""What all pods of all nodes share: the API server, the tables, the flags."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import aiohttp

from cluster.sim.kubelet.cgroups import CgroupTree
from cluster.sim.kubelet.client import Api
from cluster.sim.kubelet.objects import Objects, Reference, Sort, contents
from cluster.sim.kubelet.options import Options
from cluster.sim.kubelet.recorder import Recorder
from cluster.sim.kubelet.sandbox import Addresses
from cluster.sim.kubelet.shapes import Json


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The shared things.

    Attributes:
        options: The flags.
        api: The API server.
        recorder: Takes events.
        addresses: Hands out addresses of pods.
        services: Gives all services that there are.
        http: Asks the HTTP servers of pods, for probes.
        memory: Where limits of memory can be set; None where they can't, or needn't.
    """

    options: Options
    api: Api
    recorder: Recorder
    addresses: Addresses
    services: Callable[[], Iterable[Json]]
    http: aiohttp.ClientSession
    memory: CgroupTree | None = None

    def images(self) -> dict[str, Any]:
        """The table of images as it is now: a test may add one that was missing."""
        table: dict[str, Any] = json.loads(self.options.images.read_text())
        return table

    async def objects(self, namespace: str, refs: Iterable[Reference]) -> Objects:
        """What pods of a namespace refer to, as far as it is there."""
        found: dict[tuple[Sort, str], dict[str, bytes]] = {}
        for ref in refs:
            thing = await self.api.call("GET", f"/api/v1/namespaces/{namespace}/{ref.sort}/{ref.name}")
            if thing is not None:
                found[ref.sort, ref.name] = contents(ref.sort, thing)
        return Objects(found, namespace)

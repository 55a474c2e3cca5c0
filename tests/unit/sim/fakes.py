"""An API server in memory, and what pods in name only need around them."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from cluster.sim.kubelet.options import Options
from cluster.sim.kubelet.recorder import Recorder
from cluster.sim.kubelet.sandbox import Addresses
from cluster.sim.kubelet.surroundings import Surroundings

Json = dict[str, Any]
PATIENCE = 30.0


class FakeApi:
    """Answers what it was given, remembers what it was told, and wakes who waits for that."""

    def __init__(self) -> None:
        self.things: dict[str, Json] = {}
        self.calls: list[tuple[str, str, Json | None]] = []
        self._told = asyncio.Condition()

    async def call(self, method: str, path: str, body: Json | None = None, kind: str = "") -> Json | None:
        async with self._told:
            self.calls.append((method, path, body))
            self._told.notify_all()
        return self.things.get(path) if method == "GET" else {}

    async def until(self, found: Callable[[], bool]) -> None:
        async with self._told:
            await asyncio.wait_for(self._told.wait_for(found), PATIENCE)

    def statuses(self, pod: str) -> list[Json]:
        """All that was told of a pod's status."""
        ending = f"/pods/{pod}/status"
        return [body["status"] for _, path, body in self.calls if body and path.endswith(ending)]

    def reasons(self) -> list[str]:
        return [body["reason"] for method, path, body in self.calls if method == "POST" and body and "/events" in path]


@dataclass
class FakeHost:
    """A node that is always there, until it isn't."""

    record: Json = field(default_factory=lambda: {"metadata": {"name": "n"}, "spec": {}, "status": {}})
    address: str = "10.244.255.1"
    here: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def reachable(self) -> bool:
        return self.here.is_set()

    async def present(self) -> None:
        await self.here.wait()


@asynccontextmanager
async def surroundings(folder: Path, images: Json) -> AsyncIterator[tuple[Surroundings, FakeApi, FakeHost]]:
    """What a pod runs in, with the table of images that is given."""
    table = folder / "images.json"
    table.write_text(json.dumps(images))
    options = Options(
        server="",
        prefix="test",
        token_file=folder,
        ca=folder,
        images=table,
        dir=folder / "pods",
        tls_cert=folder,
        tls_key=folder,
        backoff_scale=0.001,
    )
    api, host = FakeApi(), FakeHost()
    host.here.set()
    async with aiohttp.ClientSession() as http:
        recorder = Recorder(api)
        sending = asyncio.create_task(recorder.run())
        yield Surroundings(options, api, recorder, Addresses(), tuple, http), api, host
        sending.cancel()


def pod(name: str = "p", **spec: Any) -> Json:
    container = {"name": "main", "image": "fake:1"}
    return {
        "metadata": {"name": name, "namespace": "ns", "uid": f"uid-{name}"},
        "spec": {"nodeName": "n", "containers": [container], **spec},
        "status": {},
    }

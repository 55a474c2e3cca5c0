"""The process kubelet as a whole: what it watches, serves and plays, from start to end."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import aiohttp

from cluster.sim.kubelet import cgroups, shapes, tpu_webhook
from cluster.sim.kubelet.client import ApiError, HttpApi, log
from cluster.sim.kubelet.network import DnsServer, Network
from cluster.sim.kubelet.node import KUBELET_PORT, NodeWorker
from cluster.sim.kubelet.options import Options
from cluster.sim.kubelet.recorder import Recorder
from cluster.sim.kubelet.sandbox import BRIDGE, Addresses, command
from cluster.sim.kubelet.server import WEBHOOK_PATH, KubeletServer
from cluster.sim.kubelet.shapes import Json
from cluster.sim.kubelet.surroundings import Surroundings

_NEWNS, _REC, _SLAVE = 0x20000, 16384, 1 << 19
_MEMORY_OF_PODS = "16g"
_DNS_PORT = 53


def hide_mounts(folder: Path) -> None:
    """Move into a mount namespace of our own, with a file system in memory for the pods.

    Whatever is mounted from here on is gone with the last process that is in here, however that ends.

    Raises:
        OSError: We may not: not root, or no namespaces.
    """
    libc: Any = ctypes.CDLL(None, use_errno=True)
    folder.mkdir(parents=True, exist_ok=True)
    size = f"size={_MEMORY_OF_PODS}".encode()
    failed = (
        libc.unshare(_NEWNS)
        or libc.mount(None, b"/", None, _REC | _SLAVE, None)
        or libc.mount(b"tmpfs", os.fsencode(folder), b"tmpfs", 0, size)
    )
    if failed:
        number = ctypes.get_errno()
        raise OSError(number, f"a mount namespace for pods can't be made: {os.strerror(number)}")


class Kubelet:
    """Plays all nodes that carry its label."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._nodes: dict[str, NodeWorker] = {}
        self._bound: dict[str, Json] = {}  # pods of nodes that we haven't heard of yet
        self._network = Network(options.dns_extra)
        self._tasks: list[asyncio.Task[None]] = []
        self._stop = asyncio.Event()
        self._wrong: BaseException | None = None

    async def run(self) -> None:
        """Play until told to end, or until something unforeseen happens; then leave nothing behind."""
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self._stop.set)
        memory = cgroups.find_tree(self._options.prefix) if self._options.memory_limits else None
        api = HttpApi(self._options.server, self._options.token_file.read_text().strip(), str(self._options.ca))
        connector = aiohttp.TCPConnector(ssl=False, force_close=True)
        async with aiohttp.ClientSession(connector=connector) as http:
            recorder = Recorder(api)
            around = Surroundings(
                self._options, api, recorder, Addresses(), self._network.services.values, http, memory
            )
            server = KubeletServer(self._nodes, self._options.tls_cert, self._options.tls_key)
            try:
                await self._serve(api, around, server)
                log("process kubelet is up")
                await self._stop.wait()
            finally:
                await self._end()
                await server.stop()
                await api.close()
        if memory is not None:
            memory.remove()
        if self._wrong is not None:
            raise self._wrong

    def _go(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.append(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        """A kubelet that has lost one of its parts is none: it ends, and says why."""
        if not task.cancelled() and task.exception() is not None:
            self._wrong = self._wrong or task.exception()
            self._stop.set()

    async def _serve(self, api: HttpApi, around: Surroundings, server: KubeletServer) -> None:
        await command("ip", "addr", "replace", f"{self._options.dns_ip}/32", "dev", BRIDGE)
        loop = asyncio.get_running_loop()
        address = (self._options.dns_ip, _DNS_PORT)
        await loop.create_datagram_endpoint(lambda: DnsServer(self._network), address)
        await server.start()
        if self._options.tpu_webhook:
            await self._register_webhook(api)
        self._go(around.recorder.run())
        known = asyncio.Event()
        self._go(api.watch("/api/v1/nodes", lambda kind, one: self._on_node(kind, one, around), known.set))
        await known.wait()
        self._go(api.watch("/api/v1/services", self._network.on_service, lambda: None))
        slices = "/apis/discovery.k8s.io/v1/endpointslices"
        self._go(api.watch(slices, self._network.on_slice, lambda: None))
        self._go(api.watch("/api/v1/pods", self._on_pod, lambda: None))

    async def _register_webhook(self, api: HttpApi) -> None:
        url = f"https://{self._options.gateway}:{KUBELET_PORT}{WEBHOOK_PATH}"
        body = tpu_webhook.configuration(url, self._options.ca.read_bytes())
        path = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
        try:
            await api.call("POST", path, body)
        except ApiError as refused:
            if refused.status != 409:  # it is registered already
                raise

    def _on_node(self, kind: str, record: Json, around: Surroundings) -> None:
        if shapes.labels_of(record).get("type") != self._options.node_type:
            return
        name = shapes.name_of(record)
        node = self._nodes.get(name)
        if kind == "DELETED":
            if node is not None:
                del self._nodes[name]
                self._go(_retire(node))
        elif node is not None and shapes.uid_of(node.record) == shapes.uid_of(record):
            node.update(record)
        else:
            self._nodes[name] = fresh = NodeWorker(record, around)
            fresh.start()
            fresh.update(record)
            for uid, pod in list(self._bound.items()):
                if shapes.node_of(pod) == name:
                    fresh.on_pod("ADDED", self._bound.pop(uid))

    def _on_pod(self, kind: str, record: Json) -> None:
        node, uid = self._nodes.get(shapes.node_of(record)), shapes.uid_of(record)
        if node is not None:
            self._bound.pop(uid, None)
            node.on_pod(kind, record)
        elif kind == "DELETED":
            self._bound.pop(uid, None)
        elif shapes.node_of(record):
            self._bound[uid] = record

    async def _end(self) -> None:
        """End every process and take everything away; nothing is told to the API server, which may be gone."""
        log("stopping: every pod's processes are ended")
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for node in list(self._nodes.values()):
            await node.stop()
        pods = [pod for node in self._nodes.values() for pod in node.pods.values()]
        with contextlib.suppress(Exception):
            await asyncio.gather(*(pod.force() for pod in pods))


async def _retire(node: NodeWorker) -> None:
    """A node that is no more takes its pods along."""
    await node.stop()
    await asyncio.gather(*(pod.force() for pod in node.pods.values()), return_exceptions=True)

"""The kubelet's own server, which the API server passes logs, exec and port-forward on to."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from aiohttp import web

from cluster.sim.kubelet import shapes, streams, tpu_webhook
from cluster.sim.kubelet.container import ContainerWorker
from cluster.sim.kubelet.logs import parse_query
from cluster.sim.kubelet.node import KUBELET_PORT, NodeWorker
from cluster.sim.kubelet.pod import PodWorker

WEBHOOK_PATH = "/mutate"


class KubeletServer:
    """One server for all nodes: their addresses are this machine's."""

    def __init__(self, nodes: Mapping[str, NodeWorker], cert: Path, key: Path) -> None:
        self._nodes = nodes
        self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._tls.load_cert_chain(cert, key)
        self._runner: web.AppRunner | None = None

    async def start(self) -> None:
        """Listen."""
        app = web.Application()
        app.router.add_get("/healthz", _healthy)
        app.router.add_get("/containerLogs/{namespace}/{pod}/{container}", self._logs)
        for method in ("GET", "POST"):
            app.router.add_route(method, "/exec/{namespace}/{pod}/{container}", self._exec)
            app.router.add_route(method, "/portForward/{namespace}/{pod}", self._forward)
        app.router.add_post(WEBHOOK_PATH, _mutate)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "0.0.0.0", KUBELET_PORT, ssl_context=self._tls).start()

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    def _pod(self, request: web.Request) -> PodWorker:
        wanted = (request.match_info["namespace"], request.match_info["pod"])
        for node in self._nodes.values():
            for pod in node.pods.values():
                if (shapes.namespace_of(pod.record), shapes.name_of(pod.record)) == wanted:
                    if not node.reachable:
                        raise web.HTTPServiceUnavailable(text=f"dial tcp {node.address}: connect: no route to host")
                    return pod
        raise web.HTTPNotFound(text=f'pod "{wanted[1]}" not found')

    def _container(self, request: web.Request) -> tuple[PodWorker, ContainerWorker]:
        pod, name = self._pod(request), request.match_info["container"]
        found = _first(pod.containers, lambda one: one.name == name)
        if found is None:
            raise web.HTTPNotFound(text=f'container "{name}" in pod "{shapes.name_of(pod.record)}" not found')
        return pod, found

    async def _logs(self, request: web.Request) -> web.StreamResponse:
        pod, worker = self._container(request)
        query = parse_query(request.query)
        path = pod.place.log(worker.name, worker.log_run(query.previous))
        named = f'container "{worker.name}" in pod "{shapes.name_of(pod.record)}"'
        if not path.exists():
            if query.previous:
                raise web.HTTPBadRequest(text=f"previous terminated {named} not found")
            if worker.process is not None and worker.process.nominal:
                return web.Response(text="")
            raise web.HTTPBadRequest(text=f"{named} is waiting to start: {_why(worker)}")
        return await streams.send_log(request, path, query, worker)

    async def _exec(self, request: web.Request) -> web.WebSocketResponse:
        _, worker = self._container(request)
        if worker.process is None:
            raise web.HTTPBadRequest(text=f"container not found ({worker.name!r})")
        return await streams.execute(request, worker.process)

    async def _forward(self, request: web.Request) -> web.WebSocketResponse:
        pod = self._pod(request)
        return await streams.forward(request, pod.sandbox.address)


def _first(workers: Iterable[ContainerWorker], fits: Callable[[ContainerWorker], bool]) -> ContainerWorker | None:
    return next((one for one in workers if fits(one)), None)


def _why(worker: ContainerWorker) -> str:
    waiting = worker.status.state.json().get("waiting") or {}
    return str(waiting.get("reason") or "ContainerCreating")


async def _healthy(_: web.Request) -> web.Response:
    return web.Response(text="ok")


async def _mutate(request: web.Request) -> web.Response:
    return web.json_response(tpu_webhook.review(await request.json()))

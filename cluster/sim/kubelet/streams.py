"""What the API server passes on to a kubelet: exec and port-forward over websockets, logs over HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import struct
from pathlib import Path

from aiohttp import WSMsgType, web

from cluster.sim.kubelet.container import ContainerWorker
from cluster.sim.kubelet.logs import LogQuery, LogView
from cluster.sim.kubelet.processes import Process
from cluster.sim.kubelet.shapes import Json

_STDIN, _STDOUT, _STDERR, _ERROR, _CLOSE = 0, 1, 2, 3, 255
EXEC_PROTOCOLS = ("v5.channel.k8s.io", "v4.channel.k8s.io")
FORWARD_PROTOCOLS = ("v4.channel.k8s.io", "portforward.k8s.io")
_PIECE, _LOOK_AGAIN = 65536, 0.1


def exit_status(code: int) -> Json:
    """How the end of a command is told on its error channel."""
    if code == 0:
        return {"metadata": {}, "status": "Success"}
    return {
        "metadata": {},
        "status": "Failure",
        "reason": "NonZeroExitCode",
        "message": f"command terminated with exit code {code}",
        "details": {"causes": [{"reason": "ExitCode", "message": str(code)}]},
    }


async def execute(request: web.Request, process: Process) -> web.WebSocketResponse:
    """Run a command inside a container, its streams passed through a websocket."""
    command = process.entering(request.query.getall("command"))
    if command is None:
        raise web.HTTPBadRequest(text="container not running")
    typed = request.query.get("input") or request.query.get("stdin")
    socket = web.WebSocketResponse(protocols=EXEC_PROTOCOLS)
    await socket.prepare(request)
    inside = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.PIPE if typed else asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={"PATH": os.defpath},
    )
    typing = asyncio.create_task(_type(socket, inside))
    try:
        await asyncio.gather(_show(socket, _STDOUT, inside.stdout), _show(socket, _STDERR, inside.stderr))
        code = await inside.wait()
        status = json.dumps(exit_status(128 - code if code < 0 else code)).encode()
        with contextlib.suppress(ConnectionError):
            await socket.send_bytes(bytes([_ERROR]) + status)
        await socket.close()
    finally:
        typing.cancel()
        if inside.returncode is None:
            inside.kill()
            await inside.wait()
    return socket


async def _show(socket: web.WebSocketResponse, channel: int, stream: asyncio.StreamReader | None) -> None:
    while stream and (piece := await stream.read(_PIECE)):
        await socket.send_bytes(bytes([channel]) + piece)


async def _type(socket: web.WebSocketResponse, inside: asyncio.subprocess.Process) -> None:
    """Pass on what is typed; who goes away takes the command along."""
    stdin = inside.stdin
    async for message in socket:
        data = message.data if isinstance(message.data, bytes) else str(message.data).encode()
        if stdin is not None and data[:1] == bytes([_STDIN]):
            with contextlib.suppress(ConnectionError):
                stdin.write(data[1:])
                await stdin.drain()
        elif stdin is not None and data[:2] == bytes([_CLOSE, _STDIN]):
            stdin.close()
    if inside.returncode is None:
        inside.kill()


async def forward(request: web.Request, address: str) -> web.WebSocketResponse:
    """Connect a websocket to ports of a pod: two channels a port, for its bytes and for what goes wrong."""
    socket = web.WebSocketResponse(protocols=FORWARD_PROTOCOLS)
    await socket.prepare(request)
    asked = request.query.getall("port", request.query.getall("ports", []))
    ports = [int(number) for word in asked for number in word.split(",")]
    writers: dict[int, asyncio.StreamWriter] = {}
    readers: list[asyncio.Task[None]] = []
    try:
        for at, port in enumerate(ports):
            for channel in (2 * at, 2 * at + 1):
                await socket.send_bytes(bytes([channel]) + struct.pack("<H", port))
            try:
                reader, writers[2 * at] = await asyncio.open_connection(address, port)
            except OSError as wrong:
                said = f"failed to connect to {address}:{port}: {wrong}"
                await socket.send_bytes(bytes([2 * at + 1]) + said.encode())
                continue
            readers.append(asyncio.create_task(_bring(socket, 2 * at, reader)))
        await _take(socket, writers)
    finally:
        for task in readers:
            task.cancel()
        for writer in writers.values():
            writer.close()
    return socket


async def _bring(socket: web.WebSocketResponse, channel: int, reader: asyncio.StreamReader) -> None:
    with contextlib.suppress(OSError):
        while piece := await reader.read(_PIECE):
            await socket.send_bytes(bytes([channel]) + piece)
    await socket.close()  # who forwards one port, as clients do, learns by it that the server has ended


async def _take(socket: web.WebSocketResponse, writers: dict[int, asyncio.StreamWriter]) -> None:
    async for message in socket:
        if message.type is not WSMsgType.BINARY or not message.data:
            continue
        writer = writers.get(message.data[0])
        if writer is not None:
            try:
                writer.write(message.data[1:])
                await writer.drain()
            except OSError:
                return


async def send_log(request: web.Request, path: Path, query: LogQuery, worker: ContainerWorker) -> web.StreamResponse:
    """Send a container's log, and what comes to it if that is wanted."""
    response = web.StreamResponse(headers={"Content-Type": "text/plain"})
    await response.prepare(request)
    view = LogView(query)
    with path.open("rb") as file:
        lines = query.last(file.readlines())
        while True:
            ended = worker.process is None  # before the last look, lest what was written in between be lost
            shown = b"".join(view.show(line) for line in lines)
            if shown:
                await response.write(shown)
            if not query.follow or view.full:
                break
            lines = file.readlines()
            if not lines:
                if ended:
                    break
                await asyncio.sleep(_LOOK_AGAIN)
    await response.write_eof()
    return response

"""The supervisor's socket: one request a connection, or one stream."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from kinetic_ray import wire
from kinetic_ray.errors import KineticError, UsageError

_LOG = logging.getLogger(__name__)
_REQUEST_S = 30.0

Request = dict[str, Any]
Answer = dict[str, Any]
Operation = Callable[[Request], Awaitable[Answer]]
Stream = Callable[[Request, asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Server:
    """Reads requests, hands them to operations, sends their answers; streams are handed the open connection."""

    def __init__(self, operations: dict[str, Operation], streams: dict[str, Stream]) -> None:
        self._operations = operations
        self._streams = streams
        self._server: asyncio.Server | None = None

    async def listen(self, path: Path) -> None:
        """Opens the socket; its folder lets nobody else in."""
        self._server = await asyncio.start_unix_server(self._serve, path, limit=wire.MAX_LINE)

    def close(self) -> None:
        """Takes no more connections; open ones go on."""
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            wire.check_peer(writer.get_extra_info("socket"))
            line = await asyncio.wait_for(reader.readline(), _REQUEST_S)
            if line:
                await self._answer(wire.decode(line), reader, writer)
        except (OSError, TimeoutError, ValueError, wire.WireError) as exc:
            _LOG.warning("a connection was dropped: %s", exc)
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _answer(self, request: Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        name = str(request.get("op"))
        try:
            if name in self._streams:
                await self._streams[name](request, reader, writer)
                return
            if name not in self._operations:
                raise UsageError(f"the supervisor knows no operation {name!r}")
            answer = {"ok": True, **await self._operations[name](request)}
        except KineticError as exc:
            answer = wire.failure(exc)
        except Exception as exc:  # noqa: BLE001 - a request can break its connection, never the supervisor
            _LOG.exception("%s", name)
            answer = wire.failure(KineticError(f"the supervisor failed at {name!r}: {type(exc).__name__}: {exc}"))
        writer.write(wire.encode(answer))
        await writer.drain()


async def until_closed(reader: asyncio.StreamReader) -> None:
    """Waits for the end of a stream; what a client sends on it is of no account."""
    with contextlib.suppress(OSError):
        while await reader.read(65536):
            pass

"""The only way into a plane: what connects to a port of the host's loopback is connected to a server inside.

Run as `python -m cluster.sim.relay FD=HOST:PORT ...` inside the plane's network. The sockets were opened outside and
are inherited: a socket stays in the network that it was opened in, so nothing that this process itself connects to lies
outside the plane.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys

_BLOCK = 1 << 16


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while block := await reader.read(_BLOCK):
            writer.write(block)
            await writer.drain()
        writer.write_eof()


async def _connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str, port: int) -> None:
    """A server that doesn't answer looks as it would without a relay: the connection ends."""
    with contextlib.closing(writer), contextlib.suppress(OSError):
        inner_reader, inner_writer = await asyncio.open_connection(host, port)
        with contextlib.closing(inner_writer):
            await asyncio.gather(_copy(reader, inner_writer), _copy(inner_reader, writer))


async def _serve(listener: socket.socket, host: str, port: int) -> None:
    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await _connect(reader, writer, host, port)

    server = await asyncio.start_server(connected, sock=listener)
    await server.serve_forever()


async def _main(routes: list[str]) -> None:
    servers = []
    for route in routes:
        number, _, target = route.partition("=")
        host, _, port = target.rpartition(":")
        servers.append(_serve(socket.socket(fileno=int(number)), host, int(port)))
    await asyncio.gather(*servers)


if __name__ == "__main__":
    asyncio.run(_main(sys.argv[1:]))

"""The cluster's services: their addresses here, relayed to whoever stands behind them, and its DNS."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import cast

from cluster.sim.kubelet import routing, shapes
from cluster.sim.kubelet.client import log
from cluster.sim.kubelet.routing import Endpoint, Key
from cluster.sim.kubelet.sandbox import BRIDGE, CommandError, command
from cluster.sim.kubelet.shapes import Json

_PIECE = 65536


class Network:
    """All services and their endpoints, as the API server tells of them."""

    def __init__(self, extra_names: Mapping[str, str]) -> None:
        self.services: dict[Key, Json] = {}
        self._slices: dict[Key, Json] = {}
        self._extra_names = extra_names
        self._relays: dict[tuple[str, int], _Relay] = {}
        self._changing = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()

    def on_service(self, kind: str, record: Json) -> None:
        key = (shapes.namespace_of(record), shapes.name_of(record))
        if kind == "DELETED":
            self.services.pop(key, None)
        else:
            self.services[key] = record
        task = asyncio.create_task(self._arrange(key))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def on_slice(self, kind: str, record: Json) -> None:
        key = (shapes.namespace_of(record), shapes.name_of(record))
        if kind == "DELETED":
            self._slices.pop(key, None)
        else:
            self._slices[key] = record

    def endpoints(self, service: Key) -> list[Endpoint]:
        return list(routing.endpoints(self._slices.values(), service))

    def resolve(self, name: str) -> tuple[str, ...] | None:
        return routing.resolve(name, self.services, self._slices.values(), self._extra_names)

    async def _arrange(self, key: Key) -> None:
        """Have one relay for each port of a service that has an address, and no other."""
        async with self._changing:
            wanted = {(one.address, one.port): one for one in _ports(self.services.get(key))}
            for place in [place for place, relay in self._relays.items() if relay.service == key]:
                if place not in wanted:
                    await self._relays.pop(place).close()
            for place, port in wanted.items():
                if place not in self._relays:
                    try:
                        await command("ip", "addr", "replace", f"{port.address}/32", "dev", BRIDGE)
                        self._relays[place] = await _Relay.open(key, port, self)
                    except (CommandError, OSError) as wrong:
                        log("service", key, wrong)


@dataclass(frozen=True, slots=True)
class _Port:
    address: str
    port: int
    name: str


def _ports(service: Json | None) -> Iterable[_Port]:
    spec = (service or {}).get("spec") or {}
    address = spec.get("clusterIP")
    if spec.get("type") != "ExternalName" and address not in (None, "", "None"):
        for port in spec.get("ports") or []:
            if (port.get("protocol") or "TCP") == "TCP":
                yield _Port(str(address), int(port["port"]), port.get("name") or "")


class _Relay:
    """Passes connections on, from one port of a service to a random endpoint."""

    def __init__(self, service: Key, port: _Port, network: Network) -> None:
        self.service = service
        self._port = port
        self._network = network
        self._server: asyncio.Server | None = None

    @classmethod
    async def open(cls, service: Key, port: _Port, network: Network) -> _Relay:
        relay = cls(service, port, network)
        relay._server = await asyncio.start_server(relay._pass_on, port.address, port.port)
        return relay

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
            with contextlib.suppress(CommandError):
                await command("ip", "addr", "del", f"{self._port.address}/32", "dev", BRIDGE)

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            found = self._network.endpoints(self.service)
            if found:
                chosen = random.choice(found)
                port = chosen.port(self._port.name, self._port.port)
                await splice(reader, writer, *await asyncio.open_connection(chosen.address, port))
        except OSError:
            pass
        finally:
            writer.close()


async def splice(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    other_reader: asyncio.StreamReader,
    other_writer: asyncio.StreamWriter,
) -> None:
    """Pass bytes both ways until both ways have ended."""

    async def one_way(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while piece := await source.read(_PIECE):
                target.write(piece)
                await target.drain()
            if target.can_write_eof():
                target.write_eof()

    try:
        await asyncio.gather(one_way(reader, other_writer), one_way(other_reader, writer))
    finally:
        other_writer.close()
        writer.close()


class DnsServer(asyncio.DatagramProtocol):
    """The cluster's DNS."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self._transport: asyncio.DatagramTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.DatagramTransport", transport)  # Python 3.11 has it as no subclass

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        with contextlib.suppress(ValueError):
            name, _, _ = routing.question(data)
            if self._transport is not None:
                self._transport.sendto(routing.answer(data, self._network.resolve(name)), addr)

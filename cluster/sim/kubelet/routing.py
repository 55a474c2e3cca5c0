"""Names and addresses of the cluster: who stands behind a service, and what its DNS answers."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from cluster.sim.kubelet import environment, shapes
from cluster.sim.kubelet.shapes import Json

DOMAIN = "cluster.local"
_ADDRESS_TYPE, _LIFE = 1, 2
_NO_SUCH_NAME, _AUTHORITATIVE = 3, 0x8580

Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One address behind a service, and its ports by name."""

    address: str
    hostname: str
    ports: tuple[tuple[str, int], ...]

    def port(self, name: str, default: int) -> int:
        return dict(self.ports).get(name, default)


def endpoints(slices: Iterable[Json], service: Key, ready_only: bool = True) -> Iterator[Endpoint]:
    """Who stands behind a service (namespace, name)."""
    for one in slices:
        named = shapes.labels_of(one).get("kubernetes.io/service-name")
        if (shapes.namespace_of(one), named) != service or one.get("addressType") != "IPv4":
            continue
        ports = tuple((port.get("name") or "", int(port.get("port") or 0)) for port in one.get("ports") or [])
        for endpoint in one.get("endpoints") or []:
            ready = (endpoint.get("conditions") or {}).get("ready", True)
            if ready or not ready_only:
                for address in endpoint["addresses"]:
                    yield Endpoint(address, endpoint.get("hostname") or "", ports)


def resolve(
    name: str, services: Mapping[Key, Json], slices: Iterable[Json], extra: Mapping[str, str]
) -> tuple[str, ...] | None:
    """The addresses of a name; None if there is no such name.

    Args:
        name: As it was asked for.
        services: All services.
        slices: All endpoint slices.
        extra: Further names, outside the cluster's domain.
    """
    labels = name.lower().rstrip(".").split(".")
    suffix = ["svc", *DOMAIN.split(".")]
    if labels[-len(suffix) :] != suffix:
        address = extra.get(".".join(labels))
        return (address,) if address else None
    match labels[: -len(suffix)]:
        case [service, namespace]:
            return _service(services.get((namespace, service)), slices)
        case [host, service, namespace]:
            found = endpoints(slices, (namespace, service), ready_only=not _unready(services.get((namespace, service))))
            return tuple(one.address for one in found if one.hostname == host) or None
    return None


def _service(service: Json | None, slices: Iterable[Json]) -> tuple[str, ...] | None:
    if service is None:
        return None
    address = service["spec"].get("clusterIP")
    if address not in (None, "", "None"):
        return (str(address),)
    key = (shapes.namespace_of(service), shapes.name_of(service))
    found = endpoints(slices, key, ready_only=not _unready(service))
    return tuple(dict.fromkeys(one.address for one in found)) or None


def _unready(service: Json | None) -> bool:
    return bool(service and service["spec"].get("publishNotReadyAddresses"))


def question(packet: bytes) -> tuple[str, int, int]:
    """The name and the type that a DNS packet asks for, and where its question ends.

    Raises:
        ValueError: It asks for nothing.
    """
    at, labels = 12, []
    try:
        while packet[at]:
            labels.append(packet[at + 1 : at + 1 + packet[at]].decode("ascii", "replace"))
            at += packet[at] + 1
        (kind,) = struct.unpack(">H", packet[at + 1 : at + 3])
    except (IndexError, struct.error) as wrong:
        raise ValueError("no question") from wrong
    return ".".join(labels), int(kind), at + 5


def answer(packet: bytes, addresses: tuple[str, ...] | None) -> bytes:
    """The DNS packet that answers another; None means that there is no such name."""
    _, kind, end = question(packet)
    given = addresses if addresses and kind == _ADDRESS_TYPE else ()
    flags = _AUTHORITATIVE | (_NO_SUCH_NAME if addresses is None else 0)
    head = packet[:2] + struct.pack(">HHHHH", flags, 1, len(given), 0, 0)
    lines = [b"\xc0\x0c" + struct.pack(">HHIH", 1, 1, _LIFE, 4) + socket.inet_aton(one) for one in given]
    return head + packet[12:end] + b"".join(lines)


def resolv_conf(pod: Json, server: str) -> str:
    """A pod's /etc/resolv.conf."""
    policy, custom = pod["spec"].get("dnsPolicy") or "ClusterFirst", pod["spec"].get("dnsConfig") or {}
    namespace = shapes.namespace_of(pod)
    own = policy != "None"
    servers = [*([server] if own else []), *(custom.get("nameservers") or [])]
    searched = [f"{namespace}.svc.{DOMAIN}", f"svc.{DOMAIN}", DOMAIN] if own else []
    searched += custom.get("searches") or []
    options = {"ndots": "5"} if own else {}
    options |= {one["name"]: one.get("value") or "" for one in custom.get("options") or []}
    lines = [f"nameserver {one}" for one in servers]
    lines += [f"search {' '.join(searched)}"] if searched else []
    spelled = [f"{name}:{value}" if value else name for name, value in options.items()]
    return "\n".join([*lines, *([f"options {' '.join(spelled)}"] if spelled else [])]) + "\n"


def hosts_file(pod: Json, address: str) -> str:
    """A pod's /etc/hosts."""
    name, subdomain = environment.hostname(pod), pod["spec"].get("subdomain")
    full = f"{name}.{subdomain}.{shapes.namespace_of(pod)}.svc.{DOMAIN}\t{name}" if subdomain else name
    aliases = [f"{one['ip']}\t{' '.join(one['hostnames'])}" for one in pod["spec"].get("hostAliases") or []]
    return "\n".join(["127.0.0.1\tlocalhost", f"{address}\t{full}", *aliases]) + "\n"

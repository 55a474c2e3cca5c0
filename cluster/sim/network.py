"""The plane's own network: a bridge for its pods in a network namespace that has no way out."""

from __future__ import annotations

GATEWAY = "10.244.0.1"
SERVICES = "10.96.0.0/16"
API_SERVICE, DNS = "10.96.0.1", "10.96.0.10"
API_PORT, ETCD_PORT, GCS_PORT = 6443, 2379, 4443
#: Pods find the store by this name; it stands for no real place.
GCS_NAME = "gcs.kinetic.test"
#: Of the pods' network; all of it is this machine, so that a node needs no address to be added.
_NODES = "10.244.255"


def node_address(number: int) -> str:
    """The address of a node by its number, from 1."""
    if not 1 <= number <= 254:
        raise ValueError(f"node {number}: a plane has at most 254 nodes")
    return f"{_NODES}.{number}"


def pod_range(number: int) -> str:
    """The addresses of a node's pods."""
    node_address(number)
    return f"10.244.{number}.0/24"


def setup_commands() -> tuple[tuple[str, ...], ...]:
    """What makes the network, run as root inside the new namespaces, in this order."""
    return (
        ("ip", "link", "set", "lo", "up"),
        ("ip", "link", "add", "br0", "type", "bridge"),
        ("ip", "addr", "add", f"{GATEWAY}/16", "dev", "br0"),
        ("ip", "link", "set", "br0", "up"),
        ("ip", "route", "add", "local", f"{_NODES}.0/24", "dev", "lo"),
    )

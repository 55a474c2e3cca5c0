"""Placement: one group per slice, each bundle pinned to its host, and proof that what was placed is what was asked for.

The only module that knows placement groups and Ray's TPU labels. A group's name tells whose it is and what was asked
for, so that leases can be read off the cluster's table of groups.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ray
from ray import PlacementGroupID
from ray.util.placement_group import (
    PlacementGroup,
    placement_group,
    placement_group_table,
    remove_placement_group,
)
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from kinetic_ray.errors import KineticError
from kinetic_ray.runner.leases import Group, Holdings, group_name, holdings_of
from kinetic_ray.runner.queue import CPU, Lease

_SLICE_LABEL, _WORKER_LABEL, _NODE_LABEL = "ray.io/tpu-slice-name", "ray.io/tpu-worker-id", "ray.io/node-id"
_MIN_CPU = 0.001  # a bundle may not be empty


class Misplaced(KineticError):
    """What was placed is not what was granted."""


@dataclass(frozen=True, slots=True)
class Host:
    """The place of one rank.

    Attributes:
        rank: Slice index x hosts + worker id.
        slice_index: Its slice among the job's.
        slice_name: That slice's name; "" for a CPU host.
        worker_id: Its number in the slice; for CPU hosts the rank.
        node_id: The Ray node; "" where Ray chooses it.
    """

    rank: int
    slice_index: int = 0
    slice_name: str = ""
    worker_id: int = 0
    node_id: str = ""

    @property
    def where(self) -> str:
        """For people."""
        return f"host {self.worker_id} of {self.slice_name}" if self.slice_name else f"host {self.worker_id}"

    def to_event(self) -> dict[str, Any]:
        return {"rank": self.rank, "slice": self.slice_name, "worker_id": self.worker_id, "node_id": self.node_id}


def hosts_of(lease: Lease) -> tuple[Host, ...]:
    """The hosts of a lease by rank."""
    if lease.ticket.accelerator == CPU:
        return tuple(Host(rank, worker_id=rank) for rank in range(lease.ticket.hosts))
    places = [
        (index, one.name, worker_id, node_id)
        for index, one in enumerate(lease.slices)
        for worker_id, node_id in enumerate(one.nodes)
    ]
    return tuple(Host(rank, *place) for rank, place in enumerate(places))


def check_hosts(hosts: Sequence[Host], found: Sequence[Mapping[str, Any]]) -> tuple[Host, ...]:
    """Compares what the agents say of themselves with where they should be.

    Args:
        hosts: By rank.
        found: `describe()` of each agent, by rank: node_id, slice_name, worker_id.

    Returns:
        The hosts with the nodes that they are on.

    Raises:
        Misplaced: A slice's hosts are mixed up, incomplete or shared.
    """
    checked = []
    for host, there in zip(hosts, found, strict=True):
        if host.slice_name:
            actual = (there["slice_name"], there["worker_id"])
            if actual != (host.slice_name, host.worker_id):
                there_is = f"host {actual[1]} of {actual[0] or 'no slice'}"
                raise Misplaced(f"rank {host.rank} belongs on {host.where}, but runs on {there_is}")
            if host.node_id and there["node_id"] != host.node_id:
                raise Misplaced(f"{host.where} is node {there['node_id']} now, {host.node_id} was granted")
        checked.append(Host(host.rank, host.slice_index, host.slice_name, host.worker_id, there["node_id"]))
    nodes = [host.node_id for host in checked if host.slice_name]
    if len(set(nodes)) != len(nodes):
        raise Misplaced(f"two ranks share a node: {nodes}")
    return tuple(checked)


def multislice_env(host: Host, num_slices: int, coordinator: str) -> dict[str, str]:
    """The `MEGASCALE_*` variables of a rank, {} for a single slice.

    Args:
        host: The rank's place.
        num_slices: Slices in the gang.
        coordinator: "host:port" for the slices' own meeting, fresh on every attempt: stale ones hang the start.
    """
    if num_slices < 2:
        return {}
    address, _, port = coordinator.rpartition(":")
    return {
        "MEGASCALE_COORDINATOR_ADDRESS": address,
        "MEGASCALE_PORT": port,
        "MEGASCALE_NUM_SLICES": str(num_slices),
        "MEGASCALE_SLICE_ID": str(host.slice_index),
    }


class Placement:
    """The placement groups of one lease."""

    def __init__(self, lease: Lease) -> None:
        """Asks for the groups; returns before they are ready."""
        self._ticket = lease.ticket
        self._groups: list[PlacementGroup] = []
        self._per_group = max(1, len(hosts_of(lease)) // max(1, len(lease.slices)))
        try:
            for index in range(max(1, len(lease.slices))):
                self._groups.append(self._create(lease, index))
        except BaseException:
            self.remove()
            raise

    def ready(self) -> dict[int, Any]:
        """A ref per group that resolves when all its bundles are held."""
        return {index: group.ready() for index, group in enumerate(self._groups)}

    def wait(self, seconds: float) -> bool:
        """Whether all bundles are held within so many seconds; blocks, but starts no process as :meth:`ready` does."""
        deadline = time.monotonic() + seconds
        return all(group.wait(max(0.0, deadline - time.monotonic())) for group in self._groups)

    def nodes(self) -> tuple[str, ...]:
        """Where the bundles are, by rank."""
        found = [placement_group_table(group)["bundles_to_node_id"] for group in self._groups]
        return tuple(nodes[index] for nodes in found for index in sorted(nodes, key=int))

    def actor_options(self, host: Host) -> dict[str, Any]:
        """Where the actor of a rank goes and what it takes: its whole bundle."""
        strategy = PlacementGroupSchedulingStrategy(
            self._groups[host.rank // self._per_group],
            placement_group_bundle_index=host.rank % self._per_group,
        )
        bundle = dict(self._bundle())
        options: dict[str, Any] = {"num_cpus": bundle.pop("CPU", 0), "scheduling_strategy": strategy}
        if memory := bundle.pop("memory", 0):
            options["memory"] = memory
        return {**options, "resources": bundle} if bundle else options

    def remove(self) -> None:
        """Gives everything back, killing what runs there; safe to repeat."""
        while self._groups:
            remove_placement_group(self._groups.pop())

    def _bundle(self) -> dict[str, float]:
        if self._ticket.accelerator != CPU:
            return {"TPU": self._ticket.chips_per_host}
        if not self._ticket.is_counted:  # it needs no CPU of its own, and there may be none; a bundle needs something
            return {"memory": 1}
        memory = {"memory": self._ticket.memory} if self._ticket.memory else {}
        return {"CPU": max(self._ticket.cpus, _MIN_CPU), **memory}

    def _create(self, lease: Lease, index: int) -> PlacementGroup:
        name = group_name(self._ticket, index, lease.slices[index].name if lease.slices else "")
        bundles = [self._bundle() for _ in range(self._per_group)]
        if not lease.slices:
            places = None if self._ticket.is_counted else [_on_cpu_nodes()] * len(bundles)
            return placement_group(bundles, strategy="PACK", name=name, bundle_label_selector=places)
        pins = [
            {_SLICE_LABEL: lease.slices[index].name, _WORKER_LABEL: str(worker_id)}
            for worker_id in range(self._per_group)
        ]
        strategy = "STRICT_SPREAD" if self._per_group > 1 else "PACK"
        return placement_group(bundles, strategy=strategy, name=name, bundle_label_selector=pins)


def holdings() -> Holdings:
    """What is held in the cluster, by its table of placement groups, those that wait to be placed among them."""
    groups = []
    for row in placement_group_table().values():
        nodes = row["bundles_to_node_id"]
        by_bundle = tuple(nodes[index] for index in sorted(nodes, key=int))
        groups.append(Group(row["name"], by_bundle, row["state"] == "REMOVED"))
    return holdings_of(groups, _slices_up())


def cpu_capacity() -> tuple[float, int]:
    """CPUs and memory of the nodes that have CPUs to give: a slice's hosts have none, and their memory is their own."""
    resources = [node["Resources"] for node in _cpu_nodes()]
    return sum(float(one["CPU"]) for one in resources), sum(int(one.get("memory", 0)) for one in resources)


def _cpu_nodes() -> list[dict[str, Any]]:
    return [node for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU")]


def _on_cpu_nodes() -> dict[str, str]:
    """A label selector that keeps a bundle without CPUs off the hosts of slices."""
    return {_NODE_LABEL: f"in({','.join(node['NodeID'] for node in _cpu_nodes())})"}


def _slices_up() -> dict[str, tuple[str, ...]]:
    """The node ids by worker id of each slice."""
    found: dict[str, dict[int, str]] = {}
    for node in ray.nodes():
        name = node["Labels"].get(_SLICE_LABEL)
        if node["Alive"] and name:
            found.setdefault(name, {})[int(node["Labels"][_WORKER_LABEL])] = node["NodeID"]
    return {name: tuple(hosts[worker] for worker in sorted(hosts)) for name, hosts in found.items()}


def remove_groups(holders: str) -> None:
    """Removes what is held under ids that begin so."""
    for row in placement_group_table().values():
        if row["state"] != "REMOVED" and row["name"].startswith(f"kinetic/{holders}"):
            remove_placement_group(PlacementGroup(PlacementGroupID.from_hex(row["placement_group_id"])))


def node_is_alive(node_id: str) -> bool:
    """What Ray believes; a silent node counts as alive for some seconds."""
    return any(node["NodeID"] == node_id and node["Alive"] for node in ray.nodes())


def node_address(node_id: str) -> str:
    """The address by which other hosts reach a node."""
    return next(str(node["NodeManagerAddress"]) for node in ray.nodes() if node["NodeID"] == node_id)

"""Node pools as Kubernetes sees them: Node objects labelled and tainted as GKE does."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from typing import Any

from cluster.sim.network import node_address, pod_range
from cluster.sim.spec import GPUS, TPUS, NodePool

#: The process kubelet plays the nodes whose label `type` is this.
PLAYED = "process"
ZONE, REGION = "us-east5-b", "us-east5"
_TROUBLE = "node.kubernetes.io/"  # what taints of Kubernetes itself begin with
_CAPACITY_LABELS = {
    "on-demand": {},
    "spot": {"cloud.google.com/gke-spot": "true", "cloud.google.com/gke-provisioning": "spot"},
    "reserved": {"cloud.google.com/reservation-name": "test-reservation"},
    "flex-start": {"cloud.google.com/gke-flex-start": "true", "cloud.google.com/gke-provisioning": "flex-start"},
}


def nodes_of(pool: NodePool, first: int, version: str) -> Iterator[dict[str, Any]]:
    """The Node objects of a pool; their addresses are counted from `first`, a number that no other node has."""
    for index, name in enumerate(pool.node_names()):
        yield _node(pool, name, first + index, version)


def labels_of(pool: NodePool) -> dict[str, str]:
    """What GKE writes on every node of the pool."""
    return {
        "type": PLAYED,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        "node.kubernetes.io/instance-type": pool.machine_type,
        "topology.kubernetes.io/zone": ZONE,
        "topology.kubernetes.io/region": REGION,
        "cloud.google.com/gke-nodepool": pool.name,
        "cloud.google.com/machine-family": pool.machine_type.split("-")[0],
        **_accelerator_labels(pool),
        **_CAPACITY_LABELS[pool.capacity],
    }


def taints_of(pool: NodePool) -> list[dict[str, str]]:
    """GKE keeps pods that ask for no chips away from chips; those that do tolerate it by an admission plugin."""
    return [{"key": pool.resource, "value": "present", "effect": "NoSchedule"}] if pool.resource else []


def is_usable(node: dict[str, Any]) -> bool:
    """Whether a node is ready, and the controllers have taken away the taint of those that aren't."""
    ready = any(c["type"] == "Ready" and c["status"] == "True" for c in node["status"].get("conditions") or ())
    return ready and not any(t["key"].startswith(_TROUBLE) for t in node["spec"].get("taints") or ())


def _accelerator_labels(pool: NodePool) -> dict[str, str]:
    if pool.kind == "cpu":
        return {}
    count = {"cloud.google.com/gke-accelerator-count": str(pool.chips)}
    if pool.kind == "gpu":
        return {"cloud.google.com/gke-accelerator": GPUS[pool.family][0], **count}
    return {
        "cloud.google.com/gke-tpu-accelerator": TPUS[pool.family][0],
        "cloud.google.com/gke-tpu-topology": pool.topology,
        **count,
    }


def _node(pool: NodePool, name: str, number: int, version: str) -> dict[str, Any]:
    address, pods = node_address(number), pod_range(number)
    capacity = {"cpu": str(pool.cpus), "memory": pool.memory, "pods": "110", "ephemeral-storage": "100Gi"}
    if pool.resource:
        capacity[pool.resource] = str(pool.chips)
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {**labels_of(pool), "kubernetes.io/hostname": name}},
        "spec": {"taints": taints_of(pool), "podCIDR": pods, "podCIDRs": [pods]},
        "status": {
            "capacity": capacity,
            "allocatable": capacity,
            "addresses": [{"type": "InternalIP", "address": address}, {"type": "Hostname", "address": name}],
            "nodeInfo": _node_info(version),
        },
    }


def _node_info(version: str) -> dict[str, str]:
    return {
        "architecture": "amd64",
        "bootID": "",
        "containerRuntimeVersion": "process://0",
        "kernelVersion": platform.release(),
        "kubeProxyVersion": "",
        "kubeletVersion": version,
        "machineID": "",
        "operatingSystem": "linux",
        "osImage": "processes of one machine",
        "systemUUID": "",
    }

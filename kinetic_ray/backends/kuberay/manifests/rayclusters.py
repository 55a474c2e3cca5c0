"""The RayCluster of a profile, and everything that it needs around it."""

from __future__ import annotations

from kinetic_ray.backends.kuberay.clusters import RAY_VERSION, ClusterSpec
from kinetic_ray.backends.kuberay.manifests import labels
from kinetic_ray.backends.kuberay.manifests.access import accounts, rights
from kinetic_ray.backends.kuberay.manifests.head import head_group
from kinetic_ray.backends.kuberay.manifests.labels import Json, metadata
from kinetic_ray.backends.kuberay.manifests.network import network_policies, pod_monitors
from kinetic_ray.backends.kuberay.manifests.workers import worker_group


def raycluster(spec: ClusterSpec) -> Json:
    """The RayCluster alone."""
    queue = {labels.QUEUE: spec.queue} if spec.queue else {}
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": metadata(spec.name, spec.namespace, spec.name, **queue),
        "spec": cluster_body(head_group(spec), [worker_group(spec, pool) for pool in spec.pools], {}),
    }


def surroundings(spec: ClusterSpec) -> list[Json]:
    """What must be there before its pods are: accounts, rights, the network's rules, what scrapes it."""
    return [*accounts(spec), *rights(spec), *network_policies(spec), *pod_monitors(spec)]


def manifests(spec: ClusterSpec) -> list[Json]:
    """Everything of a cluster, in the order in which it is applied."""
    return [*surroundings(spec), raycluster(spec)]


def cluster_body(head: Json, groups: list[Json], auth: Json) -> Json:
    """The spec of a RayCluster, be it inside of a RayJob.

    Args:
        head: The head group.
        groups: The worker groups.
        auth: Further options of how callers show who they are.
    """
    return {
        "rayVersion": RAY_VERSION,
        # Said, never left to the image: a file in its home would turn it on in some containers and not in others.
        "authOptions": {"mode": "token", **auth},
        # Ray's autoscaler can't start a slice of several hosts from nothing; the janitor sets replicas.
        "enableInTreeAutoscaling": False,
        "headGroupSpec": head,
        "workerGroupSpecs": groups,
    }

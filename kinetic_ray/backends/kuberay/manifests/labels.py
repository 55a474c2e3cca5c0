"""Labels of everything that kinetic_ray gives Kubernetes, by which it finds it again."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]

CLUSTER = "kinetic.dev/cluster"
ROLE = "kinetic.dev/role"
JOB = "kinetic.dev/job"
POOL = "kinetic.dev/pool"
ACCELERATOR = "kinetic.dev/accelerator"
#: KubeRay's own, one value for all pods of a replica; what it is differs for every replica there ever was.
REPLICA = "ray.io/worker-group-replica-name"
HOST_INDEX = "ray.io/replica-host-index"
QUEUE = "kueue.x-k8s.io/queue-name"


def of_cluster(name: str, job: str = "") -> Json:
    """What each object of a cluster is labelled with, and of a job's own cluster."""
    return {"app.kubernetes.io/managed-by": "kinetic-ray", CLUSTER: name, **({JOB: job} if job else {})}


def metadata(name: str, namespace: str, cluster: str, **more: str) -> Json:
    """The metadata of one object."""
    return {"name": name, "namespace": namespace, "labels": {**of_cluster(cluster), **more}}

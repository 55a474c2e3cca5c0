"""Objects of Kubernetes as tests need them, and what they look for in those that come back."""

from collections.abc import Callable
from typing import Any

from cluster.sim import ApiError
from tests.kube.conftest import Cluster
from tests.waiting import wait_until

Json = dict[str, Any]

RAY = "/apis/ray.io/v1"
#: Its pods run in name only.
FAKE_IMAGE = "rayproject/ray:fake"
PATIENCE = 120.0


def pods_path(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/pods"


def rayclusters_path(namespace: str) -> str:
    return f"{RAY}/namespaces/{namespace}/rayclusters"


def pod_spec(resource: str = "", count: int = 0, image: str = FAKE_IMAGE, **fields: object) -> Json:
    """The spec of a pod with one container that takes so much of a resource."""
    limits = {"cpu": "1", "memory": "1Gi", **({resource: str(count)} if resource else {})}
    container = {"name": "main", "image": image, "resources": {"limits": limits, "requests": limits}}
    return {"containers": [container], "terminationGracePeriodSeconds": 1, **fields}


def pod(name: str, spec: Json, **metadata: object) -> Json:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, **metadata}, "spec": spec}


def tpu_group(hosts: int = 4, replicas: int = 1, name: str = "tpu") -> Json:
    """A worker group of v6e-16 slices."""
    selector = {
        "cloud.google.com/gke-tpu-accelerator": "tpu-v6e-slice",
        "cloud.google.com/gke-tpu-topology": "4x4",
    }
    return {
        "groupName": name,
        "replicas": replicas,
        "minReplicas": 0,
        "maxReplicas": 4,
        "numOfHosts": hosts,
        "rayStartParams": {},
        "template": {"spec": pod_spec("google.com/tpu", 4, nodeSelector=selector)},
    }


def raycluster(name: str, *groups: Json) -> Json:
    head = {"rayStartParams": {}, "template": {"spec": pod_spec()}}
    spec = {"rayVersion": "2.60.0", "headGroupSpec": head, "workerGroupSpecs": list(groups)}
    return {"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": {"name": name}, "spec": spec}


def has_condition(item: Json, kind: str, status: str = "True") -> bool:
    conditions = item.get("status", {}).get("conditions") or []
    return any(condition["type"] == kind and condition["status"] == status for condition in conditions)


def state_of(kube: Cluster, namespace: str, name: str) -> str:
    status = kube.api.get(f"{rayclusters_path(namespace)}/{name}").get("status", {})
    return str(status.get("state", ""))


def wait_ready(kube: Cluster, namespace: str, name: str) -> None:
    wait_until(lambda: state_of(kube, namespace, name) == "ready", PATIENCE, f"RayCluster {name} to be ready", 0.2)


def wait_on(condition: Callable[[], object], what: str) -> None:
    """Waits for something at an API server that may be away meanwhile."""

    def holds() -> bool:
        try:
            return bool(condition())
        except (OSError, ApiError):
            return False

    wait_until(holds, PATIENCE, what, 0.2)


def messages(kube: Cluster, namespace: str, name: str, reason: str) -> list[str]:
    """What events with a reason say of an object."""
    events = kube.api.items(f"/api/v1/namespaces/{namespace}/events")
    return [
        event["message"] for event in events if event["reason"] == reason and event["involvedObject"]["name"] == name
    ]

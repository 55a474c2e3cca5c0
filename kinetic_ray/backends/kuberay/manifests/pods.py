"""What all pods of a cluster have in common."""

from __future__ import annotations

from kinetic_ray.backends.kuberay.clusters import ClusterSpec
from kinetic_ray.backends.kuberay.manifests.labels import Json

#: Shared by the head's two containers: the janitor's socket, which the head's processes speak to.
SHARED_FOLDER = "/run/kinetic"
SOCKET = f"{SHARED_FOLDER}/supervisor.sock"
#: Each secret of a pool is a folder there, each of its keys a file.
SECRETS_FOLDER = "/var/run/kinetic/secrets"
#: All buckets that the service account may read, by name.
BUCKETS_FOLDER = "/var/run/kinetic/buckets"

#: The agent of each Ray node, which answers without a token whether its raylet lives.
_AGENT_PORT = 52365
_GROUP = 1000
DASHBOARD_PORT = 8265


def resources(cpus: int, memory: str, storage: str, devices: Json | None = None) -> Json:
    """Requests and limits; memory and devices must be the same in both, CPUs are so that Ray counts what there is."""
    amounts = {"cpu": str(cpus), "memory": memory, "ephemeral-storage": storage, **(devices or {})}
    return {"limits": amounts, "requests": dict(amounts)}


def container_security(*, devices: bool) -> Json:
    """What a container may.

    Chips are opened and pinned by drivers in the container, which needs what the runtime gives by default: only there
    it is left.
    """
    given: Json = {"allowPrivilegeEscalation": False, "seccompProfile": {"type": "RuntimeDefault"}}
    return given if devices else {**given, "capabilities": {"drop": ["ALL"]}}


def probes(*, head: bool) -> Json:
    """Whether Ray serves there, by doors that are open without a token.

    A host whose cores are all busy answers late: it is given two minutes before it counts as dead.
    """
    ready = (DASHBOARD_PORT, "/api/gcs_healthz") if head else (_AGENT_PORT, "/api/local_raylet_healthz")
    alive = (_AGENT_PORT, "/api/local_raylet_healthz")
    return {
        "readinessProbe": _probe(ready, period=5, failures=10, delay=5),
        "livenessProbe": _probe(alive, period=10, failures=12, delay=60),
    }


def _probe(place: tuple[int, str], *, period: int, failures: int, delay: int) -> Json:
    port, path = place
    return {
        "httpGet": {"port": port, "path": path},
        "initialDelaySeconds": delay,
        "periodSeconds": period,
        "timeoutSeconds": 5,
        "failureThreshold": failures,
    }


def pod_spec(spec: ClusterSpec, account: str, grace: int, containers: list[Json], volumes: list[Json]) -> Json:
    """The spec of a pod; no token of Kubernetes comes in by itself, and no variables of other services."""
    pod: Json = {
        "serviceAccountName": account,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": grace,
        # What is mounted for the group alone can be read whoever the image's user is.
        "securityContext": {"fsGroup": _GROUP},
        "containers": containers,
        "volumes": volumes,
    }
    return pod | ({"priorityClassName": spec.priority_class} if spec.priority_class else {})


def value(name: str, text: str) -> Json:
    """A variable."""
    return {"name": name, "value": text}


def from_field(name: str, path: str) -> Json:
    """A variable that Kubernetes fills in from the pod itself."""
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}

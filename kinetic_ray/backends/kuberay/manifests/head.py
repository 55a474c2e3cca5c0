"""The head: Ray's own processes and drivers in one container, the janitor beside it."""

from __future__ import annotations

from kinetic_ray.backends.kuberay.clusters import ClusterSpec
from kinetic_ray.backends.kuberay.manifests import labels
from kinetic_ray.backends.kuberay.manifests.access import head_account, job_account
from kinetic_ray.backends.kuberay.manifests.labels import Json
from kinetic_ray.backends.kuberay.manifests.pods import (
    SHARED_FOLDER,
    SOCKET,
    container_security,
    from_field,
    pod_spec,
    probes,
    resources,
    value,
)

JANITOR = "kinetic"
_COMMAND = ["python", "-m", "kinetic_ray.backends.kuberay.janitor"]
#: Drivers are given 30 s to end their ranks and say so; Ray's own processes and the janitor's last words come on top.
_DRIVERS_STOP = 30
_GRACE = 60
_TOKEN_FOLDER = "/var/run/secrets/kubernetes.io/serviceaccount"
_TOKEN_SECONDS = 3600


def head_group(spec: ClusterSpec, job: str = "") -> Json:
    """The head group of a RayCluster.

    Args:
        spec: The cluster.
        job: Name of the RayJob that it is a part of; such a head sees its pods and changes nothing.
    """
    shared = {"name": "kinetic", "mountPath": SHARED_FOLDER}
    containers = [_ray(spec, shared), _janitor(spec, shared)]
    volumes = [{"name": "kinetic", "emptyDir": {"medium": "Memory", "sizeLimit": "16Mi"}}, _api_token()]
    account = job_account(spec.name) if job else head_account(spec.name)
    pod = pod_spec(spec, account, _GRACE, containers, volumes)
    tags = {**labels.of_cluster(spec.name, job), labels.ROLE: "head"}
    # Tasks and actors get no CPU here: they would starve the drivers, which ask for none.
    return {
        "rayStartParams": {"num-cpus": "0"},
        "template": {"metadata": {"labels": tags}, "spec": {**pod, "restartPolicy": "Always"}},
    }


def _ray(spec: ClusterSpec, shared: Json) -> Json:
    return {
        "name": "ray-head",
        "image": spec.image,
        "env": [
            value("KINETIC_SUPERVISOR", SOCKET),
            value("RAY_JOB_STOP_WAIT_TIME_S", str(_DRIVERS_STOP)),
            value("JAX_PLATFORMS", "cpu"),  # a driver looks for no chips
        ],
        "resources": resources(spec.head_cpus, spec.head_memory, spec.head_storage),
        "securityContext": container_security(devices=False),
        "volumeMounts": [shared],
        **probes(head=True),
    }


def _janitor(spec: ClusterSpec, shared: Json) -> Json:
    limits = {"memory": "1Gi", "ephemeral-storage": "1Gi"}
    return {
        "name": JANITOR,
        "image": spec.image,
        "command": list(_COMMAND),
        "env": [
            value("KINETIC_SUPERVISOR", SOCKET),
            value("KINETIC_STORE", spec.store),
            from_field("KINETIC_CLUSTER", "metadata.labels['ray.io/cluster']"),
            from_field("KINETIC_NAMESPACE", "metadata.namespace"),
            value("RAY_AUTH_MODE", "token"),
            _token(spec.name),
        ],
        "resources": {"requests": {"cpu": "100m", "memory": "256Mi", "ephemeral-storage": "1Gi"}, "limits": limits},
        "securityContext": container_security(devices=False),
        "volumeMounts": [shared, {"name": "api-token", "mountPath": _TOKEN_FOLDER, "readOnly": True}],
        "readinessProbe": {"exec": {"command": ["test", "-S", SOCKET]}, "periodSeconds": 5, "failureThreshold": 3},
    }


def _token(secret: str) -> Json:
    """The cluster's token: KubeRay keeps it in a secret called after the cluster, and gives it to Ray's container."""
    return {"name": "RAY_AUTH_TOKEN", "valueFrom": {"secretKeyRef": {"name": secret, "key": "auth_token"}}}


def _api_token() -> Json:
    """The service account's token as Kubernetes mounts it by itself; by hand, so that only the janitor has it."""
    namespace = {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}
    sources = [
        {"serviceAccountToken": {"path": "token", "expirationSeconds": _TOKEN_SECONDS}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [namespace]}},
    ]
    return {"name": "api-token", "projected": {"defaultMode": 0o440, "sources": sources}}

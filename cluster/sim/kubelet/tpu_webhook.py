"""What GKE's TPU webhook does to the pods of a RayCluster: names, worker ids and one node pool for each slice."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping

from cluster.sim.kubelet import shapes, tpus
from cluster.sim.kubelet.shapes import Json

CLUSTER, GROUP = "ray.io/cluster", "ray.io/group"
REPLICA_NAME, REPLICA_INDEX = "ray.io/worker-group-replica-name", "ray.io/worker-group-replica-index"
HOST_INDEX = "ray.io/replica-host-index"
POOL = "cloud.google.com/gke-nodepool"
_PLUGIN_PORT = "2112"


def review(request: Json) -> Json:
    """The answer to an AdmissionReview about a pod that is being created."""
    pod = request["request"]["object"]
    patch = _patch(pod)
    answer: Json = {"uid": request["request"]["uid"], "allowed": True}
    if patch:
        encoded = base64.b64encode(json.dumps(patch).encode()).decode()
        answer |= {"patchType": "JSONPatch", "patch": encoded}
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": answer}


def configuration(url: str, authority: bytes) -> Json:
    """What makes the API server ask the webhook.

    Args:
        url: Where the webhook listens.
        authority: The PEM text of who signed its certificate.
    """
    rule: Json = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
    hook: Json = {
        "name": "tpu.sim.kinetic.dev",
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "failurePolicy": "Fail",
        "objectSelector": {"matchLabels": {"app.kubernetes.io/name": "kuberay"}},
        "clientConfig": {"url": url, "caBundle": base64.b64encode(authority).decode()},
        "rules": [rule],
    }
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": "tpu-webhook"},
        "webhooks": [hook],
    }


def _patch(pod: Json) -> list[Json]:
    labels = shapes.labels_of(pod)
    using = [(at, one) for at, one in enumerate(pod["spec"]["containers"]) if tpus.chips_of(one)]
    if not using or GROUP not in labels:
        return []
    hosts = _hosts(pod, tpus.chips_of(using[0][1]))
    env = variables(labels, hosts)
    patch: list[Json] = []
    for at, container in using:
        present = container.get("env") or []
        names = {one["name"] for one in present}
        added = [{"name": name, "value": value} for name, value in env.items() if name not in names]
        added += [one for one in _plugin_address() if one["name"] not in names]
        patch.append({"op": "add", "path": f"/spec/containers/{at}/env", "value": [*present, *added]})
    if hosts > 1:
        patch.append({"op": "add", "path": "/spec/affinity", "value": affinity(labels)})
        if not pod["spec"].get("hostname"):
            name = _host_name(labels, int(labels.get(HOST_INDEX, "0")))
            patch.append({"op": "add", "path": "/spec/hostname", "value": name})
            patch.append({"op": "add", "path": "/spec/subdomain", "value": f"{labels.get(CLUSTER, '')}-headless"})
    return patch


def _hosts(pod: Json, chips: int) -> int:
    selector = pod["spec"].get("nodeSelector") or {}
    shape = tpus.host_shape(selector, chips)
    return shape.hosts if shape else 1


def _host_name(labels: Mapping[str, str], host: int) -> str:
    return f"{labels[GROUP]}-{labels.get(REPLICA_INDEX, '0')}-{host}"


def variables(labels: Mapping[str, str], hosts: int) -> dict[str, str]:
    """What the webhook tells a container of its place in its slice."""
    name = f"{labels[GROUP]}-{labels.get(REPLICA_INDEX, '0')}"
    env = {"TPU_WORKER_ID": labels.get(HOST_INDEX, "0"), "TPU_NAME": name}
    if hosts > 1:
        service = f"{labels.get(CLUSTER, '')}-headless"
        env["TPU_WORKER_HOSTNAMES"] = ",".join(f"{_host_name(labels, host)}.{service}" for host in range(hosts))
    return env


def _plugin_address() -> list[Json]:
    host = {"name": "TPU_DEVICE_PLUGIN_HOST_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.hostIP"}}}
    return [host, {"name": "TPU_DEVICE_PLUGIN_ADDR", "value": f"$(TPU_DEVICE_PLUGIN_HOST_IP):{_PLUGIN_PORT}"}]


def affinity(labels: Mapping[str, str]) -> Json:
    """One node pool for the hosts of a slice, and for them alone; it stands in place of what the pod asked for."""

    def term(operator: str) -> Json:
        group = {"key": GROUP, "operator": "In", "values": [labels[GROUP]]}
        cluster = {"key": CLUSTER, "operator": "In", "values": [labels.get(CLUSTER, "")]}
        replica = {"key": REPLICA_NAME, "operator": operator, "values": [labels.get(REPLICA_NAME, "")]}
        if operator == "In":
            expressions = [cluster, group, replica]
        else:
            expressions = [{"key": REPLICA_NAME, "operator": "Exists"}, replica]
        return {"labelSelector": {"matchExpressions": expressions}, "topologyKey": POOL}

    key = "requiredDuringSchedulingIgnoredDuringExecution"
    return {"podAffinity": {key: [term("In")]}, "podAntiAffinity": {key: [term("NotIn")]}}

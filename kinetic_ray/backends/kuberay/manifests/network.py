"""Who may reach a cluster's pods: its own pods, KubeRay's operator and the Prometheus that was named; nobody else."""

from __future__ import annotations

from kinetic_ray.backends.kuberay.clusters import ClusterSpec
from kinetic_ray.backends.kuberay.manifests import labels
from kinetic_ray.backends.kuberay.manifests.labels import Json, metadata
from kinetic_ray.backends.kuberay.manifests.pods import DASHBOARD_PORT

METRICS_PORT = 8080
#: What listens on pods of a cluster, first to last port. The three kinds that are jax's have no authentication at all.
PORTS = (
    ("Ray: GCS", 6379, 6379),
    ("Ray: metrics", METRICS_PORT, METRICS_PORT),
    ("jax: MEGASCALE, between slices", 8081, 8081),
    ("Ray: dashboard and Job API", DASHBOARD_PORT, DASHBOARD_PORT),
    ("jax: libtpu, between the hosts of a slice", 8471, 8490),
    ("Ray: workers", 10002, 19999),
    (
        "Ray: managers and agents; jax: coordinators and gloo, where the kernel puts them",
        32768,
        60999,
    ),
)
_NAMESPACE = "kubernetes.io/metadata.name"


def network_policies(spec: ClusterSpec) -> list[Json]:
    """The policy of all pods of a cluster."""
    own = {"podSelector": {"matchLabels": {labels.CLUSTER: spec.name}}}
    operator = {
        "namespaceSelector": {},
        "podSelector": {"matchLabels": {"app.kubernetes.io/name": "kuberay-operator"}},
    }
    ingress = [
        {"from": [own], "ports": [_port(first, last) for _, first, last in PORTS]},
        # It asks Ray for the state of a RayJob, with the token.
        {"from": [operator], "ports": [_port(DASHBOARD_PORT, DASHBOARD_PORT)]},
    ]
    if spec.monitoring:
        prometheus = {"namespaceSelector": {"matchLabels": {_NAMESPACE: spec.monitoring}}}
        ingress.append({"from": [prometheus], "ports": [_port(METRICS_PORT, METRICS_PORT)]})
    return [
        {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "metadata": metadata(spec.name, spec.namespace, spec.name),
            "spec": {**own, "policyTypes": ["Ingress"], "ingress": ingress},
        }
    ]


def _port(first: int, last: int) -> Json:
    port: Json = {"protocol": "TCP", "port": first}
    return port | ({"endPort": last} if last != first else {})


def pod_monitors(spec: ClusterSpec) -> list[Json]:
    """What tells Prometheus' operator of the metrics; [] where nobody may see them."""
    if not spec.monitoring:
        return []
    endpoint = {"targetPort": METRICS_PORT, "interval": "30s"}
    return [
        {
            "apiVersion": "monitoring.coreos.com/v1",
            "kind": "PodMonitor",
            "metadata": metadata(spec.name, spec.namespace, spec.name),
            "spec": {
                "selector": {"matchLabels": {labels.CLUSTER: spec.name}},
                "podTargetLabels": [labels.CLUSTER, labels.POOL],
                "podMetricsEndpoints": [endpoint],
            },
        }
    ]

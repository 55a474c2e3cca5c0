"""Who a cluster's pods are, and what they may: the janitor its own RayCluster and a look at pods, hosts nothing."""

from __future__ import annotations

from kinetic_ray.backends.kuberay.clusters import ClusterSpec
from kinetic_ray.backends.kuberay.manifests.labels import Json, metadata

_RBAC = "rbac.authorization.k8s.io"


def head_account(cluster: str) -> str:
    """The service account of the head."""
    return f"{cluster}-head"


def host_account(cluster: str) -> str:
    """The service account of hosts, which has no rights in Kubernetes: stores know it by workload identity."""
    return f"{cluster}-host"


def job_account(cluster: str) -> str:
    """The service account of heads that belong to one job: they look at pods."""
    return f"{cluster}-job"


def accounts(spec: ClusterSpec) -> list[Json]:
    """The service accounts."""
    return [_account(spec, name(spec.name)) for name in (head_account, job_account, host_account)]


def _account(spec: ClusterSpec, name: str) -> Json:
    meta = metadata(name, spec.namespace, spec.name)
    if spec.identity:
        meta["annotations"] = dict(sorted(spec.identity.items()))
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta, "automountServiceAccountToken": False}


def rights(spec: ClusterSpec) -> list[Json]:
    """The roles of heads, each with its binding."""
    looks = [_rule("", "pods", ("get", "list", "watch")), _rule("", "events", ("get", "list", "watch"))]
    own = _rule("ray.io", "rayclusters", ("get", "patch"), spec.name)
    return [*_role(spec, head_account(spec.name), [own, *looks]), *_role(spec, job_account(spec.name), looks)]


def _role(spec: ClusterSpec, account: str, rules: list[Json]) -> list[Json]:
    role = {"apiVersion": f"{_RBAC}/v1", "kind": "Role", "metadata": metadata(account, spec.namespace, spec.name)}
    binding = {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "RoleBinding",
        "metadata": metadata(account, spec.namespace, spec.name),
        "roleRef": {"apiGroup": _RBAC, "kind": "Role", "name": account},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": spec.namespace}],
    }
    return [{**role, "rules": rules}, binding]


def _rule(group: str, resource: str, verbs: tuple[str, ...], name: str = "") -> Json:
    rule: Json = {"apiGroups": [group], "resources": [resource], "verbs": list(verbs)}
    return rule | ({"resourceNames": [name]} if name else {})

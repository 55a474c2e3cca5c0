"""Installs KubeRay: its definitions and roles, and the operator's own account, whose rights are all that it has."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from cluster.sim.api import Api
from cluster.sim.components import OPERATOR_NAMESPACE

_DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_RBAC = "/apis/rbac.authorization.k8s.io/v1"
_NAMESPACED = f"namespaces/{OPERATOR_NAMESPACE}"
_PATHS = {
    "ServiceAccount": f"/api/v1/{_NAMESPACED}/serviceaccounts",
    "ClusterRole": f"{_RBAC}/clusterroles",
    "ClusterRoleBinding": f"{_RBAC}/clusterrolebindings",
    "Role": f"{_RBAC}/{_NAMESPACED}/roles",
    "RoleBinding": f"{_RBAC}/{_NAMESPACED}/rolebindings",
}
_TOKEN_SECONDS = 7 * 24 * 3600

Wait = Callable[[Callable[[], bool], str], None]


def install(api: Api, objects: Path, wait: Wait) -> str:
    """Creates what KubeRay's module brings; returns when its kinds are served.

    Returns:
        The token of the operator's service account.
    """
    found = json.loads(objects.read_text(encoding="utf-8"))
    api.create("/api/v1/namespaces", {"metadata": {"name": OPERATOR_NAMESPACE}})
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda body: api.create(_DEFINITIONS, body), found["definitions"]))
    for path, body in roles_of(found["roles"]):
        api.create(path, body)
    names = [body["metadata"]["name"] for body in found["definitions"]]
    # An operator that starts earlier looks again only ten seconds later, kind by kind.
    wait(lambda: all(is_established(api, name) for name in names), "KubeRay's kinds to be served")
    account = next(body["metadata"]["name"] for body in found["roles"] if body["kind"] == "ServiceAccount")
    request = {"spec": {"expirationSeconds": _TOKEN_SECONDS}}
    answer = api.create(f"{_PATHS['ServiceAccount']}/{account}/token", request)
    return str(answer["status"]["token"])


def is_established(api: Api, name: str) -> bool:
    """Whether the API server serves the kind of a definition."""
    conditions = api.get(f"{_DEFINITIONS}/{name}").get("status", {}).get("conditions") or []
    return any(condition["type"] == "Established" and condition["status"] == "True" for condition in conditions)


def roles_of(bodies: list[dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Accounts, roles and bindings with the path of each, moved into the operator's namespace."""
    for body in bodies:
        moved = json.loads(json.dumps(body))
        moved["metadata"].pop("namespace", None)
        for subject in moved.get("subjects", ()):
            subject["namespace"] = OPERATOR_NAMESPACE
        yield _PATHS[moved["kind"]], moved

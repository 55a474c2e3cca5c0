"""Gives manifests to an API server: server-side apply, all or nothing as far as the server can tell beforehand."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING
from urllib.parse import quote

from kinetic_ray.backends.kuberay.manifests.labels import Json
from kinetic_ray.backends.kuberay.manifests.text import document
from kinetic_ray.errors import ConfigError, SubmissionError

if TYPE_CHECKING:
    from kubernetes.client import ApiClient

FIELD_OWNER = "kinetic-ray"
#: Kind -> its name in paths. What isn't here is never applied.
_PLURALS: Mapping[str, str] = {
    "NetworkPolicy": "networkpolicies",
    "PodMonitor": "podmonitors",
    "RayCluster": "rayclusters",
    "RayJob": "rayjobs",
    "Role": "roles",
    "RoleBinding": "rolebindings",
    "ServiceAccount": "serviceaccounts",
}
_TRIES = 5
_TIMEOUT = 60  # seconds of one request
_CONFLICT, _NOT_FOUND = 409, 404
_PATCH = "application/apply-patch+yaml"


def apply(client: ApiClient, objects: Sequence[Json], *, dry_run: bool = False) -> list[Json]:
    """Applies manifests in their order, after the server has agreed to every one of them.

    The body of each request is the text that :func:`document` gives, so what was shown is what is applied; only a
    RayCluster that is there already keeps the slices that its pools have.

    Args:
        client: The API server as one user.
        objects: Manifests of one namespace, which is there.
        dry_run: Stop before anything is changed.

    Returns:
        The objects as the server has them, or would have them.

    Raises:
        ConfigError: The server refuses one; nothing was changed.
        SubmissionError: The server refused one that it had agreed to; those before it are there.
    """
    agreed = [_apply_one(client, each, dry_run=True) for each in objects]
    return agreed if dry_run else [_apply_one(client, each, dry_run=False) for each in objects]


def path_of(manifest: Json) -> str:
    """The path of an object at an API server.

    Example:
        >>> path_of({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "a", "namespace": "n"}})
        '/api/v1/namespaces/n/serviceaccounts/a'
    """
    version, meta = manifest["apiVersion"], manifest["metadata"]
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    namespace, name = (quote(meta[key], safe="") for key in ("namespace", "name"))
    return f"{root}/namespaces/{namespace}/{_PLURALS[manifest['kind']]}/{name}"


def with_live_scale(wanted: Json, live: Json) -> Json:
    """A RayCluster as wanted, with the slices that its pools have now.

    The list of worker groups is one field to the server, so applying it would send running slices away. The version
    that was read goes along: if a slice comes or goes in between, the server says so.
    """
    there = {group["groupName"]: group for group in live["spec"].get("workerGroupSpecs") or ()}
    groups = [_scaled(group, there.get(group["groupName"])) for group in wanted["spec"]["workerGroupSpecs"]]
    meta = {**wanted["metadata"], "resourceVersion": live["metadata"]["resourceVersion"]}
    return {**wanted, "metadata": meta, "spec": {**wanted["spec"], "workerGroupSpecs": groups}}


def _scaled(wanted: Json, live: Json | None) -> Json:
    if live is None:
        return wanted
    replicas = max(wanted["minReplicas"], min(live.get("replicas", 0), wanted["maxReplicas"]))
    going = (live.get("scaleStrategy") or {}).get("workersToDelete")
    return {**wanted, "replicas": replicas, **({"scaleStrategy": {"workersToDelete": going}} if going else {})}


class _Refused(Exception):
    """An answer of the server that isn't a yes."""

    def __init__(self, status: int, body: object) -> None:
        super().__init__(status)
        self.status, self.body = status, body


def _apply_one(client: ApiClient, manifest: Json, *, dry_run: bool) -> Json:
    scales = manifest["kind"] == "RayCluster"
    for last in range(_TRIES - 1, -1, -1):
        try:
            return _send(client, _current(client, manifest) if scales else manifest, dry_run=dry_run)
        except _Refused as error:
            if not (error.status == _CONFLICT and scales and last):
                raise _refusal(manifest, error.body, dry_run=dry_run) from None
    raise AssertionError("unreachable: the last try returns or raises")


def _current(client: ApiClient, manifest: Json) -> Json:
    try:
        return with_live_scale(manifest, _call(client, "GET", path_of(manifest)))
    except _Refused as error:
        if error.status != _NOT_FOUND:
            raise
        return manifest


def _send(client: ApiClient, manifest: Json, *, dry_run: bool) -> Json:
    # Forced: what is ours is set as we say. Whoever changes a field of ours by hand does it until the next time.
    query = f"?fieldManager={FIELD_OWNER}&force=true" + ("&dryRun=All" if dry_run else "")
    return _call(client, "PATCH", path_of(manifest) + query, document(manifest))


def _call(client: ApiClient, method: str, path: str, body: str | None = None) -> Json:
    """One request, by what the client has had in all of its versions: its connections and its credentials."""
    from kubernetes.client.exceptions import ApiException

    headers = {**client.default_headers, "Accept": "application/json", **({"Content-Type": _PATCH} if body else {})}
    headers |= {each["key"]: each["value"] for each in client.configuration.auth_settings().values()}
    url = client.configuration.host + path
    try:
        answer = client.rest_client.request(method, url, headers=headers, body=body, _request_timeout=_TIMEOUT)
    except ApiException as error:  # older versions raise, newer ones answer
        raise _Refused(error.status, error.body) from None
    data = answer.data if answer.data is not None else answer.read()
    if not 200 <= answer.status < 300:
        raise _Refused(answer.status, data)
    found: Json = json.loads(data)
    return found


def _refusal(manifest: Json, body: object, *, dry_run: bool) -> ConfigError | SubmissionError:
    meta = manifest["metadata"]
    told = f"{manifest['kind']} {meta['namespace']}/{meta['name']}: the API server refuses it: {_told(body)}"
    if dry_run:
        return ConfigError(f"{told}. Nothing was changed")
    return SubmissionError(f"{told}. It had agreed a moment before; what comes before it is there: apply again")


def _told(body: object) -> str:
    text = body.decode(errors="replace") if isinstance(body, bytes) else str(body)
    try:
        return str(json.loads(text)["message"])[:1000]
    except (ValueError, KeyError, TypeError):
        return text[:1000]

"""Kubernetes objects as plain JSON, and the few things that are asked of them everywhere."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

Json = dict[str, Any]


def stamp(moment: datetime | None = None) -> str:
    """A moment as Kubernetes writes it in seconds; now, if none is given."""
    return (moment or datetime.now(UTC)).strftime("%Y-%m-%dT%H:%M:%SZ")


def fine_stamp(moment: datetime | None = None) -> str:
    """A moment in microseconds: for leases and for lines of logs."""
    return (moment or datetime.now(UTC)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def name_of(thing: Json) -> str:
    return str(thing["metadata"]["name"])


def namespace_of(thing: Json) -> str:
    return str(thing["metadata"].get("namespace", ""))


def uid_of(thing: Json) -> str:
    return str(thing["metadata"]["uid"])


def labels_of(thing: Json) -> dict[str, str]:
    return dict(thing["metadata"].get("labels") or {})


def annotations_of(thing: Json) -> dict[str, str]:
    return dict(thing["metadata"].get("annotations") or {})


def node_of(pod: Json) -> str:
    return str(pod["spec"].get("nodeName", ""))


def all_containers(pod: Json) -> list[Json]:
    """Init containers first, as they start."""
    return [*(pod["spec"].get("initContainers") or []), *pod["spec"]["containers"]]


def pod_label(pod: Json) -> str:
    """How a kubelet names a pod in its messages: name_namespace(uid)."""
    return f"{name_of(pod)}_{namespace_of(pod)}({uid_of(pod)})"


def is_over(pod: Json) -> bool:
    """Whether the pod's record says that it has ended for good."""
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")

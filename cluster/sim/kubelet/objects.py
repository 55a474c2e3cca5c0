"""ConfigMaps and Secrets that a pod refers to: which ones it needs, and what is in them."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from cluster.sim.kubelet.shapes import Json

Sort = Literal["configmaps", "secrets"]
_TITLES = {"configmaps": "configmap", "secrets": "secret"}
_TYPES = {"configmaps": "ConfigMap", "secrets": "Secret"}


class MissingError(LookupError):
    """Something that a pod refers to isn't there (yet)."""


@dataclass(frozen=True, slots=True)
class Reference:
    """One object that a pod names."""

    sort: Sort
    name: str
    optional: bool = False


def config_map(ref: Json, key: str = "name") -> Reference:
    return Reference("configmaps", str(ref[key]), bool(ref.get("optional")))


def secret(ref: Json, key: str = "name") -> Reference:
    return Reference("secrets", str(ref[key]), bool(ref.get("optional")))


def contents(sort: Sort, thing: Json) -> dict[str, bytes]:
    """What an object holds, decoded."""
    data: Mapping[str, str] = thing.get("data") or {}
    if sort == "secrets":
        return {key: base64.b64decode(value) for key, value in data.items()}
    binary: Mapping[str, str] = thing.get("binaryData") or {}
    text = {key: value.encode() for key, value in data.items()}
    return text | {key: base64.b64decode(value) for key, value in binary.items()}


class Objects:
    """The objects that were found in a pod's namespace."""

    def __init__(self, found: Mapping[tuple[Sort, str], Mapping[str, bytes]], namespace: str = "default") -> None:
        self._found = found
        self._namespace = namespace

    def data(self, ref: Reference) -> Mapping[str, bytes]:
        """All of an object; nothing of an optional one that isn't there.

        Raises:
            MissingError: It isn't there, and is needed.
        """
        found = self._found.get((ref.sort, ref.name))
        if found is None and not ref.optional:
            raise MissingError(f'{_TITLES[ref.sort]} "{ref.name}" not found')
        return found or {}

    def value(self, ref: Reference, key: str) -> str | None:
        """One value; None if it isn't there and needn't be.

        Raises:
            MissingError: It isn't there, and is needed.
        """
        data = self.data(ref)
        if key in data:
            return data[key].decode(errors="replace")
        if ref.optional:
            return None
        raise MissingError(f"couldn't find key {key} in {_TYPES[ref.sort]} {self._namespace}/{ref.name}")


def distinct(refs: Iterable[Reference]) -> tuple[Reference, ...]:
    """Each object once, whether or not it is optional in places."""
    return tuple({(ref.sort, ref.name): ref for ref in refs}.values())

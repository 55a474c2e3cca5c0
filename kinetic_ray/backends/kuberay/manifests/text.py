"""Manifests as text: YAML whose bytes depend on nothing but the values."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator

from kinetic_ray.backends.kuberay.manifests.labels import Json

#: What any reader of YAML takes for this very text. Everything else is quoted as JSON, which YAML reads as well.
_PLAIN_RE = re.compile(r"[A-Za-z/][A-Za-z0-9/._-]*([ ][A-Za-z0-9/._-]+)*")
_WORDS = frozenset(("true", "false", "yes", "no", "on", "off", "null", "y", "n"))


def to_yaml(objects: Iterable[Json]) -> str:
    """Documents of one file; the same bytes for the same objects, keys in the order that they were given."""
    return "---\n".join(document(each) for each in objects)


def document(value: Json) -> str:
    """One document.

    Example:
        >>> print(document({"kind": "Pod", "spec": {"ports": [1, 2], "empty": []}}), end="")
        kind: Pod
        spec:
          ports:
          - 1
          - 2
          empty: []
    """
    return "".join(f"{line}\n" for line in _lines(value))


def _lines(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _entry(f"{_scalar(key)}:", item, indent="  " if isinstance(item, dict) else "")
    elif isinstance(value, list):
        for item in value:
            first, *rest = _lines(item) if _nests(item) else [_scalar(item)]
            yield f"- {first}"
            yield from (f"  {line}" for line in rest)


def _entry(key: str, item: object, indent: str) -> Iterator[str]:
    if not _nests(item):
        yield f"{key} {_scalar(item)}"
        return
    yield key
    yield from (indent + line for line in _lines(item))


def _nests(item: object) -> bool:
    return isinstance(item, dict | list) and bool(item)


def _scalar(item: object) -> str:
    if isinstance(item, str) and _PLAIN_RE.fullmatch(item) and item.lower() not in _WORDS:
        return item
    return "".join(rf"\U{ord(char):08x}" if ord(char) > 0xFFFF else char for char in _quoted(item))


def _quoted(item: object) -> str:
    """As JSON in plain ASCII, but for what JSON would write as two halves, which YAML takes for two characters."""
    if not isinstance(item, str):
        return json.dumps(item)
    return '"' + "".join(char if ord(char) > 0xFFFF else json.dumps(char)[1:-1] for char in item) + '"'

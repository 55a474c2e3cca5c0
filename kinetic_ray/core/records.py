"""The envelope of every durable record: kind, version, digest, signature field, body."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from kinetic_ray.errors import ConfigError, DataError

#: Newest version that this release reads and writes, for each kind of record.
VERSIONS: Mapping[str, int] = {
    "spec": 1,
    "env": 1,
    "cancel": 1,
    "claim": 1,
    "adopted": 1,
    "events": 1,
    "outcome": 1,
    "heartbeat": 1,
}

Json = dict[str, Any]


def canonical(body: object) -> bytes:
    """The one byte form of a JSON value: sorted keys, no blanks, UTF-8."""
    return json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def dump_record(kind: str, body: Mapping[str, Any]) -> bytes:
    """Wraps a body in its envelope.

    Args:
        kind: One of :data:`VERSIONS`.
        body: JSON types only.

    Returns:
        One line of JSON. `sig` stays null until signing exists; readers accept null at version 1 only.

    Example:
        >>> load_record("cancel", dump_record("cancel", {"by": "ann"}))
        {'by': 'ann'}
    """
    envelope = {
        "kind": kind,
        "version": VERSIONS[kind],
        "sha256": hashlib.sha256(canonical(body)).hexdigest(),
        "sig": None,
        "body": body,
    }
    return canonical(envelope) + b"\n"


def load_record(kind: str, data: bytes, *, where: str = "") -> Json:
    """Unwraps an envelope and checks it.

    Args:
        kind: The kind that is expected.
        data: What the store holds.
        where: The key, for messages.

    Returns:
        The body.

    Raises:
        DataError: Torn, altered, or another kind.
        ConfigError: Written by a newer kinetic_ray.
    """
    place = where or f"a {kind} record"
    try:
        envelope = json.loads(data)
        found, version, digest, body = (envelope[k] for k in ("kind", "version", "sha256", "body"))
    except (ValueError, KeyError, TypeError) as exc:
        raise DataError(f"{place} is torn or not a kinetic record ({len(data)} bytes): {exc}") from exc
    if found != kind:
        raise DataError(f"{place} holds a {found!r} record where {kind!r} was expected")
    if type(version) is not int or version < 1:
        raise DataError(f"{place} has no valid format version: {version!r}")
    if version > VERSIONS[kind]:
        raise ConfigError(
            f"{place} has format version {version}, this kinetic_ray reads up to {VERSIONS[kind]}: "
            "upgrade kinetic-ray to read it"
        )
    if envelope.get("sig") is not None:
        raise DataError(f"{place} is signed, which format version {version} does not know")
    if not isinstance(body, dict) or hashlib.sha256(canonical(body)).hexdigest() != digest:
        raise DataError(f"{place} differs from its digest: altered or damaged")
    return body

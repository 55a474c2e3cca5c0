"""The envelope of every durable record: kind, version, digest, signature field, body."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from kinetic_ray.errors import ConfigError, DataError

#: Newest version that this release reads and writes, for each kind of record.
VERSIONS: Mapping[str, int] = {
    "spec": 3,  # where it names packages; 2 where it names secrets; 1 else
    "env": 1,
    "cancel": 1,
    "claim": 1,
    "adopted": 1,
    "events": 1,
    "outcome": 1,
    "heartbeat": 1,
    "secret": 1,
}

Json = dict[str, Any]


def canonical(body: object) -> bytes:
    """The one byte form of a JSON value: sorted keys, no blanks, UTF-8.

    Lone surrogates pass: that is how Python spells a file name, and so an error's message, that isn't UTF-8.
    """
    text = json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.encode(errors="surrogatepass")


def dump_record(kind: str, body: Mapping[str, Any], version: int | None = None) -> bytes:
    """Wraps a body in its envelope.

    Args:
        kind: One of :data:`VERSIONS`.
        body: JSON types only.
        version: The oldest that can say it; None = the newest.

    Returns:
        One line of JSON. `sig` stays null until signing exists; readers accept null at version 1 only.

    Example:
        >>> load_record("cancel", dump_record("cancel", {"by": "ann"}))
        {'by': 'ann'}
    """
    plain = json.loads(canonical(body))  # keys that aren't texts sort differently once they are
    version = VERSIONS[kind] if version is None else version
    return _sealed({"kind": kind, "version": version, "sha256": _digest(plain), "sig": None, "body": plain})


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
        found, version, sig = (envelope[k] for k in ("kind", "version", "sig"))
    except (ValueError, KeyError, TypeError, RecursionError) as exc:
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
    if sig is not None:
        raise DataError(f"{place} is signed, which format version {version} does not know")
    body = envelope.get("body")
    if not isinstance(body, dict) or not _intact(envelope, data):
        raise DataError(f"{place} differs from its digest: altered or damaged")
    return body


def _sealed(envelope: Mapping[str, Any]) -> bytes:
    return canonical(envelope) + b"\n"


def _digest(body: object) -> str:
    return hashlib.sha256(canonical(body)).hexdigest()


def _intact(envelope: Json, data: bytes) -> bool:
    """Whether these are the bytes that were written: the body by its digest, the rest by its one spelling."""
    try:
        return envelope.get("sha256") == _digest(envelope.get("body")) and data == _sealed(envelope)
    except (ValueError, RecursionError):  # not JSON as we write it: NaN, or nested without end
        return False

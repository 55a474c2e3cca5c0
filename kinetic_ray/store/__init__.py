"""The store: every durable fact, in one folder, bucket or memory, behind one small interface."""

from __future__ import annotations

import json
import os
from pathlib import Path

from kinetic_ray.core.extras import install_hint
from kinetic_ray.core.outcome import Blob
from kinetic_ray.core.records import canonical
from kinetic_ray.errors import ConfigError, StoreError
from kinetic_ray.store.growing import Growing
from kinetic_ray.store.objects import FORMAT_KEY, Store
from kinetic_ray.store.place import MissingKey, Place

__all__ = ["FORMAT_VERSION", "Blob", "Growing", "MissingKey", "Store", "open_store"]

#: The newest layout of a store that this release reads and writes.
FORMAT_VERSION = 1

_FORMAT_NAME = "kinetic-store"
_LATER_SCHEMES = ("hf",)


def open_store(url: str | os.PathLike[str], *, create: bool = True) -> Store:
    """Opens a store, and makes it where there is none.

    Args:
        url: A folder's path, "file:///path", "gs://bucket/prefix", or "memory://name" (unit tests: this process only).
        create: Whether a missing or empty store is made, and a folder has to be writable.

    Raises:
        ConfigError: Not a store's place, not accessible, of a newer version, or of an unknown kind.

    Example:
        >>> open_store("memory://doc-open").url
        'memory://doc-open'
    """
    place = _place(url, create=create)
    store = Store(place)
    where = place.uri("")
    try:
        raw = store.find(FORMAT_KEY)
    except StoreError as error:
        raise ConfigError(f"{where} can't be used as a store: {error}") from error
    if raw is None:
        raw = _make_format(store, where, create=create)
    _check_format(raw, where)
    return store


def _place(url: str | os.PathLike[str], *, create: bool) -> Place:
    from kinetic_ray.store.folder import open_folder, path_of
    from kinetic_ray.store.memory import open_memory

    text = os.fspath(url)
    scheme, separator, rest = text.partition("://")
    if not separator or isinstance(url, os.PathLike):
        return open_folder(Path(text), create=create)
    if scheme == "file":
        return open_folder(path_of(text), create=create)
    if scheme == "memory":
        return open_memory(rest)
    if scheme == "gs":
        return _bucket(rest)
    later = ": they come with a later version" if scheme in _LATER_SCHEMES else ""
    raise ConfigError(
        f"stores of the kind {scheme + '://'!r} are unknown to this kinetic_ray{later}. Use a folder's path, or gs://BUCKET/PREFIX"
    )


def _bucket(rest: str) -> Place:
    try:
        from kinetic_ray.store.gcs import open_bucket
    except ModuleNotFoundError as error:
        hint = install_hint(error.name)
        raise ConfigError(f"{'gs://' + rest!r}: {error.name} is not installed here: {hint}") from error
    return open_bucket(rest)


def _make_format(store: Store, where: str, *, create: bool) -> bytes:
    strangers = _all_there_is(store, where)
    if not create:
        raise ConfigError(f"{where} holds no kinetic store: wrong place, or nothing was ever run with it")
    if strangers and (raw := store.find(FORMAT_KEY)) is not None:  # made by another process a moment ago
        return raw
    if strangers:
        shown = ", ".join(strangers[:3])
        raise ConfigError(f"{where} is neither empty nor a kinetic store (it has {shown}): name an empty or new folder")
    store.create(FORMAT_KEY, canonical({"format": _FORMAT_NAME, "version": FORMAT_VERSION}) + b"\n")
    return store.get(FORMAT_KEY)


def _all_there_is(store: Store, where: str) -> list[str]:
    """Names at the top; asked for also where nothing is made, since only this tells a bucket that isn't there."""
    try:
        return store.list("")
    except StoreError as error:
        raise ConfigError(f"{where} can't be used as a store: {error}") from error


def _check_format(raw: bytes, where: str) -> None:
    try:
        found = json.loads(raw)
        name, version = found["format"], found["version"]
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{where}/{FORMAT_KEY} is damaged or another program's: {raw[:80]!r}") from error
    if name != _FORMAT_NAME or type(version) is not int or version < 1:
        raise ConfigError(f"{where} is not a kinetic store: its {FORMAT_KEY} says {name!r}, version {version!r}")
    if version > FORMAT_VERSION:
        raise ConfigError(
            f"the store {where} has format version {version}, this kinetic_ray reads up to {FORMAT_VERSION}: "
            "upgrade kinetic-ray, or name another store (KINETIC_STORE)"
        )

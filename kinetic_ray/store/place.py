"""The seam under the store: what one medium (a folder, memory, a bucket) does, and which names it is given."""

from __future__ import annotations

import errno
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from kinetic_ray.core.outcome import Blob
from kinetic_ray.errors import DataError, StoreError, UsageError

#: A folder's unpublished files lie under this name, so no key of any store may begin with it.
TEMPORARY = ".tmp"

_NAME_BYTES = 255  # what file systems take
_KEY_BYTES = 1024  # what object stores take
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
_SHA256 = re.compile(r"[0-9a-f]{64}")
_UNSAFE = re.compile(r"[\x00-\x1f\x7f\\]")


class MissingKey(StoreError, KeyError):
    """There is no object under this key."""

    def __str__(self) -> str:  # KeyError's own would show the message in quotes
        return str(self.args[0])


class Staged(Protocol):
    """One object on its way in, visible under no key until it is published whole."""

    def write(self, data: bytes | memoryview) -> None:
        """Adds bytes at the end."""

    def publish(self, key: str, *, replace: bool, durable: bool) -> bool:
        """Makes the object visible under a key in one step.

        Args:
            key: A checked key.
            replace: Whether it takes the place of an object under that key.
            durable: Whether the bytes are safe from a power loss before they are visible.

        Returns:
            False if there is an object and `replace` isn't set. Of several writers exactly one gets True.
        """

    def discard(self) -> None:
        """Releases everything, published or not; once, at the end."""


class Place(Protocol):
    """One medium. Keys and prefixes come checked; what the medium refuses is raised as OSError.

    A new kind of store is one class like this, a line in `open_store` and a subclass of
    :class:`kinetic_ray.testing.store_contract.StoreContract`.
    """

    @property
    def url(self) -> str:
        """The canonical address: equal for equal stores, accepted by `open_store` anywhere."""

    @property
    def read_size(self) -> int:
        """How many bytes of a large object to read at a time."""

    @property
    def pace(self) -> float:
        """Seconds between two looks of who watches: a request has its price in some media."""

    def stage(self) -> Staged:
        """Begins an object."""

    def read(self, key: str, offset: int = 0, limit: int | None = None) -> bytes | None:
        """Bytes from `offset` on, at most `limit`; b"" past the end, None if there is no object."""

    def size(self, key: str) -> int | None:
        """Bytes, or None if there is no object."""

    def children(self, prefix: str) -> list[str]:
        """Names directly below a prefix ("" is the root), those of folders ending in "/", in any order."""

    def walk(self, prefix: str) -> list[str]:
        """Full keys of all objects below a prefix, in any order."""

    def delete(self, key: str) -> None:
        """Removes an object if there is one."""

    def delete_tree(self, prefix: str) -> None:
        """Removes all objects below a prefix."""

    def append_path(self, key: str) -> Path | None:
        """A local file to append to, made where absent; None where the medium has no such thing."""

    def uri(self, key: str) -> str:
        """The place of a key ("" is the root) as a person would open it."""


def blob_key(blob: Blob) -> str:
    """Where a blob lies; two hundred folders keep each listing short."""
    if not _SHA256.fullmatch(blob.sha256):
        raise DataError(f"{blob.sha256[:80]!r} is not a SHA-256 digest: the record that names it is damaged")
    return f"blobs/{blob.sha256[:2]}/{blob.sha256}"


def check_key(key: str) -> str:
    """Returns the key if every store can hold it.

    Raises:
        UsageError: It could leave the store, or some medium can't spell it.

    Example:
        >>> check_key("jobs/job-1/spec.json")
        'jobs/job-1/spec.json'
    """
    parts = key.split("/")
    if problem := _problem(key, parts):
        raise UsageError(f"{key[:120]!r} can't be a key of the store: {problem}")
    return key


def check_prefix(prefix: str) -> str:
    """Returns the prefix, a key or "" for all of the store, without its trailing slash."""
    return prefix and check_key(prefix.removesuffix("/"))


def refused(error: OSError, where: str, name: str, needed: int | None) -> StoreError:
    """What a medium refused, in words: where, which object, and for a full disk how many bytes it takes."""
    if error.errno in _NO_SPACE:
        size = f"{needed} bytes are needed for {name}" if needed is not None else f"nothing more fits, {name} neither"
        return StoreError(f"no space left in {where}: {size}. Nothing was left half-written; make room and try again")
    reason = error.strerror or str(error) or type(error).__name__
    if error.filename is not None:
        reason = f"{reason}: {error.filename}"
    return StoreError(f"{where} refused {name or 'a listing'}: {reason}")


def _problem(key: str, parts: Sequence[str]) -> str:
    if key.startswith("/"):
        return "keys are relative"
    if any(part in {"", ".", ".."} for part in parts):
        return "no part may be empty, '.' or '..'"
    if _UNSAFE.search(key):
        return "backslashes and control characters are not allowed"
    if parts[0] == TEMPORARY:
        return f"{TEMPORARY!r} is the store's own"
    return _too_long(key, parts)


def _too_long(key: str, parts: Sequence[str]) -> str:
    try:
        size = len(key.encode())
        longest = size if len(parts) == 1 else max(len(part.encode()) for part in parts)
    except UnicodeEncodeError:
        return "it is not valid Unicode"
    if longest > _NAME_BYTES:
        return f"one part has {longest} bytes, at most {_NAME_BYTES} are allowed"
    return f"it has {size} bytes, at most {_KEY_BYTES} are allowed" if size > _KEY_BYTES else ""

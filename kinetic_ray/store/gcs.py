"""The bucket store: objects in Google Cloud Storage, created by the precondition that there is none."""

from __future__ import annotations

import base64
import errno
import hashlib
import re
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, cast

from kinetic_ray import config
from kinetic_ray.errors import ConfigError, UsageError
from kinetic_ray.store.gcs_objects import Content, Objects
from kinetic_ray.store.gcs_wire import GOOGLE, GoogleAccess, Limits, Nobody, Wire, new_pool
from kinetic_ray.store.place import check_key

_BUCKET = re.compile(r"[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]")
_PREFIX_BYTES = 200  # of the 1,024 that a name may have
_IN_MEMORY = 8 << 20  # a larger object waits in a temporary file until it is sent
_CHUNK = 1 << 20
_DELETERS = 16


class BucketPlace:
    """Everything below a prefix of a bucket.

    Every object appears whole, by one request. A tree is deleted object by object, in no order.
    """

    def __init__(self, objects: Objects, bucket: str, prefix: str) -> None:
        self._objects = objects
        self._root = f"{prefix}/" if prefix else ""
        self._url = f"gs://{bucket}/{prefix}".removesuffix("/")

    @property
    def url(self) -> str:
        return self._url

    @property
    def read_size(self) -> int:
        return 32 << 20  # a request takes tens of milliseconds whatever it brings

    @property
    def pace(self) -> float:
        return 1.0

    def stage(self) -> _Staged:
        return _Staged(self._objects, self._root)

    def read(self, key: str, offset: int = 0, limit: int | None = None) -> bytes | None:
        return self._objects.read(self._root + key, offset, limit)

    def size(self, key: str) -> int | None:
        return self._objects.size(self._root + key)

    def children(self, prefix: str) -> list[str]:
        above = self._below(prefix)
        names = (name.removeprefix(above) for name in self._objects.names(above, deep=False))
        return [name for name in names if name]  # "" is what some programs put in place of an empty folder

    def walk(self, prefix: str) -> list[str]:
        names = self._objects.names(self._below(prefix), deep=True)
        return [name.removeprefix(self._root) for name in names if not name.endswith("/")]

    def delete(self, key: str) -> None:
        self._objects.delete(self._root + key)

    def delete_tree(self, prefix: str) -> None:
        names = list(self._objects.names(self._below(prefix), deep=True))
        with ThreadPoolExecutor(min(_DELETERS, len(names) or 1), thread_name_prefix="kinetic-delete") as threads:
            list(threads.map(self._objects.delete, names))

    def append_path(self, key: str) -> Path | None:  # noqa: ARG002 - of the seam
        return None

    def uri(self, key: str) -> str:
        return f"{self._url}/{key}" if key else self._url

    def _below(self, prefix: str) -> str:
        return f"{self._root}{prefix}/" if prefix else self._root


class _Staged:
    """Bytes on their way: they are sent when they are all there, so a broken request can begin anew."""

    def __init__(self, objects: Objects, root: str) -> None:
        self._objects = objects
        self._root = root
        self._size = 0
        self._digest = hashlib.md5(usedforsecurity=False)
        self._file = cast("IO[bytes]", tempfile.SpooledTemporaryFile(_IN_MEMORY))  # noqa: SIM115 - see discard

    def write(self, data: bytes | memoryview) -> None:
        try:
            self._file.write(data)
        except OSError as error:
            here = f"what is sent is first gathered in {tempfile.gettempdir()}, which has no room for it"
            raise OSError(errno.EIO, f"{here}: {error.strerror}") from error
        self._digest.update(data)
        self._size += len(data)

    def publish(self, key: str, *, replace: bool, durable: bool) -> bool:  # noqa: ARG002 - all of it is durable
        md5 = base64.b64encode(self._digest.digest()).decode()
        return self._objects.write(self._root + key, Content(self._chunks, self._size, md5), replace=replace)

    def discard(self) -> None:
        self._file.close()

    def _chunks(self) -> Iterator[bytes]:
        self._file.seek(0)
        while chunk := self._file.read(_CHUNK):
            yield chunk


def open_bucket(rest: str, limits: Limits | None = None) -> BucketPlace:
    """The place behind what follows "gs://" in an address.

    Args:
        rest: "bucket/prefix", or a bucket alone.
        limits: Other patience than usual.

    Raises:
        ConfigError: It is no bucket's name, there are no credentials, or a module is missing.
    """
    bucket, _, prefix = rest.partition("/")
    prefix = prefix.removesuffix("/")
    if not _BUCKET.fullmatch(bucket):
        raise ConfigError(
            f"{'gs://' + rest!r} can't be a store: {bucket!r} is no bucket's name. Use gs://BUCKET/PREFIX"
        )
    if len(prefix.encode(errors="replace")) > _PREFIX_BYTES:
        raise ConfigError(f"{'gs://' + rest!r} can't be a store: its prefix is longer than {_PREFIX_BYTES} bytes")
    try:
        check_key(prefix or "whole")
    except UsageError as error:
        raise ConfigError(f"{'gs://' + rest!r} can't be a store: {error}") from error
    return BucketPlace(_connect(bucket, limits), bucket, prefix)


def _connect(bucket: str, limits: Limits | None) -> Objects:
    emulator = config.storage_emulator()
    address = emulator or GOOGLE
    pool = new_pool(address)
    access = Nobody() if emulator else GoogleAccess(pool)
    return Objects(Wire(access, pool, limits), address, bucket)

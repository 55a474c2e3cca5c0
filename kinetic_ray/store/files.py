"""Local files on their way into the store and out of it."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from kinetic_ray.errors import DataError
from kinetic_ray.store.place import refused

_CHUNK = 1 << 20


def chunks_of(path: Path) -> Iterator[memoryview]:
    """The content of a file; each piece is valid until the next one is asked for.

    Raises:
        DataError: It can't be read.
    """
    buffer = memoryview(bytearray(_CHUNK))
    try:
        with path.open("rb", buffering=0) as file:
            while size := file.readinto(buffer):
                yield buffer[:size]
    except OSError as error:
        raise DataError(f"can't read {path}: {error.strerror or error}") from error


@contextmanager
def new_file(target: Path, size: int) -> Iterator[IO[bytes]]:
    """A file (0600) that appears under its name whole, when the block ends without an exception.

    Args:
        target: Its name; its folder is made where missing, a file that is there is replaced.
        size: What it will need, in bytes, for the message when the disk is full.

    Raises:
        StoreError: It can't be written.
    """
    partial = target.with_name(f".kinetic-{secrets.token_hex(8)}.part")
    try:
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with open(partial, "xb", opener=_private) as file:
                yield file
            partial.replace(target)
        finally:
            partial.unlink(missing_ok=True)
    except OSError as error:
        raise refused(error, f"the folder {target.parent}", target.name, size) from error


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)

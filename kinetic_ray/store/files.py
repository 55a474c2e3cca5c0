"""Local files on their way into the store and out of it."""

from __future__ import annotations

import io
import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from kinetic_ray.errors import DataError
from kinetic_ray.store.place import refused

_CHUNK = 1 << 20
_PIECE = 4 << 20


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


def reader_of(read: Callable[[int, int], bytes], size: int) -> io.BufferedReader:
    """Something to read from as a file; what is asked for in one piece is read into the asker's own memory.

    Args:
        read: Gives bytes from an offset on, at most so many.
        size: Bytes in all.
    """
    return io.BufferedReader(_Pieces(read, size), _PIECE)


class _Pieces(io.RawIOBase):
    def __init__(self, read: Callable[[int, int], bytes], size: int) -> None:
        super().__init__()
        self._read = read
        self._left = size
        self._at = 0

    def readable(self) -> bool:
        return True

    def readinto(self, target: Any) -> int:
        wanted = min(len(target), _PIECE, self._left)
        data = self._read(self._at, wanted) if wanted else b""
        target[: len(data)] = data
        self._at += len(data)
        self._left -= len(data)
        return len(data)

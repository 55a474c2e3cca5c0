"""Messages between an agent and its child: some parts of bytes each, over a connected Unix socket.

A message is a header (kind, number of parts, their lengths) and its parts. Where a message is large, its larger parts
lie in one memory file (memfd), whose descriptor travels with the header: one copy into it by the sender, none by the
receiver, who maps it copy-on-write. The file is sealed, so that nothing can shrink it under the reader. Where there are
no memory files (macOS) all parts go through the socket.
"""

from __future__ import annotations

import array
import fcntl
import mmap
import os
import select
import socket
import struct
import sys
import threading
import time
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

#: A message of this size or more uses a memory file, for its parts of at least _WORTHWHILE.
LARGE = 1 << 20
_WORTHWHILE = 4 << 10

_HEADER = struct.Struct("<2sBBII")  # magic, kind, whether there is a memory file, the message's number, number of parts
_SHORT_HEADERS = tuple(struct.Struct(f"{_HEADER.format}{count}Q") for count in range(4))  # with the parts' lengths
_MAGIC = b"k4"
_IN_FILE = 1 << 63  # of a part's length
_MOST_PARTS = 1 << 20
_CHUNK = 1 << 16
_PIECE = 1 << 30  # one write of the kernel ends below 2 GiB
_ONE_FD = socket.CMSG_SPACE(array.array("i").itemsize)
_PAGE = mmap.PAGESIZE
_HAS_FILES = sys.platform == "linux"
#: Messages up to this size are cut from what one read gave.
_SHORT = 16 << 10

Part = bytes | bytearray | memoryview


class FrameError(Exception):
    """What has arrived is no message."""


class Frame(NamedTuple):
    """A message.

    Attributes:
        kind: What it is about, a number that both ends know.
        parts: Its content; the receiver's own, and writable where a part is large.
        number: Tells to which message another is the answer; 0 where it is none.
    """

    kind: int
    parts: Sequence[bytes | memoryview]
    number: int = 0


class Frames:
    """One end of a socket. Any thread may send, one may receive."""

    def __init__(self, link: socket.socket, early: bytes = b"", fds: Sequence[int] = ()) -> None:
        """Takes the socket over.

        Args:
            link: A connected Unix stream socket.
            early: What was read from it already.
            fds: Descriptors that came with it.
        """
        self._link = link
        self._buffer = bytearray(early)
        self._fds = list(fds)
        self._sending = threading.Lock()
        self._poll = select.poll()
        self._poll.register(link, select.POLLIN)

    def send(self, kind: int, parts: Sequence[Part], number: int = 0) -> None:
        """Sends a message whole; blocks while the peer doesn't read.

        Raises:
            OSError: The peer is gone.
        """
        sizes = [part.nbytes if isinstance(part, memoryview) else len(part) for part in parts]
        if sum(sizes) >= LARGE and _HAS_FILES:
            self._send_large(kind, number, [memoryview(part).cast("B") for part in parts])
            return
        data = b"".join((_header(kind, 0, number, sizes), *parts))
        with self._sending:
            self._link.sendall(data)

    def send_short(self, kind: int, number: int, *parts: bytes) -> None:
        """As :meth:`send`, in less time, of a few parts that are short in all.

        Raises:
            OSError: The peer is gone.
        """
        count = len(parts)
        data = b"".join((_SHORT_HEADERS[count].pack(_MAGIC, kind, 0, number, count, *map(len, parts)), *parts))
        with self._sending:
            self._link.sendall(data)

    def receive(self, until: float | None = None) -> Frame | None:
        """The next message; None at the end of the stream, which also cuts a message short.

        Args:
            until: On the monotonic clock; None = however long it takes.

        Raises:
            TimeoutError: Nothing came in time.
            FrameError: What came is no message; nothing more can be read then.
        """
        if not self._buffer and until is None:
            if (data := self._read()) is None:
                return None
            if (frame := _cut(data)) is not None:
                return frame
            self._buffer += data
        if not self._gather(_HEADER.size, until):
            return None
        magic, kind, has_file, number, count = _HEADER.unpack_from(self._buffer)
        if magic != _MAGIC or count > _MOST_PARTS or has_file > 1:
            raise FrameError(f"not a message: {bytes(self._buffer[:40])!r}")
        start = _HEADER.size + 8 * count
        if not self._gather(start, until):
            return None
        lengths = _lengths(count).unpack_from(self._buffer, _HEADER.size)
        if not has_file and max(lengths, default=0) >= _IN_FILE:
            raise FrameError("a message without a memory file has a part in it")
        size = start + (sum(length for length in lengths if not length & _IN_FILE) if has_file else sum(lengths))
        if not self._gather(size, until):
            return None
        if len(self._buffer) == size:
            body, self._buffer = self._buffer, bytearray()
        else:
            body = self._buffer[:size]
            del self._buffer[:size]
        rest = memoryview(body)[start:]
        parts = _split_filed(lengths, rest, self._map(lengths)) if has_file else _split(lengths, rest)
        return Frame(kind, parts, number)

    def hang_up(self) -> None:
        """Lets whoever sends or receives in another thread end, the latter after what has already arrived."""
        try:
            self._link.shutdown(socket.SHUT_RDWR)
        except OSError:  # the conversation has ended by itself
            return

    def close(self) -> None:
        """Gives the socket back."""
        self._link.close()
        while self._fds:
            os.close(self._fds.pop())

    def _send_large(self, kind: int, number: int, views: list[memoryview]) -> None:
        fd = os.memfd_create("kinetic-call", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            lengths, inline, place = [], [], 0
            for view in views:
                filed = view.nbytes >= _WORTHWHILE
                lengths.append(view.nbytes | _IN_FILE if filed else view.nbytes)
                if filed:
                    _write(fd, view, place)
                    place = _aligned(place + view.nbytes)
                else:
                    inline.append(view)
            os.ftruncate(fd, place)
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
            data = b"".join((_header(kind, 1, number, lengths), *inline))
            with self._sending:
                rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [fd]))]
                sent = self._link.sendmsg([data], rights)
                self._link.sendall(memoryview(data)[sent:])
        finally:
            os.close(fd)

    def _gather(self, size: int, until: float | None) -> bool:
        """Reads until the buffer holds `size` bytes; False at the end of the stream."""
        while len(self._buffer) < size:
            if until is not None and not self._poll.poll(max(0.0, until - time.monotonic()) * 1000):
                raise TimeoutError
            if (data := self._read()) is None:
                return False
            self._buffer += data
        return True

    def _read(self) -> bytes | None:
        try:
            data, aside, _flags, _address = self._link.recvmsg(_CHUNK, _ONE_FD)
        except ConnectionResetError:  # the peer ended with unread data in its buffer
            return None
        for _level, _type, told in aside:
            self._fds += array.array("i", told)
        return data or None

    def _map(self, lengths: Sequence[int]) -> memoryview:
        size = 0
        for length in lengths:
            if length & _IN_FILE:
                size = _aligned(size + (length & ~_IN_FILE))
        if not self._fds:
            raise FrameError("a message's memory file is missing")
        fd = self._fds.pop(0)
        try:
            sealed = fcntl.fcntl(fd, fcntl.F_GET_SEALS) & fcntl.F_SEAL_SHRINK
            if not sealed or os.fstat(fd).st_size < size or not size:
                raise FrameError("a message's memory file is not what its header says")
            return memoryview(mmap.mmap(fd, size, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE))
        except (OSError, OverflowError, ValueError) as exc:
            raise FrameError(f"a message's memory file can't be mapped: {exc}") from exc
        finally:
            os.close(fd)


def _cut(data: bytes) -> Frame | None:
    """The short message that some bytes are; None where they are anything else. As nearly all are, between calls."""
    if not _HEADER.size <= len(data) <= _SHORT:
        return None
    magic, kind, has_file, number, count = _HEADER.unpack_from(data)
    place = _HEADER.size + 8 * count
    if magic != _MAGIC or has_file or place > len(data):
        return None
    parts = []
    for length in _lengths(count).unpack_from(data, _HEADER.size):
        parts.append(data[place : place + length])
        place += length
    return Frame(kind, parts, number) if place == len(data) else None


def _header(kind: int, has_file: int, number: int, lengths: Sequence[int]) -> bytes:
    return _HEADER.pack(_MAGIC, kind, has_file, number, len(lengths)) + _lengths(len(lengths)).pack(*lengths)


@lru_cache(maxsize=64)
def _lengths(count: int) -> struct.Struct:
    return struct.Struct(f"<{count}Q")


def _split(lengths: Sequence[int], rest: memoryview) -> list[memoryview]:
    parts, place = [], 0
    for length in lengths:
        parts.append(rest[place : place + length])
        place += length
    return parts


def _split_filed(lengths: Sequence[int], rest: memoryview, mapped: memoryview) -> list[memoryview]:
    parts, place, filed = [], 0, 0
    for length in lengths:
        if length & _IN_FILE:
            size = length & ~_IN_FILE
            parts.append(mapped[filed : filed + size])
            filed = _aligned(filed + size)
        else:
            parts.append(rest[place : place + length])
            place += length
    return parts


def _write(fd: int, view: memoryview, place: int) -> None:
    while view.nbytes:
        written = os.pwrite(fd, view[:_PIECE], place)
        view, place = view[written:], place + written


def _aligned(place: int) -> int:
    return -(-place // _PAGE) * _PAGE

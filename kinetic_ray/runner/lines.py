"""JSON lines, with file descriptors alongside, over a socket between two processes of one host."""

from __future__ import annotations

import array
import json
import os
import socket
import threading
from collections.abc import Sequence
from typing import Any

_MAX_FDS = 4
_CHUNK = 1 << 16


class Lines:
    """One end of a connected Unix socket. Any thread may send, one may receive."""

    def __init__(self, link: socket.socket) -> None:
        self._link = link
        self._buffer = bytearray()
        self._fds: list[int] = []
        self._sending = threading.Lock()

    @property
    def has_message(self) -> bool:
        """Whether a message has arrived whole already; the socket then tells a `select` nothing of it."""
        return b"\n" in self._buffer

    def send(self, message: dict[str, Any], fds: Sequence[int] = ()) -> None:
        """Sends one message whole; blocks while the peer doesn't read.

        Raises:
            OSError: The peer is gone.
        """
        data = json.dumps(message).encode() + b"\n"
        with self._sending:
            if fds:
                rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))]
                data = data[self._link.sendmsg([data], rights) :]
            self._link.sendall(data)

    def receive(self) -> dict[str, Any] | None:
        """The next message, or None at the end of the stream (a torn last line counts as the end)."""
        while not self.has_message:
            if not self._fill():
                return None
        line, _, rest = bytes(self._buffer).partition(b"\n")
        self._buffer[:] = rest
        message = json.loads(line)
        if not isinstance(message, dict):
            raise TypeError(f"expected a JSON object, got {line[:80]!r}")
        return message

    def take_fds(self, count: int) -> list[int]:
        """Descriptors that came with the messages so far, oldest first; never inherited over an exec."""
        taken, self._fds = self._fds[:count], self._fds[count:]
        return taken

    def take_all_fds(self) -> list[int]:
        """All of them."""
        return self.take_fds(len(self._fds))

    def take_rest(self) -> bytes:
        """What has arrived beyond the last message: the beginning of another kind of talk."""
        rest = bytes(self._buffer)
        self._buffer.clear()
        return rest

    def end_of_input(self) -> None:
        """Lets a blocked :meth:`receive` in another thread end after what has already arrived."""
        self._link.shutdown(socket.SHUT_RD)

    def close(self) -> None:
        self._link.close()

    def _fill(self) -> bool:
        try:
            data, fds, _flags, _address = socket.recv_fds(self._link, _CHUNK, _MAX_FDS)
        except ConnectionResetError:  # the peer ended with unread data in its buffer
            return False
        for fd in fds:
            os.set_inheritable(fd, False)
        self._fds += fds
        self._buffer += data
        return bool(data)

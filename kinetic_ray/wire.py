"""JSON lines over a unix socket: how processes of one user on one machine talk to the supervisor."""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import struct
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from kinetic_ray import errors
from kinetic_ray.errors import KineticError, UsageError

Message = dict[str, Any]

#: Longest line that is read; a longer one is an error of the other side, not a reason to fill the memory.
MAX_LINE = 4 * 2**20
_CHUNK = 65536


class WireError(KineticError):
    """The other side broke the protocol, or is another user's process."""


def encode(message: Mapping[str, Any]) -> bytes:
    """One message as it travels: a line of JSON."""
    line = json.dumps(message, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode() + b"\n"
    if len(line) > MAX_LINE:
        raise WireError(f"a message of {len(line)} bytes is longer than {MAX_LINE}")
    return line


def decode(line: bytes) -> Message:
    """The message of a line.

    Raises:
        WireError: Torn, or no JSON object.

    Example:
        >>> decode(encode({"op": "status"}))
        {'op': 'status'}
    """
    try:
        message = json.loads(line)
    except ValueError as exc:
        raise WireError(f"not a line of JSON: {line[:80]!r}") from exc
    if not isinstance(message, dict):
        raise WireError(f"expected a JSON object, not {line[:80]!r}")
    return message


class Peer:
    """One end of a connection. Closing it, also by the end of its process, is what the other end sees as its end.

    One thread may receive while another sends.
    """

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._buffer = bytearray()
        self._closed = False

    def send(self, message: Mapping[str, Any]) -> None:
        """Sends one message.

        Raises:
            OSError: The other end has closed.
        """
        self._socket.sendall(encode(message))

    def recv(self, timeout: float | None = None) -> Message | None:
        """The next message; None when the other end has closed.

        Args:
            timeout: Seconds; None waits for ever, 0 only looks.

        Raises:
            TimeoutError: None came in time. What came of it is kept for the next call.
            WireError: What came is no message.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while (end := self._buffer.find(b"\n")) < 0:
            if len(self._buffer) > MAX_LINE:
                raise WireError(f"a line longer than {MAX_LINE} bytes")
            if not self._read_more(deadline):
                if self._buffer:
                    raise WireError(f"the other end closed in the middle of a line: {bytes(self._buffer[:80])!r}")
                return None
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        return decode(line)

    def _read_more(self, deadline: float | None) -> bool:
        try:
            if deadline is not None:
                self._await_data(deadline)
            chunk = self._socket.recv(_CHUNK)
        except (ConnectionResetError, ValueError):  # ValueError: polled after it was closed
            return False
        except OSError:
            if self._closed:
                return False
            raise
        self._buffer += chunk
        return bool(chunk)

    def _await_data(self, deadline: float) -> None:
        """Waits without touching the socket's own timeout, which a thread that sends would share."""
        waiting = select.poll()
        waiting.register(self._socket, select.POLLIN)
        if not waiting.poll(max(deadline - time.monotonic(), 0) * 1000):
            raise TimeoutError("no message came in time")

    def fileno(self) -> int:
        """The descriptor, for select; it may be silent while :meth:`recv` has a message already."""
        return self._socket.fileno()

    def close(self) -> None:
        """Ends the connection; a thread that waits in :meth:`recv` gets None."""
        self._closed = True
        with contextlib.suppress(OSError):  # the other end was faster
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *_exc: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.close()


def connect(path: str | Path, timeout: float = 5.0) -> Peer:
    """Connects to the supervisor's socket.

    Raises:
        OSError: Nobody listens there (FileNotFoundError, ConnectionRefusedError).
        WireError: Another user's process listens there.
    """
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.settimeout(timeout)
        sock.connect(str(path))
        check_peer(sock)
        sock.settimeout(None)
    except BaseException:
        sock.close()
        raise
    return Peer(sock)


def check_peer(sock: socket.socket) -> None:
    """Refuses a peer of another user; where the system doesn't tell, the folder's mode 0700 alone keeps others out.

    Raises:
        WireError: The other end belongs to another user.
    """
    found = _credentials(sock)
    if found is not None and found[1] != os.getuid():
        raise WireError(f"the process at the other end belongs to user {found[1]}, not to {os.getuid()}")


def peer_pid(sock: socket.socket) -> int:
    """The process at the other end, which this user's own must be. Linux only.

    Raises:
        WireError: It belongs to another user, or the system doesn't tell.
    """
    check_peer(sock)
    found = _credentials(sock)
    if found is None:
        raise WireError("this system doesn't tell which process is at the other end")
    return found[0]


def _credentials(sock: socket.socket) -> tuple[int, int, int] | None:
    if sys.platform != "linux":
        return None
    credentials = struct.Struct("3i")  # pid, uid, gid
    pid, uid, gid = credentials.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, credentials.size))
    return pid, uid, gid


def call(path: str | Path, message: Mapping[str, Any], timeout: float | None = 30.0) -> Message:
    """One request and its answer.

    Args:
        path: The supervisor's socket.
        message: {"op": ..., ...}.
        timeout: Seconds for the answer; None waits for ever.

    Raises:
        OSError: Nobody listens, or it closed without an answer (ConnectionError).
        TimeoutError: No answer in time.
        KineticError: The answer is an error; the subclass is the one it names.
    """
    with connect(path) as peer:
        peer.send(message)
        answer = peer.recv(timeout)
    if answer is None:
        raise ConnectionError(f"the supervisor closed the connection without an answer to {message.get('op')!r}")
    return checked(answer)


def checked(answer: Message) -> Message:
    """The answer, if it is a good one.

    Raises:
        KineticError: It is an error; the subclass is the one it names.
    """
    if answer.get("ok", True):
        return answer
    raise _error(str(answer.get("error", "")), str(answer.get("message", "the supervisor gave no reason")))


def failure(error: KineticError) -> Message:
    """The answer that stands for an error.

    Example:
        >>> failure(UsageError("no such slice"))
        {'ok': False, 'error': 'UsageError', 'message': 'no such slice'}
    """
    return {"ok": False, "error": type(error).__name__, "message": str(error)}


def _error(name: str, message: str) -> KineticError:
    kind = vars(errors).get(name, UsageError if name == "Unschedulable" else KineticError)
    known = isinstance(kind, type) and issubclass(kind, KineticError)
    return kind(message) if known else KineticError(message)

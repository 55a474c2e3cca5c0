"""Ports that stay free for a coordinator until it takes them."""

from __future__ import annotations

import collections
import socket
import threading

#: Reservations kept: the last attempts' of a host. Each is a descriptor.
KEPT = 128


class PortKeeper:
    """Gives each port once, and keeps it reserved by a bound socket that doesn't listen.

    The coordinator (gRPC) binds with SO_REUSEPORT, so it may join the reservation of the same user; nobody else gets
    the port, neither by asking for it nor by chance. So a late follower of an ended attempt finds nobody there.
    """

    def __init__(self) -> None:
        self._kept: collections.deque[socket.socket] = collections.deque()
        self._lock = threading.Lock()

    def take(self) -> int:
        """A port that was not given before."""
        kept = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        kept.bind(("", 0))
        with self._lock:
            self._kept.append(kept)
            if len(self._kept) > KEPT:
                self._kept.popleft().close()
        return int(kept.getsockname()[1])

    def release(self) -> None:
        """Gives all ports back."""
        with self._lock:
            while self._kept:
                self._kept.pop().close()

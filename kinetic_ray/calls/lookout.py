"""Keeps an eye on the cluster that this process has joined.

Ray ends a process whose cluster has gone, a notebook's kernel as well, after a minute. So we have to leave before that.
While the connection to the supervisor is open, the cluster isn't idle.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable

from kinetic_ray import wire
from kinetic_ray.errors import KineticError

_LOG = logging.getLogger("kinetic_ray")


class Lookout:
    """Tells, once, when the supervisor goes.

    Args:
        supervisor: Its socket.
        gone: Called with it then, in a thread of its own.
    """

    def __init__(self, supervisor: str, gone: Callable[[Lookout], None]) -> None:
        self._gone = gone
        self._closed = threading.Event()
        self._peer = wire.connect(supervisor)
        self._peer.send({"op": "client"})
        threading.Thread(target=self._watch, name="kinetic-lookout", daemon=True).start()

    def close(self) -> None:
        """Ends it; nothing is told any more."""
        self._closed.set()
        self._peer.close()

    def _watch(self) -> None:
        with contextlib.suppress(OSError, KineticError):
            while self._peer.recv() is not None:
                pass
        if not self._closed.is_set():
            self._gone(self)

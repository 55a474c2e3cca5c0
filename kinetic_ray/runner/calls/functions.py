"""Packed functions by their digests, as an agent keeps them for its next child."""

from __future__ import annotations

import threading

from kinetic_ray.runner.calls.packing import Packed

#: Bytes of functions that are kept; those that were used longest ago go, the last one never.
MOST_BYTES = 1 << 30
MOST = 4096


class Functions:
    """What was learned. Thread-safe."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._bytes = 0
        self._known: dict[str, Packed] = {}
        self._changed = threading.Condition()

    def add(self, digest: str, function: Packed) -> None:
        """Keeps a function."""
        with self._changed:
            if digest in self._known:
                return
            self._known[digest] = function
            self._bytes += function.nbytes
            while len(self._known) > 1 and (self._bytes > self._most_bytes or len(self._known) > MOST):
                self._bytes -= self._known.pop(next(iter(self._known))).nbytes
            self._changed.notify_all()

    def get(self, digest: str, patience: float) -> Packed | None:
        """A function; waits up to `patience` seconds for one that isn't here yet."""
        with self._changed:
            if not self._changed.wait_for(lambda: digest in self._known, patience):
                return None
            function = self._known[digest] = self._known.pop(digest)
            return function

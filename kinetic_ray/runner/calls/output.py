"""What a child prints, on its way to people: through a pipe to its agent, line by line."""

from __future__ import annotations

import collections
import contextlib
import fcntl
import os
import select
import sys
import termios
import threading
import time
from collections.abc import Callable, Sequence

from kinetic_ray.runner.deaths import TAIL_LINES

_CHUNK = 1 << 16
#: A line without an end that is longer is passed on in pieces.
_LONGEST = 1 << 16
#: What aborting runtimes print needs more than the lines that a failure shows.
_WORDS = 200
_PAUSE = 0.002
#: Seconds between two batches.
_SPACING = 0.05


class Output:
    """A child's standard output and error. Its thread ends with the last process that could write."""

    def __init__(self, take: Callable[[Sequence[str]], None]) -> None:
        """Begins to read.

        Args:
            take: Gets the lines as they come, in batches, without their ends.
        """
        self._reading, self._writing = os.pipe()
        self._take = take
        self._words: collections.deque[str] = collections.deque(maxlen=_WORDS)
        self._rest = b""
        self._waiting: list[str] = []
        self._due = 0.0
        self._done = threading.Event()
        threading.Thread(target=self._read, name="kinetic-output", daemon=True).start()

    def give_writer(self) -> int:
        """The end for the child; close it here once the child has it."""
        return self._writing

    def words(self) -> str:
        """The last lines, more than a failure shows."""
        return "\n".join(self._words)

    def tail(self) -> str:
        """The last lines, as many as a failure shows."""
        return "\n".join(list(self._words)[-TAIL_LINES:])

    def settle(self, patience: float) -> None:
        """Waits until what was printed by now has been read; for the last words of those that are gone, too."""
        until = time.monotonic() + patience
        while not self._done.is_set() and self._pending() and time.monotonic() < until:
            self._done.wait(_PAUSE)

    def await_end(self, patience: float) -> None:
        """Waits until nobody is left who could print."""
        self._done.wait(patience)

    def _pending(self) -> bool:
        count = bytearray(4)
        with contextlib.suppress(OSError):
            fcntl.ioctl(self._reading, termios.FIONREAD, count)
        return any(count)

    def _read(self) -> None:
        poll = select.poll()
        poll.register(self._reading, select.POLLIN)
        try:
            while True:
                if self._waiting and not poll.poll(max(0.0, self._due - time.monotonic()) * 1000):
                    self._deliver()
                data = os.read(self._reading, _CHUNK)
                if not data:
                    break
                self._add(data)
                if time.monotonic() >= self._due:
                    self._deliver()
            if self._rest:
                self._add(b"\n")
            self._deliver()
        finally:
            self._done.set()
            os.close(self._reading)

    def _deliver(self) -> None:
        """At once after a silence, then in batches: whoever prints each line by itself must not flood anybody."""
        lines, self._waiting = self._waiting, []
        self._due = time.monotonic() + _SPACING
        if lines:
            with contextlib.suppress(Exception):  # nobody's fault down there, and nothing that a child should end for
                self._take(lines)

    def _add(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > _LONGEST:
            lines, self._rest = [*lines, self._rest], b""
        if not lines:
            return
        texts = [line.decode(errors="replace").rstrip("\r") for line in lines]
        self._words.extend(texts)
        self._waiting += texts
        with contextlib.suppress(Exception):  # as below
            sys.stdout.write("\n".join(texts) + "\n")
            sys.stdout.flush()

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
from typing import NamedTuple

from kinetic_ray.runner.deaths import TAIL_LINES

_CHUNK = 1 << 16
#: A line without an end that is longer is passed on in pieces.
_LONGEST = 1 << 16
#: What aborting runtimes print needs more than the lines that a failure shows.
_WORDS = 200
_PAUSE = 0.002
#: Seconds between two batches.
_SPACING = 0.05

#: Gets lines, and whose they are.
Take = Callable[["Whose", Sequence[str]], None]


class Whose(NamedTuple):
    """The call that prints.

    Attributes:
        client: Who gets its lines; "" for whomever the process serves.
        name: The call's, for people; "" before the first.
    """

    client: str = ""
    name: str = ""


class Output:
    """A child's standard output and error. Its thread ends with the last process that could write."""

    def __init__(self, take: Take) -> None:
        """Begins to read.

        Args:
            take: Gets the lines as they come, in batches of one call's each, without their ends.
        """
        self._reading, self._writing = os.pipe()
        self._take = take
        self._words: collections.deque[str] = collections.deque(maxlen=_WORDS)
        self._rest = b""
        self._waiting: list[str] = []
        self._due = 0.0
        self._whose = Whose()
        self._taking = threading.Lock()  # of what has been read, and whose it is
        self._done = threading.Event()
        threading.Thread(target=self._read, name="kinetic-output", daemon=True).start()

    def give_writer(self) -> int:
        """The end for the child; close it here once the child has it."""
        return self._writing

    def turn_to(self, whose: Whose) -> None:
        """What is printed from now on is that call's; what is in the pipe now, half a line too, the one's before.

        Args:
            whose: The call that is about to begin.
        """
        if whose == self._whose:
            return
        with self._taking:
            if not self._done.is_set() and (count := self._pending()):
                self._add(os.read(self._reading, count))
            if self._rest:
                self._add(b"\n")
            self._deliver()
            self._whose = whose

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

    def _pending(self) -> int:
        """Bytes in the pipe."""
        count = bytearray(4)
        with contextlib.suppress(OSError):
            fcntl.ioctl(self._reading, termios.FIONREAD, count)
        return int.from_bytes(count, sys.byteorder)

    def _read(self) -> None:
        poll = select.poll()
        poll.register(self._reading, select.POLLIN)
        try:
            while self._step(poll):
                pass
        finally:
            with self._taking:
                self._done.set()
                os.close(self._reading)

    def _step(self, poll: select.poll) -> bool:
        """Waits for something to read or to deliver; False at the end."""
        poll.poll(max(0.0, self._due - time.monotonic()) * 1000 if self._waiting else None)
        with self._taking:
            if not poll.poll(0):  # else it can be read at once, though another thread reads here as well
                if time.monotonic() >= self._due:
                    self._deliver()
                return True
            data = os.read(self._reading, _CHUNK)
            if data:
                self._add(data)
            elif self._rest:
                self._add(b"\n")
            if not data or time.monotonic() >= self._due:
                self._deliver()
            return bool(data)

    def _deliver(self) -> None:
        """At once after a silence, then in batches: whoever prints each line by itself must not flood anybody."""
        lines, self._waiting = self._waiting, []
        if lines:
            self._due = time.monotonic() + _SPACING
            with contextlib.suppress(Exception):  # nobody's fault down there, and nothing that a child should end for
                self._take(self._whose, lines)

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

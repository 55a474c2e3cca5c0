"""What a child prints, on its way to people: through a pipe to its agent, line by line.

Nothing of it is dropped here. Whoever takes the lines may take their time: meanwhile the pipe fills, and the program
that prints waits, as at a slow terminal.
"""

from __future__ import annotations

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

from kinetic_ray.runner.calls.cutting import Cutter, Words

_CHUNK = 1 << 16
#: Characters that are passed on in one batch, about; and that may wait at the end of a call before the next begins.
_BATCH, _MOST = 1 << 18, 1 << 20
_PAUSE = 0.002
#: Seconds between two batches.
_SPACING = 0.05
_NOTHING = bytes(4)

#: Gets lines, and whose they are; returns when it can take more.
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
            take: Gets the lines as they come, in batches of one call's each, without their ends. Called in a thread of
                its own, one batch after the other.
        """
        self._reading, self._writing = os.pipe()
        os.set_blocking(self._reading, False)  # several threads read; the child's end is another
        self._bell, self._rope = os.pipe()  # wakes the reader
        os.set_blocking(self._rope, False)
        self._take = take
        self._count = bytearray(4)
        self._words = Words()
        self._cutter = Cutter()
        self._whose = Whose()
        self._waiting: list[tuple[Whose, list[str]]] = []
        self._size = 0  # of what waits, and of what is being taken
        self._added = self._taken = 0  # batches
        self._due = 0.0
        self._is_urgent = self._has_ended = self._is_over = False
        self._taking = threading.Lock()  # of all of these; never held while lines are taken
        self._changed = threading.Condition(self._taking)
        self._reader = threading.Thread(target=self._read, name="kinetic-output", daemon=True)
        self._reader.start()

    def give_writer(self) -> int:
        """The end for the child; close it here once the child has it."""
        return self._writing

    def turn_to(self, whose: Whose) -> None:
        """What is printed from now on is that call's; what is in the pipe now, half a line too, the one's before.

        Args:
            whose: The call that is about to begin.
        """
        if whose != self._whose:
            with self._taking:
                self._conclude()
                self._whose = whose

    def finish(self) -> None:
        """A call is over: what it has printed is passed on, also a line that it has not ended.

        Waits where others are far behind with taking it. Costs next to nothing where there is nothing.
        """
        try:
            fcntl.ioctl(self._reading, termios.FIONREAD, self._count)
        except OSError:  # closed, by the reader
            return
        # In this order: who has read what was there still holds the lock, or has put it where it is seen.
        if self._count == _NOTHING and not self._taking.locked() and not self._cutter.rest:
            return
        with self._changed:
            self._conclude()
            self._changed.wait_for(lambda: self._size <= _MOST or self._is_over)

    def flush(self, client: str, patience: float) -> bool:
        """Has all that was printed by now taken at once; whether it was in time.

        Args:
            client: Of this one's call half a line, too: nobody waits for its rest.
            patience: Seconds.
        """
        with self._changed:
            if client == self._whose.client:
                self._conclude()
            else:
                self._pull()
            goal = self._added
            self._is_urgent = True
            self._ring()
            return self._changed.wait_for(lambda: self._taken >= goal or self._is_over, patience)

    def words(self) -> str:
        """The last lines, more than a failure shows."""
        return self._words.all()

    def tail(self) -> str:
        """The last lines, as many as a failure shows."""
        return self._words.tail()

    def await_end(self, patience: float) -> None:
        """Waits until nobody is left who could print, and all of it has been read."""
        until = time.monotonic() + patience
        with self._changed:
            while not self._has_ended and (left := until - time.monotonic()) > 0:
                self._pull()  # the reader may wait for those who take
                self._changed.wait(min(left, _PAUSE))

    @property
    def is_over(self) -> bool:
        """Whether it has ended, and all of it is taken."""
        return self._is_over

    # Reading; the lock is held.

    def _pull(self) -> bool:
        """Reads what is in the pipe now; False at its end."""
        if self._has_ended:
            return False
        try:
            data = os.read(self._reading, _CHUNK)
        except BlockingIOError:
            return True
        if data:
            self._add(self._cutter.cut(data, time.monotonic()))
        else:
            self._has_ended = True
            self._add(self._cutter.end())
        return bool(data)

    def _conclude(self) -> None:
        """The call that prints now is over."""
        self._pull()  # a pipe holds no more than this reads
        self._add(self._cutter.end())

    def _add(self, lines: Sequence[bytes]) -> None:
        if not lines:
            return
        texts = [line.decode(errors="replace").rstrip("\r") for line in lines]
        self._words.add(texts)
        if not self._waiting:
            self._ring()
        if not self._waiting or self._waiting[-1][0] != self._whose:
            self._waiting.append((self._whose, []))
            self._added += 1
        self._waiting[-1][1].extend(texts)
        self._size += sum(map(len, texts))
        with contextlib.suppress(Exception):  # the agent's own, which Ray keeps in a file
            sys.stdout.write("\n".join(texts) + "\n")
            sys.stdout.flush()

    def _ring(self) -> None:
        if not self._is_over and threading.current_thread() is not self._reader:
            with contextlib.suppress(BlockingIOError):  # it has been rung often enough
                os.write(self._rope, b"!")

    # The thread.

    def _read(self) -> None:
        poll = select.poll()
        poll.register(self._reading, select.POLLIN)
        poll.register(self._bell, select.POLLIN)
        try:
            while self._step(poll):
                pass
            self._deliver()
        finally:
            with self._changed:
                self._has_ended = self._is_over = True
                for end in (self._reading, self._bell, self._rope):
                    os.close(end)
                self._changed.notify_all()

    def _step(self, poll: select.poll) -> bool:
        """Waits for something to read or to deliver; False at the end."""
        found = poll.poll(max(0.0, self._due - time.monotonic()) * 1000 if self._waiting else None)
        with self._changed:
            if any(end == self._bell for end, _ in found):
                os.read(self._bell, _CHUNK)
            goes_on = self._pull()
            if not goes_on:
                self._changed.notify_all()
            if not self._waiting or (not self._is_urgent and self._size < _BATCH and time.monotonic() < self._due):
                return goes_on
        self._deliver()
        return goes_on

    def _deliver(self) -> None:
        """At once after a silence, then in batches: whoever prints each line by itself must not flood anybody."""
        with self._taking:
            batches, self._waiting = self._waiting, []
            self._is_urgent = False
        for whose, lines in batches:
            with contextlib.suppress(Exception):  # nobody's fault down there, and nothing that a child should end for
                self._take(whose, lines)
            with self._changed:
                self._taken += 1
                self._size -= sum(map(len, lines))
                self._changed.notify_all()
        self._due = time.monotonic() + _SPACING

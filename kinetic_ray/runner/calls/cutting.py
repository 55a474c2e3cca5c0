"""Bytes that a program prints, cut into lines; and the last of them, kept for a failure."""

from __future__ import annotations

import collections
import re
from collections.abc import Sequence

from kinetic_ray.runner.deaths import TAIL_LINES

#: A line without an end that is longer is passed on in pieces.
LONGEST = 1 << 18
#: Seconds after which a bar that is drawn over and over is passed on as it stands.
BAR = 5.0
#: What aborting runtimes print needs more than the lines that a failure shows.
_WORDS = 200
#: Of a long line, its last characters are kept for a failure.
_LONG = 4000
#: Half a character of UTF-8.
_HALF = re.compile(rb"[\xc2-\xdf]$|[\xe0-\xef][\x80-\xbf]?$|[\xf0-\xf4][\x80-\xbf]{0,2}$")


class Cutter:
    r"""Cuts what comes into whole lines. No I/O, no clock of its own.

    A bar that begins its line over with "\r" gives a line every few seconds, as it stands then, and nothing is lost:
    what was drawn before is in that line, too.

    Attributes:
        rest: The line that has not ended yet.

    Args:
        longest: A line without an end that is longer is cut.
        bar: Seconds between the lines of a bar.

    Example:
        >>> cutter = Cutter()
        >>> cutter.cut(b"one\ntw", 0.0), cutter.cut(b"o\nthree", 0.0), cutter.end()
        ([b'one'], [b'two'], [b'three'])
    """

    def __init__(self, longest: int = LONGEST, bar: float = BAR) -> None:
        self.rest = bytearray()
        self._longest = longest
        self._bar = bar
        self._since = 0.0

    def cut(self, data: bytes, now: float) -> list[bytes]:
        """The lines that are whole with what has come, without their ends."""
        if not self.rest:
            self._since = now
        first, *others = data.split(b"\n")
        self.rest += first
        if not others:
            return self._pieces(now)
        lines = [bytes(self.rest), *others[:-1]]
        self.rest = bytearray(others[-1])
        self._since = now
        return lines + self._pieces(now)

    def end(self) -> list[bytes]:
        """The line that has no end, if there is one."""
        rest, self.rest = bytes(self.rest), bytearray()
        return [rest] if rest else []

    def _pieces(self, now: float) -> list[bytes]:
        if len(self.rest) <= self._longest and now - self._since < self._bar:
            return []
        drawn = self.rest.rfind(b"\r", 0, len(self.rest) - 1)  # what follows the last one is being drawn
        if drawn >= 0:
            place, following = drawn, drawn + 1
        elif len(self.rest) > self._longest:
            half = _HALF.search(self.rest[-3:])
            place = following = len(self.rest) - (len(half[0]) if half else 0)
        else:
            return []
        piece, self.rest = bytes(self.rest[:place]), self.rest[following:]
        self._since = now
        return [piece] if piece else []


class Words:
    """The last lines."""

    def __init__(self) -> None:
        self._lines: collections.deque[str] = collections.deque(maxlen=_WORDS)

    def add(self, lines: Sequence[str]) -> None:
        self._lines.extend(line if len(line) <= _LONG else f"...{line[-_LONG:]}" for line in lines[-_WORDS:])

    def all(self) -> str:
        return "\n".join(self._lines)

    def tail(self) -> str:
        """As many as a failure shows."""
        return "\n".join([*self._lines][-TAIL_LINES:])

"""Lines that a library prints by itself, in every run, and that tell a user nothing: left out while one watches."""

from __future__ import annotations

import re

_START = b"[Gloo] Rank "
_GLOO = re.compile(
    rb"\[Gloo\] Rank \d+ is connected to \d+ peer ranks\. Expected number of connected peer ranks is : \d+"
)
_LONGEST = 200  # bytes that are held back at most


def is_noise(line: str) -> bool:
    """Whether a whole line is gloo's word at a connection.

    Example:
        >>> is_noise("[Gloo] Rank 2 is connected to 3 peer ranks. Expected number of connected peer ranks is : 3")
        True
    """
    return _GLOO.fullmatch(line.encode()) is not None


class Quieted:
    r"""A log without gloo's words at each connection; everything else passes at once and untouched.

    Only whole lines of exactly that form are left out. The log itself keeps them.

    Example:
        >>> log = Quieted()
        >>> log.passed(b"one\n[Gloo] Rank 2 is connected to 3 peer ranks. Expected"), log.rest()
        (b'one\n', b'[Gloo] Rank 2 is connected to 3 peer ranks. Expected')
    """

    def __init__(self) -> None:
        self._held = b""
        self._begun = False  # whether the beginning of the line has been passed on

    def passed(self, data: bytes) -> bytes:
        """What to show of the next bytes."""
        *lines, last = (self._held + data).split(b"\n")
        self._held = b""
        kept = []
        for line in lines:
            if self._begun or not _GLOO.fullmatch(line):
                kept.append(line + b"\n")
            self._begun = False
        if not self._begun and last and len(last) < _LONGEST and _START.startswith(last[: len(_START)]):
            self._held = last
        elif last:
            kept.append(last)
            self._begun = True
        return b"".join(kept)

    def rest(self) -> bytes:
        """The beginning of a line that was held back, at the end of the log."""
        held, self._held = self._held, b""
        return held

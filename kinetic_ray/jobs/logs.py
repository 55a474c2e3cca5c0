"""Reading a rank's log out of the store, also while it grows."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from kinetic_ray.core.names import JobKeys
from kinetic_ray.core.option_values import whole_number
from kinetic_ray.core.state import JobState
from kinetic_ray.errors import StoreError
from kinetic_ray.store import Growing, MissingKey, Store

_ATTEMPT_RE = re.compile(r"([0-9]{6})\.([0-9]{4,})")
_CHUNK = 1 << 20
_TAIL_BLOCK = 64 * 1024


def which_log(rank: int, attempt: int | None) -> tuple[int, int | None]:
    """A log as it was asked for, of a rank from 0 and an attempt from 1.

    Raises:
        UsageError: Either is no such number.
    """
    return whole_number("rank", rank), None if attempt is None else whole_number("attempt", attempt, least=1)


def find_log(store: Store, keys: JobKeys, rank: int, attempt: int | None = None) -> str | None:
    """The key of a rank's log.

    Args:
        store: Where the job is.
        keys: The job's keys.
        rank: Which rank.
        attempt: Which attempt; None = the newest that has a log of this rank.

    Returns:
        None while there is no such log. Of two drivers' attempts with one number the later driver's counts.
    """
    for place in reversed(_places(store, keys, attempt)):
        if Growing(store, key := keys.log(*place, rank)).exists():
            return key
    return None


def _places(store: Store, keys: JobKeys, attempt: int | None) -> list[tuple[int, int]]:
    """(epoch, attempt) of all logs, or of those of one attempt, in the order of time."""
    names = (key.rstrip("/").rpartition("/")[2] for key in store.list(keys.logs))
    found = [(int(match[1]), int(match[2])) for name in names if (match := _ATTEMPT_RE.fullmatch(name))]
    return sorted(place for place in found if attempt in (None, place[1]))


def read_log(store: Store, key: str) -> str:
    """All of a log, undecodable bytes replaced."""
    return Growing(store, key).read(0).decode("utf-8", "replace")


def read_tail(store: Store, key: str, lines: int) -> str:
    """The last lines of a log, without the last one's newline. As for `tail -n`, only a newline ends a line."""
    if lines <= 0:
        return ""
    text = Growing(store, key).read(tail_start(store, key, lines)).decode("utf-8", "replace")
    return "\n".join(text.removesuffix("\n").split("\n")[-lines:])  # it may have grown since


def tail_start(store: Store, key: str, lines: int) -> int:
    """Where the last lines of a log begin, in bytes from its start."""
    log = Growing(store, key)
    start = size = place = log.size()
    data = b""
    while lines > 0 and start > 0:
        start = max(start - max(_TAIL_BLOCK, len(data)), 0)
        data = log.read(start, size - start)
        place = len(data) - data.endswith(b"\n")
        for _ in range(lines):
            place = data.rfind(b"\n", 0, max(place, 0))
        if place >= 0:
            return start + place + 1
    return 0 if lines > 0 else size


@dataclass(frozen=True, slots=True)
class LogLine:
    r"""A line that a rank has printed.

    Attributes:
        rank: Which rank.
        attempt: In which attempt, from 1.
        text: The line as printed, without its newline: it may hold control codes, and "\r" where a progress bar has
            started it over. Undecodable bytes are replaced.
    """

    rank: int
    attempt: int
    text: str


@dataclass(frozen=True, slots=True)
class Piece:
    """Bytes that follow one another in one attempt's log.

    Attributes:
        place: (epoch, attempt) of the log.
        data: The bytes.
    """

    place: tuple[int, int]
    data: bytes = field(repr=False)


class LogPump:
    """Gives what a rank's log has grown by since the last look, attempt after attempt, each to its end.

    Args:
        store: Where the job is.
        keys: The job's keys.
        rank: Which rank.
        tail: Start with so many of the lines that are there at the first look; None = with all.
        attempt: Only this attempt; None = the newest at the first look, and those after it.

    Attributes:
        is_behind: Whether the last look left something that is there already.
    """

    def __init__(
        self, store: Store, keys: JobKeys, rank: int = 0, *, tail: int | None = None, attempt: int | None = None
    ) -> None:
        self._store = store
        self._keys = keys
        self._rank = rank
        self._tail = tail
        self._attempt = attempt
        self._place: tuple[int, int] | None = None
        self._offset = 0
        self._unended: tuple[int, int] | None = None  # the log whose last line has no newline so far
        self.is_behind = False

    def read(self, state: JobState) -> bytes:
        """The next bytes, b"" if there are none yet: as :meth:`pieces`, on lines of its own for every attempt."""
        data = b""
        for piece in self.pieces(state):
            if self._unended not in (None, piece.place):  # what a killed attempt was writing is no part of the next
                data += b"\n"
            data += piece.data
            self._unended = None if data.endswith(b"\n") else piece.place
        return data

    def pieces(self, state: JobState) -> list[Piece]:
        """The next bytes, in the order in which they were written; at most a MiB.

        Args:
            state: The job as just read: when it has ended before this call, and no call leaves `is_behind`, nothing
                comes after it.

        Raises:
            StoreError: The store is out of reach, and the job has ended: ask again. While it runs there are other
                looks to come.
        """
        self.is_behind = False
        found: list[Piece] = []
        try:
            # An attempt begins a moment before its log is there, so it is looked for until it is.
            ahead = [] if self._place == (state.epoch, state.attempt) else self._ahead()
            if self._place is None and ahead:
                self._open(ahead[-1])
                ahead = []
            left = self._more(found, _CHUNK)
            while ahead and left:
                self._open(ahead.pop(0))
                left = self._more(found, left)
            self.is_behind = not left
        except MissingKey:  # cleaned up
            pass
        except StoreError:
            self.is_behind = bool(found)
            if state.is_terminal and not found:
                raise
        return found

    def _ahead(self) -> list[tuple[int, int]]:
        """The rank's logs after the one that is read."""
        places = _places(self._store, self._keys, self._attempt)
        later = [place for place in places if self._place is None or place > self._place]
        return [place for place in later if self._log(place).exists()]

    def _open(self, place: tuple[int, int]) -> None:
        key = self._keys.log(*place, self._rank)
        self._offset = 0 if self._tail is None else tail_start(self._store, key, self._tail)
        self._place, self._tail = place, None

    def _more(self, found: list[Piece], limit: int) -> int:
        """Reads on in the open log; what is left of the limit."""
        if self._place is None:
            return limit
        data = self._log(self._place).read(self._offset, limit)
        self._offset += len(data)
        if data:
            found.append(Piece(self._place, data))
        return limit - len(data)

    def _log(self, place: tuple[int, int]) -> Growing:
        return Growing(self._store, self._keys.log(*place, self._rank))

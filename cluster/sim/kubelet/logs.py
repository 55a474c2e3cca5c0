"""A container's output as it is kept, each line behind the moment of its first byte, and as it is asked for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

STAMP_BYTES = len("2026-01-01T00:00:00.000000Z ")


class Stamper:
    """Puts a stamp before every line of a stream that comes in pieces."""

    def __init__(self) -> None:
        self._at_start = True

    def stamp(self, piece: bytes, moment: str) -> bytes:
        """A piece as it is to be kept: an unfinished line is kept at once, its rest goes on where it stands."""
        lines = piece.splitlines(keepends=True) if b"\r" not in piece else _split(piece)
        kept = []
        for line in lines:
            if self._at_start:
                kept.append(f"{moment} ".encode())
            kept.append(line)
            self._at_start = line.endswith(b"\n")
        return b"".join(kept)


def _split(piece: bytes) -> list[bytes]:
    """Lines end at a newline alone: a progress bar's carriage returns stay within theirs."""
    *whole, rest = piece.split(b"\n")
    return [line + b"\n" for line in whole] + ([rest] if rest else [])


@dataclass(frozen=True, slots=True)
class LogQuery:
    """What somebody wants of a log.

    Attributes:
        tail: How many of the last lines; all if None.
        since: Only lines from this moment on; "" for all.
        stamps: Whether with their moments.
        limit: How many bytes at most; 0 for all.
        follow: Whether to stay and hear what comes.
        previous: Whether of the run before this one.
    """

    tail: int | None = None
    since: str = ""
    stamps: bool = False
    limit: int = 0
    follow: bool = False
    previous: bool = False

    def last(self, lines: Iterable[bytes]) -> list[bytes]:
        """The lines to begin with."""
        kept = list(lines)
        if self.tail is None:
            return kept
        return kept[-self.tail :] if self.tail > 0 else []


class LogView:
    """What somebody sees of a kept log, piece by piece."""

    def __init__(self, query: LogQuery) -> None:
        self._query = query
        self._left = query.limit
        self._at_start, self._shown = True, True
        self.full = False

    def show(self, line: bytes) -> bytes:
        """A kept line, or the rest of one, as it is shown: b"" if it isn't."""
        seen = line
        if self._at_start:
            moment = line[: STAMP_BYTES - 1].decode(errors="replace")
            self._shown = not self._query.since or moment >= self._query.since
            seen = line if self._query.stamps else line[STAMP_BYTES:]
        self._at_start = line.endswith(b"\n")
        if not self._shown or self.full:
            return b""
        if self._query.limit:
            seen = seen[: self._left]
            self._left -= len(seen)
            self.full = self._left == 0
        return seen


def parse_query(query: Mapping[str, str], now: datetime | None = None) -> LogQuery:
    """What the API server passes on of a request for logs."""
    since = query.get("sinceTime", "").removesuffix("Z")  # kept moments have fractions: "." sorts below "Z"
    if query.get("sinceSeconds"):
        moment = (now or datetime.now(UTC)) - timedelta(seconds=int(query["sinceSeconds"]))
        since = moment.strftime("%Y-%m-%dT%H:%M:%S")
    return LogQuery(
        tail=int(query["tailLines"]) if query.get("tailLines") else None,
        since=since,
        stamps=query.get("timestamps") == "true",
        limit=int(query.get("limitBytes") or 0),
        follow=query.get("follow") == "true",
        previous=query.get("previous") == "true",
    )

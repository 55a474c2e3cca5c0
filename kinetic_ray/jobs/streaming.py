"""The lines of a job's ranks as they come, for programs with an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from dataclasses import dataclass, field

from kinetic_ray.backends.base import Backend
from kinetic_ray.core.state import JobState
from kinetic_ray.errors import JobLost, StoreError, SubmissionError, UsageError
from kinetic_ray.jobs.awaiting import awaited
from kinetic_ray.jobs.logs import LogLine, LogPump, Piece
from kinetic_ray.jobs.patience import patience_with
from kinetic_ray.jobs.watching import LOG_PAUSE, Watch
from kinetic_ray.journal import JobJournal


@dataclass(slots=True)
class _Unended:
    """Cuts one rank's bytes into lines. What an attempt has not ended with a newline is a line as well."""

    rank: int
    _place: tuple[int, int] = (0, 0)
    _rest: bytearray = field(default_factory=bytearray)

    def lines(self, piece: Piece) -> Iterator[LogLine]:
        if piece.place != self._place:
            yield from self.rest()
            self._place = piece.place
        first, newline, more = piece.data.partition(b"\n")
        self._rest += first  # which was looked through already
        if not newline:
            return
        yield from self._taken()
        *whole, last = more.split(b"\n")
        for line in whole:
            yield self._line(line)
        self._rest += last

    def rest(self) -> Iterator[LogLine]:
        """The last line, where it has no newline."""
        if self._rest:
            yield from self._taken()

    def _taken(self) -> Iterator[LogLine]:
        line = self._line(self._rest)
        self._rest = bytearray()
        yield line

    def _line(self, data: bytes | bytearray) -> LogLine:
        return LogLine(self.rank, self._place[1], data.decode("utf-8", "replace"))


class _Reader:
    """The logs of one rank, or of all that are known by now."""

    def __init__(self, journal: JobJournal, rank: int | None) -> None:
        self._journal = journal
        self._rank = rank
        self._ranks: dict[int, tuple[LogPump, _Unended]] = {}
        self.is_behind = False

    def read(self, state: JobState) -> list[LogLine]:
        """The next lines of every rank, a MiB of each at most."""
        self.is_behind = False
        found: list[LogLine] = []
        for rank in [each.rank for each in state.ranks] if self._rank is None else [self._rank]:
            if rank not in self._ranks:
                self._ranks[rank] = LogPump(self._journal.store, self._journal.keys, rank), _Unended(rank)
            pump, cutter = self._ranks[rank]
            try:
                pieces = pump.pieces(state)
            except StoreError:
                if not found:
                    raise
                self.is_behind = True  # what was found comes first
                return found
            found += [line for piece in pieces for line in cutter.lines(piece)]
            self.is_behind |= pump.is_behind
        return found

    def rest(self) -> list[LogLine]:
        """The last lines that have no newline."""
        return [line for _, cutter in self._ranks.values() for line in cutter.rest()]


async def lines_of(journal: JobJournal, backend: Backend, rank: int | None = None) -> AsyncGenerator[LogLine]:
    """Every line of a rank, or of all, until the job has ended or is lost.

    Of what was printed before, the newest attempt comes whole. Each rank's lines come in order, those of different
    ranks as they are found. Looks are taken in threads; none of them lasts.

    Raises:
        UsageError: The job has no such rank.
    """
    with awaited(journal.job_id):
        async with aclosing(_lines_of(journal, backend, rank)) as lines:
            async for line in lines:
                yield line


async def _lines_of(journal: JobJournal, backend: Backend, rank: int | None) -> AsyncGenerator[LogLine]:
    reader, watch = _Reader(journal, rank), Watch(journal, backend, longest=LOG_PAUSE)
    patience = patience_with(journal.job_id)
    is_over = False
    while not is_over or reader.is_behind:
        if not is_over:
            try:
                is_over = (await asyncio.to_thread(watch.look)).is_terminal
            except (JobLost, SubmissionError):
                is_over = True
        _refuse_unknown(journal.job_id, rank, watch.state)
        try:
            lines = await asyncio.to_thread(reader.read, watch.state)
        except StoreError as exc:  # the job has ended: there is no later look that would bring the rest
            await asyncio.sleep(patience.pause(exc))
            reader.is_behind = True
            continue
        for line in lines:
            yield line
        if not is_over and not reader.is_behind:
            await asyncio.sleep(watch.pause)
    for line in reader.rest():
        yield line


def _refuse_unknown(job_id: str, rank: int | None, state: JobState) -> None:
    if rank is not None and state.ranks and not 0 <= rank < len(state.ranks):
        raise UsageError(f"{job_id} has ranks 0 to {len(state.ranks) - 1}, not {rank}")

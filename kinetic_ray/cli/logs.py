"""Printing ranks' logs: what there is, and what comes."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from kinetic_ray import config
from kinetic_ray.cli.exits import ExitCode, Refusal
from kinetic_ray.cli.output import note, print_json
from kinetic_ray.cli.select import Held
from kinetic_ray.core.state import JobState
from kinetic_ray.core.terminal import is_terminal
from kinetic_ray.interrupts import interruptible
from kinetic_ray.jobs.logs import LogPump, find_log, tail_start
from kinetic_ray.jobs.watching import LOG_PAUSE, Watch, until_ended
from kinetic_ray.log_writer import LogWriter
from kinetic_ray.store import Growing
from kinetic_ray.ui.region import Region
from kinetic_ray.ui.stages import stage_of, waits_for

_CHUNK = 1 << 20
_MOST_PARTIALS = 8  # rows that a terminal surely has


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which lines: of one rank or of all (None), the last `tail` ones, of one attempt or of the newest."""

    rank: int | None
    tail: int | None
    attempt: int | None

    def ranks(self, state: JobState) -> list[int]:
        """The ranks by number: of all, those that are known by now."""
        return sorted(rank.rank for rank in state.ranks) if self.rank is None else [self.rank]

    def writer(self, rank: int) -> LogWriter:
        """Where a rank's bytes go."""
        prefix = f"[{rank}] " if self.rank is None else ""
        return LogWriter(sys.stdout, prefix=prefix, color=config.color(), live=not prefix and _moves())


def _moves() -> bool:
    """Whether the cursor of the terminal, where there is one, can move."""
    return config.setting("term") != "dumb"


def print_logs(held: Held, wanted: Wanted, *, as_json: bool) -> None:
    """Prints what there is now.

    Raises:
        Refusal: NOT_FOUND: no such rank or attempt.
    """
    state = held.journal.state()
    keys = {rank: find_log(held.store, held.journal.keys, rank, wanted.attempt) for rank in wanted.ranks(state)}
    missing = [rank for rank, key in keys.items() if key is None]
    _refuse_unknown(held, wanted, state, missing)
    if as_json:
        read = {
            rank: "".join(c.decode("utf-8", "replace") for c in _bytes(held, key, wanted)) for rank, key in keys.items()
        }
        logs = [{"rank": rank, "log": text} for rank, text in read.items()]
        print_json({"job_id": held.job_id, "status": str(state.status), "logs": logs})
        return
    any_line = False
    for rank, key in keys.items():
        writer = wanted.writer(rank)
        for chunk in _bytes(held, key, wanted):
            writer.write(chunk)
            any_line = True
        writer.close()
    if len(missing) == len(keys):
        yet = "" if state.is_terminal else " yet"
        note(f"{held.job_id} has no log{yet}: {state.status}, {stage_of(state)}: {waits_for(state) or state.message}")
    elif not any_line and wanted.tail != 0:
        note(_nothing(held.job_id, wanted, state))


def _nothing(job_id: str, wanted: Wanted, state: JobState) -> str:
    """What is said instead of nothing at all; a job that failed may well have done so on another rank."""
    if wanted.rank is None:
        return f"no rank of {job_id} has printed anything"
    failed = state.failed_rank if wanted.attempt is None else None
    other = f"; rank {failed} failed: kinetic jobs logs {job_id} --rank {failed}"
    return f"rank {wanted.rank} of {job_id} has printed nothing{'' if failed in (None, wanted.rank) else other}"


def _bytes(held: Held, key: str | None, wanted: Wanted) -> Iterator[bytes]:
    if key is None:
        return
    offset = 0 if wanted.tail is None else tail_start(held.store, key, wanted.tail)
    log = Growing(held.store, key)
    while data := log.read(offset, _CHUNK):
        yield data
        offset += len(data)


def _refuse_unknown(held: Held, wanted: Wanted, state: JobState, missing: list[int]) -> None:
    last = max((rank.rank for rank in state.ranks), default=None)
    for rank in missing:
        if last is not None and rank > last:
            raise Refusal(f"{held.job_id} has ranks 0 to {last}, not {rank}", ExitCode.NOT_FOUND, job_id=held.job_id)
        if wanted.attempt is not None:
            what = f"no log of rank {rank} in attempt {wanted.attempt}; it has had {state.attempt} attempts"
            raise Refusal(f"{held.job_id} has {what}", ExitCode.NOT_FOUND, job_id=held.job_id)


def follow_logs(held: Held, wanted: Wanted) -> None:
    """Prints what comes until the job ends; while there is nothing, what it waits for goes to standard error."""
    follower = _Follower(held, wanted)
    with interruptible(held.job_id):
        try:
            until_ended(Watch(held.journal, held.backend, longest=LOG_PAUSE), show=follower.show)
        except BaseException:
            if follower.close():  # the error is to stand on a line of its own
                sys.stderr.write("\n")
            raise
    follower.close()


class _Follower:
    """The ranks' pumps, each with its writer; a rank joins when it is first heard of."""

    def __init__(self, held: Held, wanted: Wanted) -> None:
        self._held = held
        self._wanted = wanted
        self._streams: dict[int, tuple[LogPump, LogWriter]] = {}
        self._partials = _Partials() if wanted.rank is None and is_terminal(sys.stdout) and _moves() else None
        self._told = ""
        self._any = False

    def show(self, state: JobState) -> bool:
        is_behind = False
        _refuse_unknown(self._held, self._wanted, state, self._wanted.ranks(state))
        for rank in self._wanted.ranks(state):
            if rank not in self._streams:
                pump = LogPump(self._held.store, self._held.journal.keys, rank, tail=self._wanted.tail)
                self._streams[rank] = pump, self._wanted.writer(rank)
            pump, writer = self._streams[rank]
            if data := pump.read(state):
                self._any = True
                if self._partials is not None:
                    self._partials.erase()
                writer.write(data)
            is_behind |= pump.is_behind
        if self._partials is not None:
            self._partials.draw({rank: writer.partial for rank, (_, writer) in self._streams.items()})
        self._say_what_it_waits_for(state)
        return is_behind

    def _say_what_it_waits_for(self, state: JobState) -> None:
        waits = ": ".join(part for part in (str(stage_of(state)), waits_for(state)) if part)
        if not self._any and not state.is_terminal and waits != self._told:
            self._told = waits
            note(f"{self._held.job_id} has no log yet; {waits}")

    def close(self) -> bool:
        """Ends the lines that have not ended; whether the last one written has no newline, as its rank left it."""
        if self._partials is not None:
            self._partials.erase()
        for _, writer in self._streams.values():
            writer.close()
        return sum(writer.ends_inside_a_line() for _, writer in self._streams.values()) > 0


class _Partials:
    """On a terminal, below the lines: what each rank has printed of a line that has not ended, such as a bar."""

    def __init__(self) -> None:
        self._region = Region(sys.stdout, color=False)
        self._drawn: list[tuple[str, str]] = []

    def draw(self, partials: Mapping[int, str]) -> None:
        rows = [(f"[{rank}] {text}", "") for rank, text in sorted(partials.items()) if text][:_MOST_PARTIALS]
        if rows != self._drawn:
            self._region.draw(rows) if rows else self._region.erase()
            self._drawn = rows

    def erase(self) -> None:
        self._region.erase()
        self._drawn = []

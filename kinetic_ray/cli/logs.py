"""Printing ranks' logs: what there is, and what comes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass

from kinetic_ray import config
from kinetic_ray.cli.exits import ExitCode, Refusal
from kinetic_ray.cli.output import note, print_json
from kinetic_ray.cli.select import Held
from kinetic_ray.core.state import JobState
from kinetic_ray.jobs.logs import LogPump, find_log, tail_start
from kinetic_ray.jobs.watching import Watch, until_ended
from kinetic_ray.lines import LogWriter
from kinetic_ray.ui.stages import stage_of, waits_for

_CHUNK = 1 << 20


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
        return LogWriter(sys.stdout, prefix=prefix, color=config.color())


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
    while data := held.store.read_range(key, offset, _CHUNK):
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
    try:
        until_ended(Watch(held.journal, held.backend), show=follower.show)
    finally:
        follower.close()


class _Follower:
    """The ranks' pumps, each with its writer; a rank joins when it is first heard of."""

    def __init__(self, held: Held, wanted: Wanted) -> None:
        self._held = held
        self._wanted = wanted
        self._streams: dict[int, tuple[LogPump, LogWriter]] = {}
        self._told = ""
        self._any = False

    def show(self, state: JobState) -> None:
        _refuse_unknown(self._held, self._wanted, state, self._wanted.ranks(state))
        for rank in self._wanted.ranks(state):
            if rank not in self._streams:
                pump = LogPump(self._held.store, self._held.journal.keys, rank, tail=self._wanted.tail)
                self._streams[rank] = pump, self._wanted.writer(rank)
            pump, writer = self._streams[rank]
            if data := pump.read(state):
                self._any = True
                writer.write(data)
        waits = f"{stage_of(state)}: {waits_for(state)}"
        if not self._any and not state.is_terminal and waits != self._told:
            self._told = waits
            note(f"{self._held.job_id} has no log yet; {waits}")

    def close(self) -> None:
        for _, writer in self._streams.values():
            writer.close()

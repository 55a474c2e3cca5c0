"""Waiting for something to become true, with a deadline and a reason in the failure."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from kinetic_ray.core.state import Event, JobState, RankPhase, RankState, Stage, advance
from kinetic_ray.errors import UsageError
from kinetic_ray.jobs import JobHandle
from kinetic_ray.jobs.phases import JobPhase

T = TypeVar("T")

_STAGES = tuple(map(str, Stage))
_RANK_PHASES = (*map(str, RankPhase), "ended")
_PAUSE_S = 0.05


def wait_until(predicate: Callable[[], T], timeout: float = 30.0, what: str = "", every: float = 0.02) -> T:
    """Calls `predicate` until it gives something true, and returns that.

    Args:
        predicate: What to ask.
        timeout: Seconds.
        what: Completes the sentence "waited 30 s for ..." in the failure.
        every: Seconds between two calls.

    Raises:
        AssertionError: It gave nothing true in time; the message ends with what it gave last.

    Example:
        >>> wait_until(lambda: 6 * 7)
        42
    """
    deadline = time.monotonic() + timeout
    pause = threading.Event()
    while True:
        value = predicate()
        if value:
            return value
        if time.monotonic() >= deadline:
            raise AssertionError(f"waited {timeout:g} s for {what or repr(predicate)}; last value: {value!r}")
        pause.wait(every)


def wait_for(job: JobHandle[Any], phase: str, *, rank: int | None = None, timeout: float = 120.0) -> JobPhase:
    """Waits until a job, or a rank of it, has come to a phase, or past it.

    Args:
        job: The job.
        phase: One of the job's own ("queue", "slice", "env", "run", "ended"), or one of a rank's ("fetch", "verify",
            "unpack", "load", "init", "call", "store", "finish"), which all ranks have to come to if none is named.
            With `rank`, "ended" is the rank's own end.
        rank: Which rank.
        timeout: Seconds.

    Returns:
        The job as it is then.

    Raises:
        AssertionError: It didn't come to that in time, or has ended before.
        UsageError: There is no such phase.

    Example:
        >>> job = train.run_async()  # doctest: +SKIP
        >>> wait_for(job, "call", rank=2)  # doctest: +SKIP
    """
    wanted = f"{job.job_id} to come to {phase!r}" + ("" if rank is None else f" on rank {rank}")

    def look() -> bool:
        states = _states(job.events())
        if any(has_reached(state, phase, rank) for state in states):
            return True
        if states and states[-1].is_terminal:
            raise AssertionError(f"waited for {wanted}, but it has ended: {states[-1].reason} {states[-1].message}")
        return False

    wait_until(look, timeout, wanted, _PAUSE_S)
    return job.phase()


def _states(events: Iterable[Event]) -> list[JobState]:
    """What the job has been, one state an event: what it came to and left between two looks counts too."""
    states, state = [], JobState()
    for event in events:
        state = advance(state, 1, event)
        states.append(state)
    return states


def has_reached(state: JobState, phase: str, rank: int | None = None) -> bool:
    """Whether a job, or ranks of it, are in a phase or past it; see :func:`wait_for`.

    Raises:
        UsageError: There is no such phase.
    """
    if rank is None and phase in _STAGES:
        return _STAGES.index(state.stage) >= _STAGES.index(phase) and (phase == "ended" or not state.is_terminal)
    if phase not in _RANK_PHASES:
        known = _RANK_PHASES if rank is not None else (*_STAGES, *_RANK_PHASES[:-1])
        raise UsageError(f"no phase {phase!r}: one of {', '.join(known)}")
    ranks = [one for one in state.ranks if rank in (None, one.rank)]
    return bool(ranks) and all(_rank_has_reached(one, phase) for one in ranks)


def _rank_has_reached(rank: RankState, phase: str) -> bool:
    """A rank that has ended has not come to where it hadn't been."""
    if phase == "ended":
        return rank.ended
    return bool(rank.phase) and _RANK_PHASES.index(rank.phase) >= _RANK_PHASES.index(phase)

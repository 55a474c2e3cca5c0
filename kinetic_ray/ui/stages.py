"""A job's state in words: its stage, what it waits for, its pace, its end."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from kinetic_ray.core.state import BEFORE_CALL, JobState, JobStatus, Progress, RankState, Stage
from kinetic_ray.core.terminal import sanitize
from kinetic_ray.ui.text import format_duration

#: The stages in the order in which users watch them; "submitted" is the start of queueing.
STAGES = (Stage.QUEUE, Stage.SLICE, Stage.ENV, Stage.RUN)
_SHOWN_METRICS = 4
_BAR_CELLS = 24


def stage_of(state: JobState) -> Stage:
    """The stage to show: a job that was only submitted queues."""
    return Stage.QUEUE if state.stage is Stage.SUBMITTED else state.stage


def waits_for(state: JobState) -> str:
    """What the job waits for at its stage, for people; "" where there is nothing to add.

    Example:
        >>> waits_for(JobState(stage=Stage.SLICE, slices=("tpu-v6e-16-0",)))
        'getting tpu-v6e-16-0 ready'
    """
    if state.is_terminal:
        return ""
    words: dict[Stage, Callable[[], str]] = {
        Stage.SUBMITTED: lambda: "waiting for a driver",
        Stage.QUEUE: lambda: "waiting for its turn",
        Stage.SLICE: lambda: f"getting {_names(state.slices)} ready" if state.slices else "",
        Stage.ENV: lambda: _ready(state.ranks),
        Stage.RUN: lambda: _running(state.ranks),
    }
    detail = state.message or words[state.stage]()  # past the queue only a watch has a message: a silent driver
    return f"{detail} (attempt {state.attempt})" if state.attempt > 1 else detail


def ending(state: JobState) -> str:
    """How a job ended, in a few words."""
    word = str(state.status).lower()
    host = "" if state.failed_rank is None or len(state.ranks) < 2 else f", host {state.failed_rank}"
    return f"{word} ({state.reason}{host})" if state.reason and state.status is not JobStatus.SUCCEEDED else word


def _names(slices: tuple[str, ...]) -> str:
    more = f" and {len(slices) - 3} more" if len(slices) > 3 else ""
    return ", ".join(slices[:3]) + more


def _ready(ranks: tuple[RankState, ...]) -> str:
    behind = [rank for rank in ranks if not rank.phase or rank.phase in BEFORE_CALL]
    if not behind:
        return ""
    phase = behind[0].phase or "preparing"
    of = f"{len(ranks) - len(behind)} of {len(ranks)} hosts ready" if len(ranks) > 1 else ""
    return f"{of} (host {behind[0].rank}: {phase})" if of else phase


def _running(ranks: tuple[RankState, ...]) -> str:
    ended = sum(rank.ended for rank in ranks)
    if len(ranks) < 2:
        return ""
    return f"{ended} of {len(ranks)} hosts done" if ended else f"{len(ranks)} hosts"


class Pace:
    """How fast the steps go, from the reports of the last while, and when the last one will be done."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque(maxlen=64)

    def note(self, progress: Progress) -> None:
        if self._seen and progress.step < self._seen[-1][1]:
            self._seen.clear()  # a further attempt resumes from an older step
        if not self._seen or progress.step > self._seen[-1][1]:
            self._seen.append((progress.at, progress.step))

    def per_second(self) -> float | None:
        """Steps a second; None until two reports with time between them are in."""
        if len(self._seen) < 2 or self._seen[-1][0] <= self._seen[0][0]:
            return None
        (then, first), (now, last) = self._seen[0], self._seen[-1]
        return (last - first) / (now - then)

    def eta(self, progress: Progress) -> float | None:
        """Seconds to the last step, None while unknown."""
        pace = self.per_second()
        return None if pace is None or not progress.total else max(progress.total - progress.step, 0) / pace

    def line(self, progress: Progress) -> str:
        """The progress in one line: bar, steps, speed, time left, metrics."""
        parts = [f"step {progress.step}"]
        if progress.total:
            done = min(max(progress.step / progress.total, 0.0), 1.0)
            bar = "#" * round(done * _BAR_CELLS)
            parts = [f"[{bar:.<{_BAR_CELLS}}] {done:4.0%}  step {progress.step}/{progress.total}"]
        if (pace := self.per_second()) is not None:
            parts.append(f"{pace:.3g}/s")
        if (eta := self.eta(progress)) is not None:
            parts.append(f"ETA {format_duration(eta)}")
        parts += [f"{name}={value:.4g}" for name, value in [*progress.metrics.items()][:_SHOWN_METRICS]]
        return sanitize("  ".join(parts), color=False)

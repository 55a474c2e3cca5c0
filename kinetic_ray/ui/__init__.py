"""What a person sees while a job runs: its stages, its progress, its log lines."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TextIO

from kinetic_ray import config
from kinetic_ray.core.noise import Quieted
from kinetic_ray.core.state import JobState, JobStatus, Stage
from kinetic_ray.core.terminal import encodable, is_terminal, sanitize
from kinetic_ray.log_writer import LogWriter
from kinetic_ray.ui.region import Region
from kinetic_ray.ui.stages import STAGES, Pace, ending, stage_of, waits_for
from kinetic_ray.ui.text import format_duration

__all__ = [
    "LiveReporter",
    "LogWriter",
    "PlainReporter",
    "Subject",
    "format_duration",
    "open_reporter",
    "sanitize",
]

_REDRAW = 0.1  # seconds between two drawings
_SHORT_WAIT = 2.0  # seconds in a stage during which what it waits for changes too fast to be told


@dataclass(frozen=True, slots=True)
class Subject:
    """What is being watched."""

    job_id: str
    func_name: str
    accelerator: str = "cpu"


def open_reporter(
    subject: Subject, *, out: TextIO | None = None, err: TextIO | None = None, color: bool = True
) -> LiveReporter | PlainReporter:
    """The reporter that fits the streams: live on a terminal that can move its cursor, one line a stage elsewhere.

    Args:
        subject: What is being watched.
        out: Where the user's log lines go; standard output by default.
        err: Where stages and progress go; standard error by default.
        color: False under NO_COLOR.

    Example:
        >>> import io
        >>> open_reporter(Subject("job-0", "train"), err=io.StringIO()).close()
    """
    out, err = out or sys.stdout, err or sys.stderr
    moves = config.setting("term") != "dumb"
    if is_terminal(err) and moves:
        return LiveReporter(subject, LogWriter(out, color=color), err, color=color)
    live = moves and not is_terminal(err)  # the last row is for the log alone
    return PlainReporter(subject, LogWriter(out, color=color, live=live), err)


class PlainReporter:
    """One line on a stream for every stage, warning and end; what a long stage waits for gets lines of its own."""

    def __init__(
        self, subject: Subject, writer: LogWriter, err: TextIO, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._subject = subject
        self._writer = writer
        self._err = err
        self._clock = clock
        self._quieted = Quieted()
        self._head = f"{subject.job_id} {subject.func_name}"  # the long id on the first line only
        self._stage: Stage | None = None
        self._entered = 0.0
        self._told = ""
        self._warnings = 0
        self._last = JobState()

    def show(self, state: JobState) -> None:
        self._last = state
        for warning in state.warnings[self._warnings :]:
            self._say(f"warning: {warning}")
        self._warnings = len(state.warnings)
        if not state.is_terminal:
            self._show_stage(state)

    def _show_stage(self, state: JobState) -> None:
        stage, is_new = stage_of(state), stage_of(state) is not self._stage
        if is_new:
            self._stage, self._entered = stage, self._clock()
        # The count of ready hosts goes on too fast for lines of its own, other news doesn't.
        detail = waits_for(state) if stage in (Stage.QUEUE, Stage.SLICE) or state.message else ""
        told = f"{stage}: {detail}" if detail else str(stage)
        if is_new or (told != self._told and self._clock() - self._entered >= _SHORT_WAIT):
            self._say(told)
            self._told = told

    def log(self, data: bytes) -> None:
        self._writer.write(self._quieted.passed(data))

    def close(self) -> None:
        self._writer.write(self._quieted.rest())
        self._writer.close()
        if self._last.is_terminal:
            self._say(ending(self._last))

    def _say(self, text: str) -> None:
        line = f"kinetic: {self._head}: {sanitize(text, color=False)}\n"
        self._head = self._subject.func_name
        self._err.write(("\n" if self._writer.ends_inside_a_line() else "") + encodable(line, self._err))
        self._err.flush()


class LiveReporter:
    """A few lines at the bottom of a terminal that are drawn anew, with the log lines scrolling above them."""

    def __init__(
        self,
        subject: Subject,
        writer: LogWriter,
        err: TextIO,
        *,
        color: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._subject = subject
        self._writer = writer
        self._screen = Region(err, color=color)
        self._clock = clock
        self._quieted = Quieted()
        self._state = JobState()
        self._stage = Stage.QUEUE
        self._entered = self._began = clock()
        self._drawn_at = float("-inf")
        self._warnings = 0
        self._pace = Pace()

    def show(self, state: JobState) -> None:
        if stage_of(state) != self._stage:
            self._stage, self._entered = stage_of(state), self._clock()
        self._state = state
        if state.progress is not None:
            self._pace.note(state.progress)
        for warning in state.warnings[self._warnings :]:
            self._screen.print(f"kinetic: warning: {sanitize(warning, color=False)}", "yellow")
            self._drawn_at = float("-inf")
        self._warnings = len(state.warnings)
        if self._clock() - self._drawn_at >= _REDRAW:
            self._draw()

    def log(self, data: bytes) -> None:
        if shown := self._quieted.passed(data):
            self._screen.erase()
            self._writer.write(shown)
            self._draw()

    def close(self) -> None:
        self._screen.erase()
        self._writer.write(self._quieted.rest())
        self._writer.close()
        if self._state.is_terminal:
            good = self._state.status is JobStatus.SUCCEEDED
            took = format_duration(self._clock() - self._began)
            text = f"kinetic: {self._subject.func_name} {ending(self._state)} after {took} ({self._subject.job_id})"
            self._screen.print(sanitize(text, color=False), "green" if good else "red")

    def _draw(self) -> None:
        self._drawn_at = self._clock()
        lines = [(self._writer.partial, "")] if self._writer.partial else []
        lines.append((self._status_line(), "bold"))
        if self._state.progress is not None:
            lines.append((self._pace.line(self._state.progress), "cyan"))
        self._screen.draw(lines)

    def _status_line(self) -> str:
        path = " > ".join(f"[{s}]" if s == self._stage else str(s) for s in STAGES)
        spent = format_duration(self._clock() - self._entered)
        # A narrow terminal cuts the end: what changes comes first.
        parts = (path, waits_for(self._state), spent, self._subject.func_name, self._subject.job_id)
        return sanitize("  ".join(part for part in parts if part), color=False)

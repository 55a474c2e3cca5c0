"""Showing a job to the person who waits for it."""

from __future__ import annotations

from typing import Protocol

from kinetic_ray.core.state import JobState
from kinetic_ray.jobs.logs import LogPump


class Reporter(Protocol):
    """Shows one job to the person who waits for it."""

    def show(self, state: JobState) -> None:
        """Takes the state as just read."""

    def log(self, data: bytes) -> None:
        """Takes the next bytes of the leader's log."""

    def close(self) -> None:
        """Ends the display."""


class Showing(Protocol):
    """What is shown at every look."""

    def __call__(self, state: JobState) -> bool:
        """Takes the state as just read; whether something that is there already was left for the next look."""

    def close(self) -> None:
        """Ends the display."""


class Reporting:
    """Has a reporter show the stages, and what a log has grown by."""

    def __init__(self, reporter: Reporter, pump: LogPump) -> None:
        self._reporter = reporter
        self._pump = pump

    def __call__(self, state: JobState) -> bool:
        self._reporter.log(self._pump.read(state))
        self._reporter.show(state)
        return self._pump.is_behind

    def close(self) -> None:
        self._reporter.close()

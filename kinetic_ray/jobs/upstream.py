"""Arguments of keras-team/kinetic's handle methods, taken under their own names."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from typing import TypedDict

from kinetic_ray import config
from kinetic_ray.core.state import JobState, JobStatus
from kinetic_ray.jobs.logs import LogPump
from kinetic_ray.log_writer import LogWriter

_LOG = logging.getLogger("kinetic_ray")


class CancelKwargs(TypedDict, total=False):
    """Of `cancel()`."""

    cleanup_timeout: float | None
    cleanup_poll_interval: float | None


class CleanupKwargs(TypedDict, total=False):
    """Of `cleanup()`."""

    k8s: bool
    gcs: bool
    cleanup_timeout: float | None
    cleanup_poll_interval: float | None


class ResultKwargs(TypedDict, total=False):
    """Of `result()`."""

    cleanup: bool | None
    cleanup_timeout: float | None
    cleanup_poll_interval: float | None
    stream_logs: bool | None
    on_status_change: Callable[[JobStatus], object] | None


class Shower:
    """What `stream_logs` and `on_status_change` ask to be done at every look at a job.

    Args:
        pump: Of the log that is to be printed; None = of none. A terminal is given no control codes but colours.
        callback: Told every new status.
    """

    def __init__(self, pump: LogPump | None, callback: Callable[[JobStatus], object] | None = None) -> None:
        self._pump = pump
        self._callback = callback
        self._told: JobStatus | None = None
        self._writer: LogWriter | None = None
        if pump is not None and sys.stdout is not None:  # a program may have none
            live = config.setting("term") != "dumb"
            self._writer = LogWriter(sys.stdout, color=config.color(), live=live)

    def __call__(self, state: JobState) -> bool:
        if self._pump is not None and self._writer is not None:
            self._writer.write(self._pump.read(state))
        if self._callback is not None and state.status is not self._told:
            _call(self._callback, state.status)
        self._told = state.status
        return self._pump is not None and self._pump.is_behind

    def close(self) -> None:
        """Ends a line that has not ended."""
        if self._writer is not None:
            self._writer.close()


def shower_of(given: ResultKwargs, pump: LogPump) -> Shower:
    """What `result()` is asked to show while it waits."""
    return Shower(pump if given.get("stream_logs") else None, given.get("on_status_change"))


def _call(callback: Callable[[JobStatus], object], status: JobStatus) -> None:
    try:
        callback(status)
    except Exception:  # noqa: BLE001 - the user's code: as upstream, it can't end the waiting
        _LOG.warning("on_status_change(%s) raised", status, exc_info=True)

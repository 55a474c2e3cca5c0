"""Patience with a store that is away while what an ended job has left is read."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from typing import TypeVar

from kinetic_ray.core.quantities import parse_duration
from kinetic_ray.errors import StoreError
from kinetic_ray.store import MissingKey

_LOG = logging.getLogger("kinetic_ray")

T = TypeVar("T")

#: What reading raises while the store is away.
BLIPS = (StoreError, OSError)
#: Seconds between two tries.
_FIRST_PAUSE, _LONGEST_PAUSE, _GROWTH = 0.02, 5.0, 1.25
_ENDED = "the job has ended, but its records can't be read"
_LONGEST_WAIT = 1e9  # a timeout of infinity is one, too


def waiting_seconds(timeout: float | str | None) -> float | None:
    """A `timeout=` of waiting in seconds: a number, which may be 0, or text such as "90s"; None = without end.

    Raises:
        UsageError: Neither.

    Example:
        >>> waiting_seconds("1h30m"), waiting_seconds(0), waiting_seconds(None)
        (5400.0, 0.0, None)
    """
    if timeout is None:
        return None
    if isinstance(timeout, int | float) and not math.isnan(timeout):
        return min(max(float(timeout), 0.0), _LONGEST_WAIT)
    return parse_duration(timeout, "timeout")


class Patience:
    """With a store that can't be read while the end of a job is: how long until the next try.

    Args:
        job_id: The job.
        deadline: Until when, by `time.monotonic()`; None = without end.
        what: What can't be done meanwhile.
    """

    def __init__(self, job_id: str, deadline: float | None = None, what: str = _ENDED) -> None:
        self._job_id = job_id
        self._deadline = deadline
        self._what = what
        self._pause = 0.0

    def pause_after(self, exc: Exception) -> float:
        """Seconds to wait.

        Raises:
            StoreError: What lacks is lacking for good.
            TimeoutError: The deadline has passed.
        """
        if isinstance(exc, MissingKey):
            raise exc
        if self._deadline is not None and time.monotonic() >= self._deadline:
            raise TimeoutError(f"{self._what} just now: {exc}") from exc
        if not self._pause:
            _LOG.warning("%s: %s just now, trying again: %s", self._job_id, self._what, exc)
        self._pause = min(max(self._pause * _GROWTH, _FIRST_PAUSE), _LONGEST_PAUSE)
        left = self._pause if self._deadline is None else self._deadline - time.monotonic()
        return max(min(self._pause, left), 0.0)


def waited_out(read: Callable[[], T], patience: Patience, blips: tuple[type[Exception], ...] = BLIPS) -> T:
    """Reads what the store has, as often as it takes.

    Args:
        read: Does it.
        patience: For how long.
        blips: Of :data:`BLIPS` those that mean the store, for who does something else as well.

    Raises:
        TimeoutError: See :meth:`Patience.pause_after`.
    """
    while True:
        try:
            return read()
        except blips as exc:
            pause = patience.pause_after(exc)
        time.sleep(pause)

"""Blips: a store or a connection that is away for a moment is tried again, and ends nothing."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TypeVar

from kinetic_ray.errors import StoreError
from kinetic_ray.store import MissingKey

#: Seconds of nothing but failures after which it is no blip.
BUDGET = 120.0
_FIRST_PAUSE, _LONGEST_PAUSE, _GROWTH = 0.1, 5.0, 2.0

_LOG = logging.getLogger(__name__)

T = TypeVar("T")


def is_passing(error: BaseException) -> bool:
    """Whether an error may be gone at the next try; a full disk counts, for people make room."""
    return isinstance(error, (StoreError, OSError)) and not isinstance(error, MissingKey)


class Trouble:
    """One stretch of failures of one thing.

    Example:
        >>> trouble = Trouble(budget=1.0, clock=iter([0.0, 0.5]).__next__)
        >>> trouble.pause(StoreError("away")), trouble.pause(StoreError("still away"))
        (0.1, 0.2)
    """

    def __init__(self, budget: float = BUDGET, clock: Callable[[], float] = time.monotonic) -> None:
        self._budget = budget
        self._clock = clock
        self._since: float | None = None
        self._pause = _FIRST_PAUSE

    @property
    def is_new(self) -> bool:
        """Whether nothing has failed so far: who tells people of trouble tells it once."""
        return self._since is None

    def pause(self, error: BaseException) -> float:
        """Takes a failure; returns the seconds to wait before the next try.

        Raises:
            BaseException: The error itself, where it doesn't pass or has lasted for the whole budget.
        """
        now = self._clock()
        self._since = now if self._since is None else self._since
        left = self._since + self._budget - now
        if not is_passing(error) or left <= 0:
            raise error
        pause, self._pause = self._pause, min(self._pause * _GROWTH, _LONGEST_PAUSE)
        return min(pause, left)

    def over(self) -> None:
        """It has worked: the next failure begins a new stretch."""
        self._since, self._pause = None, _FIRST_PAUSE


def retried(
    act: Callable[[], T],
    budget: float = BUDGET,
    *,
    clock: Callable[[], float] = time.monotonic,
    wait: Callable[[float], object] = time.sleep,
) -> T:
    """Does something that is safe to repeat, again where a blip gets in its way.

    Args:
        act: What to do.
        budget: Seconds until the first of nothing but failures is raised after all.
        clock: Tells seconds.
        wait: Lets them pass.

    Example:
        >>> answers = iter([StoreError("away"), 7])
        >>> def act():
        ...     answer = next(answers)
        ...     if isinstance(answer, Exception):
        ...         raise answer
        ...     return answer
        >>> retried(act, wait=lambda seconds: None)
        7
    """
    trouble = Trouble(budget, clock)
    while True:
        try:
            return act()
        except Exception as error:  # noqa: BLE001 - what doesn't pass is raised on
            is_new = trouble.is_new
            pause = trouble.pause(error)
            if is_new:
                _LOG.warning("the store is away, trying again: %s", error)
            wait(pause)

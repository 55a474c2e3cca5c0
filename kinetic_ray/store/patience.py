"""Blips: a store or a connection that is away for a moment is tried again, and ends nothing."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from typing import NamedTuple, TypeVar

from kinetic_ray.errors import StoreError
from kinetic_ray.store.place import MissingKey

_LOG = logging.getLogger("kinetic_ray")

T = TypeVar("T")

#: Seconds of nothing but failures after which it is no blip.
BUDGET = 120.0
#: What is raised while a store is away.
BLIPS = (StoreError, OSError)


class Rhythm(NamedTuple):
    """Seconds between two tries: the first, the longest, and how fast they grow from one to the other."""

    first: float
    longest: float
    growth: float


_UNHURRIED = Rhythm(0.1, 5.0, 2.0)


def is_passing(error: BaseException) -> bool:
    """Whether an error may be gone at the next try; a full disk counts, for people make room."""
    return isinstance(error, BLIPS) and not isinstance(error, MissingKey)


class Trouble:
    """One stretch of failures of one thing, of which a line is logged.

    Args:
        budget: Seconds until the first of nothing but failures is raised after all.
        clock: Tells seconds.
        what: What is the matter, in a few words.
        rhythm: Of the tries.

    Example:
        >>> trouble = Trouble(budget=1.0, clock=iter([0.0, 0.5]).__next__)
        >>> trouble.pause(StoreError("away")), trouble.pause(StoreError("still away"))
        (0.1, 0.2)
    """

    def __init__(
        self,
        budget: float = BUDGET,
        clock: Callable[[], float] = time.monotonic,
        *,
        what: str = "the store is away",
        rhythm: Rhythm = _UNHURRIED,
    ) -> None:
        self._budget = budget
        self._clock = clock
        self._what = what
        self._rhythm = rhythm
        self._since: float | None = None
        self._pause = rhythm.first

    def pause(self, error: Exception) -> float:
        """Takes a failure; returns the seconds to wait before the next try.

        Raises:
            Exception: The error itself, where it doesn't pass or has lasted for too long.
        """
        if not is_passing(error):
            raise error
        now = self._clock()
        is_new = self._since is None
        if is_new:
            self._since = now
        if (left := self._end() - now) <= 0:
            raise self._last_word(error) from error.__cause__
        if is_new:
            _LOG.warning("%s just now, trying again: %s", self._what, error)
        pause, self._pause = self._pause, min(self._pause * self._rhythm.growth, self._rhythm.longest)
        return min(pause, left)

    def over(self) -> None:
        """It has worked: the next failure begins a new stretch."""
        self._since, self._pause = None, self._rhythm.first

    def _end(self) -> float:
        return math.inf if self._since is None else self._since + self._budget

    def _last_word(self, error: Exception) -> Exception:
        return error


class Until(Trouble):
    """Trouble that is waited out until a deadline, for somebody who waits in front of a screen.

    Args:
        deadline: By the clock; None = without end.
        what: What can't be done meanwhile.
        clock: Tells seconds.
    """

    def __init__(self, deadline: float | None, what: str, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(math.inf, clock, what=what, rhythm=Rhythm(0.02, 5.0, 1.25))
        self._deadline = math.inf if deadline is None else deadline

    def _end(self) -> float:
        return self._deadline

    def _last_word(self, error: Exception) -> Exception:
        return TimeoutError(f"{self._what} just now: {error}")


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
    return waited_out(act, Trouble(budget, clock), wait=wait)


def waited_out(
    act: Callable[[], T],
    trouble: Trouble,
    *,
    blips: tuple[type[Exception], ...] = BLIPS,
    wait: Callable[[float], object] = time.sleep,
) -> T:
    """As :func:`retried`, for as long as `trouble` says.

    Args:
        act: What to do.
        trouble: For how long, and what is raised then.
        blips: Of :data:`BLIPS` those that mean the store, for who does something else as well.
        wait: Lets seconds pass.
    """
    while True:
        try:
            return act()
        except blips as error:
            pause = trouble.pause(error)
        wait(pause)


async def waited_out_aside(act: Callable[[], T], trouble: Trouble) -> T:
    """As :func:`waited_out`, for programs with an event loop: everything is done in threads."""
    import asyncio  # takes its time to be imported, and few need it

    while True:
        try:
            return await asyncio.to_thread(act)
        except BLIPS as error:
            pause = trouble.pause(error)
        await asyncio.sleep(pause)

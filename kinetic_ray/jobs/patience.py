"""How long who waits for a job is willing to, also while its store is away."""

from __future__ import annotations

import math

from kinetic_ray.core.quantities import parse_duration
from kinetic_ray.store.patience import Until

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


def patience_with(job_id: str, deadline: float | None = None, what: str = _ENDED) -> Until:
    """Patience with a store that can't be read while the end of a job is, or not be told something.

    Args:
        job_id: The job.
        deadline: Until when, by `time.monotonic()`; None = without end.
        what: What can't be done meanwhile.
    """
    return Until(deadline, f"{job_id}: {what}")

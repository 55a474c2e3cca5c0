"""What the end of an embedded cluster would cost: it isn't ended over that unless it is told to."""

from __future__ import annotations

from collections.abc import Sequence

_NAMED = 5


def lost_by_an_end(jobs: Sequence[str], processes: int) -> str:
    """What is to be said against an end; "" for nothing.

    Args:
        jobs: Ids of the jobs that have not ended.
        processes: How many processes have joined the cluster, whose refs and actors would be lost.

    Example:
        >>> lost_by_an_end(["job-a"], 0)
        '1 job has not ended (job-a): cancel, or stop with --force, which does'
    """
    if jobs:
        named = f"{', '.join(jobs[:_NAMED])}{', ...' if len(jobs) > _NAMED else ''}"
        return f"{_count(len(jobs), 'job')} not ended ({named}): cancel, or stop with --force, which does"
    if processes:
        joined = _count(processes, "process")
        return f"{joined} joined it for .remote() calls, and would lose them: end that first, or stop with --force"
    return ""


def _count(number: int, noun: str) -> str:
    return f"1 {noun} has" if number == 1 else f"{number} {noun}{'es' if noun.endswith('s') else 's'} have"

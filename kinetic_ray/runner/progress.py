"""Which reported step counts, and which rank holds it up. Pure: the caller brings the clock."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

#: Seconds that a rank may be behind with its reports before it is named.
SILENCE = 60.0


@dataclass(frozen=True, slots=True)
class _Report:
    step: int
    total: int | None
    metrics: Mapping[str, float]


class Progress:
    """The reports of one attempt. A step counts once every rank has reported it or a later one.

    Example:
        >>> progress = Progress(world_size=2)
        >>> progress.add(0, {"step": 3, "metrics": {"loss": 0.5}}, now=0.0)
        []
        >>> progress.add(1, {"step": 4, "metrics": {}}, now=0.1)
        [{'step': 3, 'total': None, 'metrics': {'loss': 0.5}}]
    """

    def __init__(self, world_size: int) -> None:
        self._newest = dict.fromkeys(range(world_size), -1)
        self._behind_since: dict[int, float] = {}
        self._named: set[int] = set()
        self._waiting: list[_Report] = []

    def add(self, rank: int, report: Mapping[str, Any], now: float) -> list[dict[str, Any]]:
        """Takes a report; returns what counts from now on: rank 0's reports of steps that all have reached."""
        step = int(report["step"])
        self._newest[rank] = max(step, self._newest[rank])
        if rank == 0:
            self._waiting.append(_Report(step, report.get("total"), report.get("metrics") or {}))
        self._note_who_is_behind(rank, now)
        reached = min(self._newest.values())
        counts = [r for r in self._waiting if r.step <= reached]
        self._waiting = [r for r in self._waiting if r.step > reached]
        return [{"step": r.step, "total": r.total, "metrics": r.metrics} for r in counts]

    def next_look(self) -> float | None:
        """When :meth:`silent` may have something to say."""
        times = [since for rank, since in self._behind_since.items() if rank not in self._named]
        return min(times) + SILENCE if times else None

    def silent(self, now: float) -> list[str]:
        """A sentence for each rank that has been behind for a minute; each rank is named once."""
        late = [r for r, since in self._behind_since.items() if now - since >= SILENCE and r not in self._named]
        return [self._name(rank) for rank in sorted(late)]

    def at_the_end(self) -> list[str]:
        """A sentence for each rank that never reported while others did, and was not named yet."""
        never = [r for r in self._behind_since if self._newest[r] < 0 and r not in self._named]
        return [self._name(rank) for rank in sorted(never)]

    def _note_who_is_behind(self, heard: int, now: float) -> None:
        furthest = max(self._newest.values())
        for rank, step in self._newest.items():
            if step >= furthest:
                self._behind_since.pop(rank, None)
            elif rank == heard or rank not in self._behind_since:
                self._behind_since[rank] = now

    def _name(self, rank: int) -> str:
        self._named.add(rank)
        furthest, own = max(self._newest.values()), self._newest[rank]
        so_far = f"only step {own}" if own >= 0 else "nothing"
        return (
            f"rank {rank} has reported {so_far} while others reported step {furthest}: "
            "a step counts once every rank has reported it, so call report() on all of them"
        )

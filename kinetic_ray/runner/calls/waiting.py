"""Calls that wait for a gang: in order, by what they need, however many there are. No Ray, no clock."""

from __future__ import annotations

import bisect
from collections.abc import Iterable

from kinetic_ray.runner.calls.errands import Errand
from kinetic_ray.runner.calls.roster import Need


class Waiting:
    """All calls that wait. Those of higher priority are ahead, then those that came first."""

    def __init__(self) -> None:
        self._errands: dict[int, Errand] = {}
        self._needs: dict[int, Need] = {}
        self._lines: dict[str, list[tuple[int, int]]] = {}

    def __len__(self) -> int:
        return len(self._errands)

    def __getitem__(self, number: int) -> Errand:
        return self._errands[number]

    def all(self) -> Iterable[Errand]:
        """In no order."""
        return tuple(self._errands.values())

    def add(self, errand: Errand) -> None:
        """A call begins to wait, or waits again: then it has its old place."""
        need = self._needs[errand.number] = errand.need
        self._errands[errand.number] = errand
        bisect.insort(self._lines.setdefault(need.key, []), (-need.priority, need.number))

    def pop(self, number: int) -> Errand | None:
        """A call waits no more; None where it didn't."""
        errand = self._errands.pop(number, None)
        if errand is None:
            return None
        need = self._needs.pop(number)
        line = self._lines[need.key]
        del line[bisect.bisect_left(line, (-need.priority, number))]
        if not line:
            del self._lines[need.key]
        return errand

    def first_of(self, key: str) -> Errand | None:
        """The call that is first among those that need a gang of a key."""
        line = self._lines.get(key)
        return self._errands[line[0][1]] if line else None

    def told(self) -> Iterable[tuple[Need, str]]:
        """What each call needs, and what it calls; in their order."""
        return [
            (self._needs[number], self._errands[number].order.name)
            for line in self._lines.values()
            for _, number in line
        ]

    def needs(self, most: int) -> list[Need]:
        """What is needed, of each key by the first calls only: who decides looks at no more of them."""
        return [self._needs[number] for line in self._lines.values() for _, number in line[:most]]

"""What is kept for further use, until others that were used later need its place."""

from __future__ import annotations

from typing import Any


class Recent:
    """Things by name, bounded by their number and by their size. The one that was used last always stays.

    Args:
        most: So many.
        most_bytes: Of so many bytes in all.
    """

    def __init__(self, most: int, most_bytes: int) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._bytes = 0
        self._kept: dict[str, tuple[Any, int]] = {}

    def get(self, name: str) -> Any:
        """What was added under a name, which is used now; None where it isn't kept."""
        if name not in self._kept:
            return None
        self._kept[name] = found = self._kept.pop(name)
        return found[0]

    def add(self, name: str, thing: Any, nbytes: int) -> Any:
        """Keeps something in place of what has the name, and gives it back."""
        self._bytes += nbytes - self._kept.pop(name, (None, 0))[1]
        self._kept[name] = (thing, nbytes)
        while len(self._kept) > 1 and (len(self._kept) > self._most or self._bytes > self._most_bytes):
            self._bytes -= self._kept.pop(next(iter(self._kept)))[1]
        return thing

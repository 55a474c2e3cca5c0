"""Keeping an epoch's events in few objects: many small segments become one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kinetic_ray.core.names import JobKeys
from kinetic_ray.core.records import dump_record
from kinetic_ray.store import Store

#: How many segments there may be before they are merged, and how large a merged one grows, in bytes.
_MANY, _FULL = 64, 256 << 10


@dataclass(frozen=True, slots=True)
class _Piece:
    key: str
    first: int
    events: Sequence[Mapping[str, Any]]
    size: int


class Merger:
    """Merges what one driver has written to its epoch.

    A merged part is an object of its own, created before the segments in it go, and these go at the next merge only:
    who lists the folder meanwhile may not see what came since it began, and must not miss both. Whatever is killed
    in between leaves the same events twice, which readers take once.
    """

    def __init__(self, store: Store, keys: JobKeys, epoch: int) -> None:
        self._store = store
        self._keys = keys
        self._epoch = epoch
        self._pieces: list[_Piece] = []  # the last merged part while there is room in it, then segments
        self._replaced: list[str] = []

    def note(self, key: str, first: int, events: Sequence[Mapping[str, Any]], size: int) -> None:
        """Takes a segment that was written; they come in order."""
        self._pieces.append(_Piece(key, first, events, size))

    def merge(self) -> bool:
        """Merges the segments if there are many, and says whether; may be repeated after a failure.

        Raises:
            StoreError: The store refused; nothing is lost.
        """
        if len(self._pieces) < 2 or (len(self._pieces) < _MANY and sum(p.size for p in self._pieces) < _FULL):
            return False
        first, events = self._pieces[0].first, [event for piece in self._pieces for event in piece.events]
        key = self._keys.merged(self._epoch, first, first + len(events) - 1)
        data = dump_record("events", {"first": first, "events": events})
        while self._replaced:  # first, so that a store which refuses that is given no more objects
            self._store.delete(self._replaced[-1])
            self._replaced.pop()
        self._store.create(key, data)
        self._replaced = [piece.key for piece in self._pieces]
        self._pieces = [_Piece(key, first, events, len(data))] if len(data) < _FULL else []
        return True

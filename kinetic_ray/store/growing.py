"""What grows while it is read: a file in a folder store, parts that follow one another in any other.

An object of a bucket never changes, so what is appended there is an object of its own below the key, whose name tells
where it begins and ends: `00007.log/000000000000000-000000000004096`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

from kinetic_ray.store.objects import Store
from kinetic_ray.store.place import MissingKey

_PART = re.compile(r"([0-9]{15})-([0-9]{15})")
_TRIES = 8  # each is lost only to a merge in that very moment


@dataclass(frozen=True, slots=True, order=True)
class Part:
    """Bytes from `start` up to `end`."""

    start: int
    end: int

    @property
    def name(self) -> str:
        return f"{self.start:015d}-{self.end:015d}"


@final
class Growing:
    """One thing that grows, by its key; read in any process, written by one.

    Example:
        >>> from kinetic_ray.store import open_store
        >>> log = Growing(open_store("memory://doc-growing"), "logs/0.log")
        >>> first, second = log.add(0, b"one, "), log.add(5, b"two")
        >>> log.size(), log.read(3), log.read(3, 4)
        (8, b', two', b', tw')
        >>> log.merge([first, second], b"one, two")
        >>> log.read(0)
        b'one, two'
    """

    def __init__(self, store: Store, key: str) -> None:
        self._store = store
        self._key = key

    def exists(self) -> bool:
        return bool(self._parts()) or self._store.exists(self._key)

    def size(self) -> int:
        """Bytes so far.

        Raises:
            MissingKey: It has not begun.
        """
        parts = self._parts()
        return max(part.end for part in parts) if parts else self._store.size(self._key)

    def read(self, offset: int, limit: int | None = None) -> bytes:
        """Bytes from `offset` on, at most `limit`; b"" past the end.

        Raises:
            MissingKey: It has not begun.
        """
        for _ in range(_TRIES):
            parts = self._parts()
            if not parts:
                return self._store.read_range(self._key, offset, limit)
            try:
                return self._read(parts, offset, limit)
            except MissingKey:  # merged with others meanwhile
                continue
        raise MissingKey(f"{self._key} is being removed from the store {self._store.url}")

    def add(self, start: int, data: bytes) -> Part:
        """Adds bytes that follow those before `start`; safe to repeat, also with more of them."""
        part = Part(start, start + len(data))
        self._store.create(self._at(part), data)
        return part

    def merge(self, parts: Sequence[Part], data: bytes) -> None:
        """Puts one part in the place of several that follow one another: fewer are listed faster.

        Args:
            parts: In their order.
            data: All that they hold.
        """
        merged = Part(parts[0].start, parts[-1].end)
        self._store.create(self._at(merged), data)
        for part in parts:
            if part != merged:
                self._store.delete(self._at(part))

    def remove(self) -> None:
        """Removes all of it."""
        self._store.delete_tree(self._key)
        self._store.delete(self._key)

    def _parts(self) -> list[Part]:
        names = (key.rpartition("/")[2] for key in self._store.list(self._key))
        return [Part(int(match[1]), int(match[2])) for name in names if (match := _PART.fullmatch(name))]

    def _read(self, parts: Sequence[Part], offset: int, limit: int | None) -> bytes:
        found: list[bytes] = []
        left = limit
        while left != 0 and (part := _covering(parts, offset)) is not None:
            data = self._store.read_range(self._at(part), offset - part.start, left)
            found.append(data)
            offset += len(data)
            left = None if left is None else left - len(data)
            if not data:  # torn by another program: no use to look again
                break
        return b"".join(found)

    def _at(self, part: Part) -> str:
        return f"{self._key}/{part.name}"


def _covering(parts: Sequence[Part], offset: int) -> Part | None:
    """Of the parts that hold the byte at an offset the one that goes furthest: a merged one and its parts overlap."""
    holding = [part for part in parts if part.start <= offset < part.end]
    return max(holding, key=lambda part: part.end, default=None)

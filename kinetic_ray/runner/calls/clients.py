"""Processes that call: what waits for each to be shown, and which of them have gone. No Ray."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

#: Lines that are kept for a process that doesn't fetch them; then the oldest go.
MAX_LINES = 10_000


@dataclass(slots=True)
class Mailbox:
    """What one process is to be told."""

    lines: deque[list[Any]] = field(default_factory=lambda: deque(maxlen=MAX_LINES))
    recalled: list[str] = field(default_factory=list)
    news: asyncio.Event = field(default_factory=asyncio.Event)
    left: bool = False


class Clients:
    """All of them, in one event loop."""

    def __init__(self) -> None:
        self._boxes: dict[str, Mailbox] = {}
        self._gone: set[str] = set()

    def welcome(self, client: str) -> None:
        """The process has something to do here, also if it has left before."""
        self._gone.discard(client)

    def has_left(self, client: str) -> bool:
        return client in self._gone

    def known(self) -> set[str]:
        """Processes for which something is kept here."""
        return set(self._boxes)

    def say(self, client: str, lines: Sequence[Sequence[Any]]) -> None:
        """Lines for a process's display: [name, rank, where, text]."""
        if client and not self.has_left(client):
            box = self._box(client)
            box.lines.extend(map(list, lines))
            box.news.set()

    def recall(self, client: str, gang: str) -> None:
        """A gang isn't lent to the process any more."""
        if client and not self.has_left(client):
            box = self._box(client)
            box.recalled.append(gang)
            box.news.set()

    async def listen(self, client: str, patience: float) -> dict[str, Any]:
        """What there is, as soon as there is something, or after `patience` seconds."""
        self.welcome(client)
        box = self._box(client)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(box.news.wait(), patience)
        lines, recalled = list(box.lines), list(box.recalled)
        box.lines.clear()
        box.recalled.clear()
        if not box.left:  # then there is never anything to wait for any more
            box.news.clear()
        return {"lines": lines, "recalled": recalled}

    def leave(self, client: str) -> None:
        """The process has gone, and is told nothing any more; one that still listens is answered."""
        self._gone.add(client)
        if (box := self._boxes.pop(client, None)) is not None:
            box.left = True
            box.news.set()

    def _box(self, client: str) -> Mailbox:
        return self._boxes.setdefault(client, Mailbox())

"""Processes that call: what waits for each to be shown, and which of them have gone. No Ray.

Nothing is dropped on the way to a process that listens. What waits for one is bounded: who has more to say waits, and
so does the program that prints it. Of a process that takes nothing for long, what it misses is counted, and told.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

#: Characters that wait for a process, about, and those in one answer.
MOST, ANSWER = 32 << 20, 1 << 18
#: Seconds in which a process must ask for more, before what it has no room for is left out.
PATIENCE = 60.0
#: What a line takes beside its text.
_BESIDE = 64

#: Name, rank, where, text.
Line = list[Any]


@dataclass(slots=True, eq=False)
class Mailbox:
    """What one process is to be told.

    Attributes:
        name: Tells it from one before it.
        number: Of the last answer.
        answer: The last one, until it is known to have come.
        size: Of what waits.
        asked_at: When the process asked last.
        missed: Lines for which there was no room, by what printed them.
        turn: Held by who puts lines, so that they stay in order.
    """

    name: str = field(default_factory=lambda: secrets.token_hex(8))
    number: int = 0
    answer: dict[str, Any] | None = None
    lines: deque[Line] = field(default_factory=deque)
    size: int = 0
    recalled: list[str] = field(default_factory=list)
    asked_at: float = field(default_factory=time.monotonic)
    missed: Counter[tuple[str, int, str]] = field(default_factory=Counter)
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    news: asyncio.Event = field(default_factory=asyncio.Event)
    room: asyncio.Event = field(default_factory=asyncio.Event)
    is_closing: bool = False
    has_left: bool = False

    def put(self, lines: Sequence[Line]) -> None:
        self.lines.extend(lines)
        self.size += sum(len(line[3]) + _BESIDE for line in lines)
        self.news.set()

    def next_answer(self, most: int) -> dict[str, Any]:
        """What waits, or the first of it; empty where nothing does."""
        taken: list[Line] = []
        size = 0
        while self.lines and (not taken or size + len(self.lines[0][3]) + _BESIDE <= most):
            taken.append(self.lines.popleft())
            size += len(taken[-1][3]) + _BESIDE
        recalled, self.recalled = self.recalled, []
        self.size -= size
        self.room.set()
        if not self.lines and not self.is_closing and not self.has_left:
            self.news.clear()
        self.number += bool(taken or recalled)
        answer = {"lines": taken, "recalled": recalled, "box": self.name, "number": self.number}
        if taken or recalled:
            self.answer = answer
        return answer


class Clients:
    """All of them, in one event loop."""

    def __init__(self, *, most: int = MOST, answer: int = ANSWER, patience: float = PATIENCE) -> None:
        """Knows of none.

        Args:
            most: Characters that wait for a process.
            answer: Those in one answer.
            patience: Seconds that one with a full box may take to ask again.
        """
        self._most = most
        self._answer = answer
        self._patience = patience
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

    def behind(self) -> set[str]:
        """Processes for which lines wait. They may have died."""
        return {client for client, box in self._boxes.items() if box.lines}

    async def say(self, client: str, lines: Sequence[Line]) -> None:
        """Lines for a process's display: [name, rank, where, text]. Waits until there is room for more."""
        if not client or self.has_left(client):
            return
        box = self._box(client)
        async with box.turn:
            if await self._has_room(box):
                self._tell_missed(box)
                box.put(lines)
            elif not box.has_left:
                box.missed.update((name, rank, where) for name, rank, where, _ in lines)

    def note(self, client: str, text: str) -> None:
        """A line of kinetic's own."""
        if client and not self.has_left(client):
            self._box(client).put([["", 0, "", text]])

    def recall(self, client: str, gang: str) -> None:
        """A gang isn't lent to the process any more."""
        if client and not self.has_left(client):
            box = self._box(client)
            box.recalled.append(gang)
            box.news.set()

    async def listen(self, client: str, patience: float, got: Sequence[Any] | None = None) -> dict[str, Any]:
        """What there is, as soon as there is something, or after `patience` seconds; see :meth:`Desk.listen`."""
        self.welcome(client)
        box = self._box(client)
        box.asked_at = time.monotonic()
        box.room.set()
        if got is None or tuple(got) == (box.name, box.number):
            box.answer = None
        if not box.lines:
            self._tell_missed(box)
        if box.answer is None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(box.news.wait(), patience)
        box.asked_at = time.monotonic()
        if box.answer is not None:  # it was lost, or whoever asked at the same time has it
            return box.answer
        return box.next_answer(self._answer)

    def hurry(self, client: str) -> None:
        """The process is about to go: it is answered at once from now on."""
        box = self._box(client)
        box.is_closing = True
        box.news.set()

    def leave(self, client: str) -> None:
        """The process has gone, and is told nothing any more; one that still listens is answered."""
        self._gone.add(client)
        if (box := self._boxes.pop(client, None)) is not None:
            box.has_left = True
            box.news.set()
            box.room.set()

    def _box(self, client: str) -> Mailbox:
        return self._boxes.setdefault(client, Mailbox())

    async def _has_room(self, box: Mailbox) -> bool:
        """Waits for it; False where the process has gone, or takes nothing for too long."""
        while box.size >= self._most and not box.has_left:
            left = box.asked_at + self._patience - time.monotonic()
            if left <= 0:
                return False
            box.room.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(box.room.wait(), left)
        return not box.has_left

    def _tell_missed(self, box: Mailbox) -> None:
        if box.missed:
            missed, box.missed = box.missed, Counter()
            box.put([["", 0, "", self._missing(*source, count)] for source, count in missed.items()])

    def _missing(self, name: str, rank: int, where: str, count: int) -> str:
        place = f" {where}" if where else ""
        lines = "1 line is" if count == 1 else f"{count:,} lines are"
        why = f"this process had taken none for {self._patience:g} s"
        return f"kinetic: {lines} not shown of ({name} rank={rank}{place}): {why}"

"""Calls in the order in which they were made: Ray may deliver those of an async actor in another."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field

#: Seconds that a call waits for those that were made before it: one that never comes, cancelled on its way say,
#: must not hold up the others for ever.
PATIENCE = 2.0


@dataclass(eq=False, slots=True)
class Sequence:
    """The numbered calls of every process to one instance. In one event loop."""

    _next: dict[str, int] = field(default_factory=dict)
    _waiting: dict[tuple[str, int], asyncio.Future[None]] = field(default_factory=dict)

    async def enter(self, client: str, number: int, patience: float = PATIENCE) -> None:
        """Returns when it is the call's turn, at the latest after `patience` seconds.

        Whoever comes next is woken no sooner than the caller awaits something else.

        Args:
            client: Who calls.
            number: From 0, by the process's order; less than 0 for calls without a place.
            patience: Seconds.
        """
        if number < 0:
            return
        if number > self._next.get(client, 0):
            turn = self._waiting[client, number] = asyncio.get_running_loop().create_future()
            try:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(turn, patience)
            finally:
                self._waiting.pop((client, number), None)
        self._next[client] = max(self._next.get(client, 0), number + 1)
        following = self._waiting.get((client, self._next[client]))
        if following is not None and not following.done():
            following.set_result(None)

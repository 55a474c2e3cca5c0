"""Gangs of one host, lent to the process that they served last, which then calls the host itself."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from ray.exceptions import RayError

from kinetic_ray.runner.calls.gangs import Gang
from kinetic_ray.runner.calls.roster import Phase

#: How often a lent gang is asked whether it is in use.
_GLANCE = 0.5

Lent = dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class Hooks:
    """What lending needs of its surroundings.

    Attributes:
        recalled: Told of a process and the gang that isn't lent to it any more.
        release: Gives a gang's lease back.
        turn: Has everything looked at again.
        spawn: Runs something beside.
    """

    recalled: Callable[[str, str], None]
    release: Callable[[Gang], None]
    turn: Callable[[], None]
    spawn: Callable[[Coroutine[Any, Any, None]], object]


class Lending:
    """Who would borrow, and what is lent. All in one event loop."""

    def __init__(self, hooks: Hooks) -> None:
        self._hooks = hooks
        self._borrowers: dict[tuple[str, str], asyncio.Future[Lent]] = {}

    @property
    def borrowers(self) -> frozenset[tuple[str, str]]:
        """Processes that would borrow a gang, with its key."""
        return frozenset(self._borrowers)

    async def borrow(self, client: str, key: str, patience: float) -> Lent:
        """A gang for the process alone, once there is one that is idle after serving it."""
        if (client, key) in self._borrowers:
            return None
        asked = self._borrowers[client, key] = asyncio.get_running_loop().create_future()
        self._hooks.turn()
        try:
            await asyncio.wait({asked}, timeout=patience)
            return asked.result() if asked.done() else None
        finally:
            asked.cancel()  # what is lent after this is taken back
            if self._borrowers.get((client, key)) is asked:
                del self._borrowers[client, key]

    def forget(self, client: str) -> None:
        """The process has gone, and borrows nothing any more."""
        for (borrower, _), asked in list(self._borrowers.items()):
            if borrower == client and not asked.done():
                asked.set_result(None)

    def lend(self, gang: Gang, client: str) -> None:
        """Lends an idle gang to one of the borrowers."""
        asked = self._borrowers.pop((client, gang.key))
        gang.enter(Phase.LENT)
        self._hooks.spawn(self._lend(gang, client, asked))

    def recall(self, gang: Gang, *, is_gone: bool = False) -> None:
        """Takes a lent gang back.

        Args:
            gang: It.
            is_gone: Whether the process that has it is gone, so that nobody waits for what still runs.
        """
        if not is_gone:
            self._hooks.recalled(gang.client, gang.gang_id)
        gang.enter(Phase.RECALLED)
        self._hooks.spawn(self._recall(gang, is_gone=is_gone))

    def abandon(self, gang: Gang) -> None:
        """The process that a gang is being taken back from is gone: nobody waits for what still runs there."""
        self._hooks.spawn(self._abandon(gang))

    async def _abandon(self, gang: Gang) -> None:
        with contextlib.suppress(RayError):  # the recall that is on its way meets the same
            await gang.end_if_used(lambda: gang.phase is Phase.RECALLED)

    async def _lend(self, gang: Gang, client: str, asked: asyncio.Future[Lent]) -> None:
        try:
            async with gang.door:
                await gang.lend(client)
        except RayError:
            gang.is_broken = True
            if not asked.done():
                asked.set_result(None)
            if gang.phase is Phase.LENT:
                self._hooks.release(gang)
            return
        if gang.phase is not Phase.LENT:  # recalled already, or lost
            if not asked.done():
                asked.set_result(None)
        elif asked.done():  # the borrower has gone meanwhile
            self.recall(gang)
        else:
            asked.set_result({"gang": gang.gang_id, "agent": gang.agent.actor})
            await self._glance(gang, gang.lends)

    async def _glance(self, gang: Gang, lends: int) -> None:
        """Keeps an eye on when it was last used, for as long as it is lent this time."""
        while True:
            await asyncio.sleep(_GLANCE)
            if gang.phase is not Phase.LENT or gang.lends != lends:
                return
            try:
                unused_for = await gang.unused_for()
            except RayError:
                return  # its end is heard of in another way
            gang.since = max(gang.since, time.monotonic() - unused_for)
            self._hooks.turn()

    async def _recall(self, gang: Gang, *, is_gone: bool) -> None:
        try:
            async with gang.door:
                if is_gone:
                    await gang.end_if_used()
                await gang.recall()
        except RayError:
            gang.is_broken = True
        if gang.phase is not Phase.RECALLED:
            return
        if gang.is_broken:
            self._hooks.release(gang)
        else:
            gang.enter(Phase.IDLE)
            self._hooks.turn()

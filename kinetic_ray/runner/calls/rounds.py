"""One call on all ranks of a gang: hears them, ends those that a failure leaves hanging, looks for the cause."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from ray.exceptions import RayActorError

from kinetic_ray.core.state import Reason
from kinetic_ray.runner.calls.agents import Agent
from kinetic_ray.runner.calls.failures import CallFailure
from kinetic_ray.runner.calls.packing import Packed
from kinetic_ray.runner.calls.verdict import CallBook
from kinetic_ray.runner.inbox import HostLost
from kinetic_ray.runner.slices import Host, node_is_alive

#: How long the last words of ranks that were ended are waited for.
_LAST_WORDS = 2.0


class Round:
    """One call on all ranks.

    Attributes:
        book: How they stand.
    """

    def __init__(
        self,
        hosts: Sequence[Host],
        agents: Sequence[Agent],
        end_children: Callable[[str, str], Awaitable[None]],
        told: Callable[[BaseException, int], CallFailure],
    ) -> None:
        """Begins.

        Args:
            hosts: By rank.
            agents: Likewise.
            end_children: Ends the children of all ranks, for a reason and with a message.
            told: What an error that an agent has answered with says of a rank.
        """
        self.book = CallBook(hosts)
        self._agents = tuple(agents)
        self._end_children = end_children
        self._told = told
        self._news = asyncio.Event()
        self._values: dict[int, Packed] = {}

    def expect_loss(self, node_id: str) -> None:
        """A host is about to be taken away."""
        self.book.expect_loss(node_id)
        self._news.set()

    def lose_host(self, lost: HostLost) -> None:
        """A host is gone."""
        self.book.lose_host(lost)
        self._news.set()

    def lose_agent(self, rank: int, why: str) -> None:
        """The agent of a rank is gone."""
        self.book.lose_agent(rank, why)
        self._news.set()

    async def hear(self, calls: Sequence[Any]) -> dict[int, Packed]:
        """Hears all ranks until they have ended. After a failure they are given some time, then they are ended.

        Args:
            calls: Refs of their values, by rank.
        """
        answers = {asyncio.ensure_future(_answer(call)): rank for rank, call in enumerate(calls)}
        failed_at = ended_at = 0.0
        while not self.book.is_settled:
            until = None
            if self.book.has_failed:
                failed_at = failed_at or time.monotonic()
                until = ended_at + _LAST_WORDS if ended_at else failed_at + self.book.patience
            if until is not None and time.monotonic() >= until:
                if ended_at or not self.book.running:
                    break
                await self._end_children(str(Reason.CANCELLED), "stopped with the others")
                ended_at = time.monotonic()
                continue
            await self._wait(answers, until)
            for answer in [one for one in answers if one.done()]:
                self._take(answers.pop(answer), answer, after_end=bool(ended_at))
        if self.book.has_failed:
            await self._look_around()
            if not self.book.keeps_children and not ended_at:
                await self._end_children(str(Reason.CANCELLED), "stopped with the others")
        return self._values

    async def _wait(self, answers: dict[asyncio.Task[Packed], int], until: float | None) -> None:
        seconds = None if until in (None, math.inf) else max(0.0, until - time.monotonic())
        self._news.clear()
        news = asyncio.ensure_future(self._news.wait())
        try:
            await asyncio.wait({*answers, news}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            news.cancel()

    def _take(self, rank: int, answer: asyncio.Task[Packed], *, after_end: bool) -> None:
        error = answer.exception()
        if error is None:
            self._values[rank] = answer.result()
            self.book.succeed(rank)
        elif isinstance(error, RayActorError):
            self._agents[rank].kill()  # one that only can't be reached must not go on with it either
            self.book.lose_agent(rank, last_line(error))
        else:
            self.book.fail(rank, self._told(error, rank), after_end=after_end)

    async def _look_around(self) -> None:
        for host in self.book.unsure():
            if not await asyncio.to_thread(node_is_alive, host.node_id):
                self.book.lose_host(HostLost(host.node_id, host.slice_name, host.worker_id, "Silent"))


def last_line(error: BaseException) -> str:
    """An error in one line; of a Ray task's error that is the line under the remote traceback."""
    lines = str(error).strip().splitlines()
    return lines[-1] if lines else type(error).__name__


async def _answer(ref: Any) -> Packed:
    value: Packed = await ref
    return value

"""The desk as the broker's client: asks for leases, gives them back, hears which are wanted."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any

from ray.exceptions import RayError, RayTaskError

from kinetic_ray.runner.broker import find_broker
from kinetic_ray.runner.queue import Lease, Slice, Ticket

_POLL = 30.0
#: How often it is asked who waits, while a lease is wanted.
_ATTENTIVE = 1.0
_AGAIN = 0.5
#: A broker that answers, but with an error of its own, is asked so often; one that is away, as long as it takes.
TRIES = 4
_LOG = logging.getLogger(__name__)


class Refused(Exception):
    """The broker will never grant it; says why."""


class Asks:
    """Speaks to the broker, in one event loop."""

    def __init__(self, supervisor: str, find: Callable[[str], Any] = find_broker, again: float = _AGAIN) -> None:
        """Asks nothing yet.

        Args:
            supervisor: The cluster's.
            find: Gives the broker's handle; blocks.
            again: Seconds after which it is tried again.
        """
        self._supervisor = supervisor
        self._find_broker = find
        self._again = again
        self._broker: Any = None
        self._undoing: set[asyncio.Future[None]] = set()

    async def acquire(self, ticket: Ticket, on_reason: Callable[[str], None]) -> Lease:
        """Waits for a lease, as long as it takes.

        Raises:
            Refused: It can't be had, or the broker fails again and again.
        """
        seen, faults = "", 0
        asked: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        asked.set_result(None)
        while True:
            try:
                broker = await self._find()
                asked = asyncio.ensure_future(_answer(broker.acquire.remote(ticket.to_dict(), seen, _POLL)))
                answer = await asyncio.shield(asked)
            except asyncio.CancelledError:
                self._undo(asked, ticket)
                raise
            except RayError as exc:
                if (faults := _faults(exc, faults)) >= TRIES:
                    raise Refused(f"the slice broker fails: {_words(exc)}") from exc
                await self._lose(exc)
                continue
            faults = 0
            if answer["state"] == "granted":
                slices = tuple(Slice(one["name"], tuple(one["nodes"])) for one in answer["slices"])
                return Lease(ticket, slices)
            if answer["state"] != "waiting":
                raise Refused(answer.get("reason") or "something newer holds its place in the queue")
            seen = answer["reason"]
            on_reason(seen)

    def _undo(self, asked: asyncio.Future[Any], ticket: Ticket) -> None:
        """Ray may deliver a release before the acquire that it was sent after: what that comes to goes back as well."""

        async def give_back() -> None:
            await asyncio.wait({asked})
            asked.exception()
            await self.release(ticket.job_id, ticket.epoch)

        task = asyncio.ensure_future(give_back())
        self._undoing.add(task)
        task.add_done_callback(self._undoing.discard)

    async def release(self, holder: str, epoch: int) -> None:
        """Gives back what a gang holds or waits for; doesn't return before the broker knows, unless it fails at it.

        A lease whose groups are gone the broker ends by itself.
        """
        faults = 0
        while True:
            try:
                broker = await self._find()
                await broker.release.remote(holder, epoch)
            except RayError as exc:
                if (faults := _faults(exc, faults)) >= TRIES:
                    _LOG.error("%s could not be given back: the slice broker fails: %s", holder, _words(exc))
                    return
                await self._lose(exc)
            else:
                return

    async def release_strays(self, kind: str) -> None:
        """Gives back all leases of holders whose ids begin so: those of a desk that was before this one."""
        broker = await self._find()
        for one in (await self._snapshot(broker))["leases"]:
            if str(one["holder"]).startswith(kind):
                await self.release(one["holder"], 2**31)

    async def follow_wanted(self, tell: Callable[[list[str], set[str]], None]) -> None:
        """Tells the ids of the leases that are wanted, and of all that wait, whenever they change; never returns."""
        seen: list[str] = []
        while True:
            try:
                broker = await self._find()
                seen = await broker.wanted.remote(_ATTENTIVE if seen else _POLL, seen)
                waiting = (await self._snapshot(broker))["queue"] if seen else []
            except RayError as exc:
                seen = []
                await self._lose(exc)
                continue
            tell(seen, {one["holder"] for one in waiting})

    async def _snapshot(self, broker: Any) -> Mapping[str, Any]:
        told: Mapping[str, Any] = await broker.snapshot.remote()
        return told

    async def _find(self) -> Any:
        if self._broker is None:
            self._broker = await asyncio.to_thread(self._find_broker, self._supervisor)
        return self._broker

    async def _lose(self, exc: RayError) -> None:
        """It restarts, and keeps our place no longer than it lived."""
        _LOG.warning("the slice broker %s: %s", "fails" if isinstance(exc, RayTaskError) else "is away", _words(exc))
        self._broker = None
        await asyncio.sleep(self._again)


def _faults(exc: RayError, before: int) -> int:
    """How often in succession the broker has answered with an error of its own; one that is away has none."""
    return before + 1 if isinstance(exc, RayTaskError) else 0


def _words(exc: RayError) -> str:
    cause = exc.cause if isinstance(exc, RayTaskError) else exc
    return f"{type(cause).__name__}: {cause}"


async def _answer(ref: Any) -> Any:
    return await ref

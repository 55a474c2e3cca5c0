"""Calls in the desk's hands, the code that they bring, and whether their arguments are there yet."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import ray

from kinetic_ray.core.names import make_id
from kinetic_ray.runner.calls.packing import Packed, PackedList
from kinetic_ray.runner.calls.recent import Recent
from kinetic_ray.runner.calls.roster import Need
from kinetic_ray.runner.calls.wish import Order, Wish

#: How often an errand is begun anew whose gang was lost before any rank had its call.
TRIES = 3
#: Functions, and archives, whose refs are remembered, and the bytes of each.
_REMEMBERED, _MOST_BYTES = 16, 1 << 30
#: Seconds that a nested call may wait for a slice if nothing is said: what it waits for may wait for its caller's.
_NESTED = 600.0
_LOOK = 0.05

Value = Packed | PackedList


@dataclass(frozen=True, slots=True)
class Code:
    """Refs of what a call runs; None for what was not brought.

    Attributes:
        function: Of the packed function or class.
        archive: Of the project's archive.
    """

    function: Any = None
    archive: Any = None


@dataclass(eq=False, slots=True)
class Errand:
    """One call, from its arrival to its value.

    Attributes:
        number: By arrival.
        order: What was ordered.
        told: The order as it came.
        code: What it runs.
        packed: Its arguments, or a ref of them.
        done: Gets the value.
        gang: Who serves it, "" while it waits.
        tries: How often it was begun.
        place: Of a method's call, among those of its process; less than 0 where that doesn't matter.
    """

    number: int
    order: Order
    told: bytes = field(repr=False)
    code: Code
    packed: Any
    done: asyncio.Future[Value]
    gang: str = ""
    tries: int = 0
    place: int = -1

    @property
    def patience(self) -> float | None:
        """Seconds that it may wait for a gang; None = as long as it takes."""
        if self.order.capacity_timeout is not None:
            return self.order.capacity_timeout
        return _NESTED if self.order.ancestors and self.order.wish.num_slices else None

    @property
    def need(self) -> Need:
        return Need(self.number, *keys_of(self.told), self.order.client, self.order.priority)


@lru_cache(maxsize=1024)
def read_order(told: bytes) -> Order:
    """An order as it came; the same bytes are read once."""
    return Order.from_bytes(told)


@lru_cache(maxsize=1024)
def keys_of(told: bytes) -> tuple[str, str]:
    """What a gang must be made for to serve an order, and the same without the code.

    Nested ones hold leases that others have no right to.
    """
    order = read_order(told)
    stem = Wish(**{**order.wish.to_dict(), "bundle": "", "sys_path": (), "cwd": ".", "main": None})
    nested = "/nested" if order.ancestors else ""
    return order.wish.key + nested, stem.key + nested


@dataclass(slots=True)
class CodeMemory:
    """Refs of code by digest, so that a call that was passed on needn't bring it again."""

    _functions: Recent = field(default_factory=lambda: Recent(_REMEMBERED, _MOST_BYTES))
    _archives: Recent = field(default_factory=lambda: Recent(_REMEMBERED, _MOST_BYTES))

    def complete(self, order: Order, code: Sequence[Any]) -> Code:
        """The code of an order: what was brought, else what is remembered."""
        function, archive = (*code, None, None)[:2]
        of_function, of_archive = order.sizes
        return Code(
            _remembered(self._functions, order.function, function, of_function),
            _remembered(self._archives, order.wish.bundle, archive, of_archive),
        )


def _remembered(table: Recent, digest: str, ref: Any, nbytes: int) -> Any:
    if ref is None or not digest:
        return table.get(digest) if ref is None else ref
    return table.add(digest, ref, nbytes)


def new_gang_id() -> str:
    """As a job's id, so that the broker can tell who came first."""
    return f"call-{make_id('job', time.time_ns() // 1_000_000, secrets.token_bytes(10)).removeprefix('job-')}"


@dataclass(eq=False, slots=True)
class _Awaited:
    """A ref that calls wait for."""

    there: asyncio.Future[None]
    waiters: int = 0


class Readiness:
    """Waits for refs without fetching their values. One thread for all of them, however many there are."""

    def __init__(self, wait: Callable[..., tuple[list[Any], list[Any]]] = ray.wait) -> None:
        self._wait = wait
        self._waiting: dict[Any, _Awaited] = {}
        self._looking: asyncio.Task[None] | None = None

    async def wait(self, refs: Sequence[Any]) -> None:
        """Returns when all are there, or have failed."""
        loop = asyncio.get_running_loop()
        for ref in refs:
            known = self._waiting.get(ref)
            if known is None:
                known = self._waiting[ref] = _Awaited(loop.create_future())
            if self._looking is None or self._looking.done():
                self._looking = loop.create_task(self._look())
            known.waiters += 1
            try:
                await asyncio.shield(known.there)
            finally:
                known.waiters -= 1
                if not known.waiters and self._waiting.get(ref) is known:  # it may never come
                    del self._waiting[ref]

    async def _look(self) -> None:
        while self._waiting:
            refs = list(self._waiting)
            ready, _ = await asyncio.to_thread(self._wait, refs, num_returns=1, timeout=_LOOK, fetch_local=False)
            if ready:  # with the others that are there as well
                ready, _ = await asyncio.to_thread(
                    self._wait, refs, num_returns=len(refs), timeout=0, fetch_local=False
                )
            for ref in ready:
                known = self._waiting.pop(ref, None)
                if known is not None and not known.there.done():
                    known.there.set_result(None)

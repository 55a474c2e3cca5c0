"""The broker's asking for hosts: for each ticket that waits for slices, until it waits no more."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Executor
from functools import partial
from typing import ParamSpec, TypeVar

from kinetic_ray.errors import KineticError, SubmissionError
from kinetic_ray.runner.ledger import Ledger
from kinetic_ray.runner.queue import CPU, Slice, Ticket, demand, lent
from kinetic_ray.runner.scaling import RETRY, NeverFits, Offer, Scaler
from kinetic_ray.runner.thrift import Patience, start_after
from kinetic_ray.runner.yielding import Kind

#: A scaler that takes longer than this is starting hosts, which those that wait are told.
_SHORT = 0.2
_NO_END = 3600.0
#: Starts that may fail one after the other until a job that wants these hosts ends.
_MOST_FAILED_STARTS = 3

Serve = Callable[[Mapping[tuple[str, int], tuple[Slice, ...]]], Awaitable[None]]
P = ParamSpec("P")
R = TypeVar("R")
_LOG = logging.getLogger(__name__)


class Bell:
    """Wakes who waits for something in the books.

    Attributes:
        changes: Counts what may have made room, after which an old answer of the scaler no longer stands.
    """

    def __init__(self) -> None:
        self.changes = 0
        self._changed = asyncio.Condition()

    async def ring(self) -> None:
        """Whoever waits looks again."""
        async with self._changed:
            self._changed.notify_all()

    async def wait_for(self, predicate: Callable[[], bool], patience: float) -> None:
        """Returns when something is true, or after so many seconds."""
        await asyncio.sleep(0)  # others have their turn, also where it is true already
        # Not asyncio.wait_for: it overlooks an end of its task that comes together with what it waits for.
        with contextlib.suppress(TimeoutError):
            async with self._changed, asyncio.timeout(patience):
                await self._changed.wait_for(predicate)


class Asking:
    """All questions to one scaler.

    Attributes:
        lost_nodes: Nodes that are gone; a slice with one of them isn't granted.
        told: The names of leased slices that the scaler has heard last: every question tells of them too, and one that
            was slow tells of old ones.
    """

    def __init__(
        self, scaler: Scaler, threads: Executor, ledger: Ledger, bell: Bell, serve: Serve, patience: Patience
    ) -> None:
        """Asks for nobody yet.

        Args:
            scaler: It is asked in threads.
            threads: These.
            ledger: Who waits.
            bell: Tells of changes.
            serve: Called with what the scaler has offered.
            patience: How long hosts may be spared.
        """
        self.lost_nodes: set[str] = set()
        self.told: tuple[str, ...] = ()
        self._scaler = scaler
        self._threads = threads
        self._ledger = ledger
        self._bell = bell
        self._serve = serve
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._background: asyncio.Future[None] | None = None
        self._patience = patience
        self._on_demand = True  # until the scaler tells otherwise, which it does before anybody waits for long
        self._start_takes: dict[Kind, float] = {}
        self._failed_starts: dict[str, int] = {}

    def begin(self, ticket: Ticket) -> None:
        """Asks for a ticket's sake until it has left the queue; does nothing for one that waits for no slice."""
        before = self._tasks.get(ticket.job_id)
        if ticket.accelerator == CPU or ticket not in self._ledger.queue or (before and not before.done()):
            return
        asking = asyncio.create_task(self._ask_while_waiting(ticket.job_id))
        self._tasks[ticket.job_id] = asking
        asking.add_done_callback(partial(self._asked, ticket.job_id))

    def _asked(self, job_id: str, asking: asyncio.Task[None]) -> None:
        """A ticket is not asked for any more; if that is a fault of ours, its job must not wait for ever."""
        if self._tasks.get(job_id) is asking:
            del self._tasks[job_id]
            self._failed_starts.pop(job_id, None)
        if asking.cancelled() or (error := asking.exception()) is None:
            return
        _LOG.error("asking for hosts for %s broke off", job_id, exc_info=error)
        self._ledger.refuse(job_id, f"the slice broker could not ask for hosts: {type(error).__name__}: {error}")
        self._bell.changes += 1
        self._background = asyncio.ensure_future(self._serve({}))

    async def _ask_while_waiting(self, job_id: str) -> None:
        """Asks the scaler for a ticket's sake, again after every change, until the ticket has left the queue."""
        clock = asyncio.get_running_loop().time
        since, wait = clock(), self._start_after(job_id)
        while self._waits(job_id):
            seen = self._bell.changes
            starts_at = math.inf if wait is None else since + wait
            may_start = clock() >= starts_at
            patience = await self._ask(job_id, start=may_start)
            if not may_start:
                patience = min(patience, max(0.0, starts_at - clock()))
            await self._bell.wait_for(partial(self._worth_another_look, job_id, seen, wait), patience)
            if (now := self._start_after(job_id)) != wait:
                since, wait = clock(), now

    def _start_after(self, job_id: str) -> float | None:
        ticket = self._ledger.waiting(job_id)
        if ticket is None:
            return None
        books, takes = self._ledger, self._start_takes.get(ticket.kind, 0.0)
        return start_after(
            ticket, books.queue, books.leases, self._patience, on_demand=self._on_demand, start_takes=takes
        )

    def _worth_another_look(self, job_id: str, seen: int, wait: float | None) -> bool:
        return self._has_changed(job_id, seen) or self._start_after(job_id) != wait

    def _has_changed(self, job_id: str, seen: int) -> bool:
        return self._bell.changes != seen or not self._waits(job_id)

    async def _ask(self, job_id: str, *, start: bool) -> float:
        """One question to the scaler, one round of grants; returns how long its answer may stand.

        One that starts nothing says nothing of hosts that are missing, nor that others are in the way.
        """
        ledger, ticket = self._ledger, self._ledger.waiting(job_id)
        assert ticket is not None
        try:
            offer = await (self._patiently(ticket) if start else self._offer(ticket, start=False))
            if offer is None:
                return RETRY
        except NeverFits as exc:
            return await self._refuse(job_id, str(exc))
        except (KineticError, OSError) as exc:
            if isinstance(exc, SubmissionError) and (told := self._start_failed(job_id, exc)):
                return await self._refuse(job_id, told)
            ledger.note(ticket.kind, f"no hosts for now: {exc}")
            ledger.keep_waiting(job_id)
            await self._serve({})
            return RETRY
        if start:
            self._failed_starts.pop(job_id, None)
        alive = tuple(one for one in offer.slices if not self.lost_nodes & set(one.nodes))
        if start:
            ledger.note(ticket.kind, offer.note)
        elif not offer.slices:
            self._on_demand = offer.shared
        ledger.offered(ticket, alive, stuck=start and offer.shared)
        await self._serve({ticket.kind: alive})
        return _NO_END if len(alive) == len(offer.slices) else RETRY

    async def _refuse(self, job_id: str, why: str) -> float:
        self._ledger.refuse(job_id, why)
        self._bell.changes += 1  # those behind it had their offers while they were held up
        await self._serve({})
        return RETRY

    def _start_failed(self, job_id: str, exc: SubmissionError) -> str:
        """What to tell a job whose hosts have failed to start too often in a row; "" while it may still come right.

        A supervisor that is away, and hosts that are all in use, are no failed starts: these are waited for.
        """
        failed = self._failed_starts[job_id] = self._failed_starts.get(job_id, 0) + 1
        return "" if failed < _MOST_FAILED_STARTS else f"its hosts failed to start {failed} times in a row: {exc}"

    async def _patiently(self, ticket: Ticket) -> Offer | None:
        """An offer; if it takes long, hosts are being started, and those that wait are told.

        Returns:
            It; None where the ticket was served meanwhile with what others gave back, or has left.
        """
        began = time.monotonic()
        asking = asyncio.create_task(self._offer(ticket, start=True))
        await asyncio.wait({asking}, timeout=_SHORT)
        if not asking.done():
            self._ledger.note(ticket.kind, "starting its hosts")
            self._ledger.keep_waiting(ticket.job_id)
            await self._serve({})
            looking = asyncio.create_task(self._look_meanwhile(ticket.job_id))
            await asyncio.wait({asking, looking}, return_when=asyncio.FIRST_COMPLETED)
            looking.cancel()
            if not asking.done():
                asking.add_done_callback(_forget)  # what it starts is there for the next
                return None
            self._start_takes[ticket.kind] = time.monotonic() - began
        return await asking

    async def _look_meanwhile(self, job_id: str) -> None:
        """While hosts are starting: what others give back is served at once; returns when the ticket has left."""
        while True:
            seen = self._bell.changes
            await self._bell.wait_for(partial(self._has_changed, job_id, seen), _NO_END)
            if not self._waits(job_id):
                return
            await self._ask(job_id, start=False)

    def _waits(self, job_id: str) -> bool:
        return self._ledger.waiting(job_id) is not None

    async def _check_nested(self, ticket: Ticket) -> None:
        """What a nested call wants must fit beside what those hold who wait for it."""
        held = lent(ticket, self._ledger.leases)
        if not held:
            return
        try:
            await self._in_thread(self._scaler.check, ticket.kind, ticket.slices + held)
        except NeverFits as exc:
            text = f"{ticket.wish} for a nested call, beside the {held} that its callers hold until it returns: {exc}"
            raise NeverFits(text) from exc

    async def _offer(self, ticket: Ticket, *, start: bool) -> Offer:
        """Asks for enough for all up to this ticket, so that hosts for several start at once; else for it alone."""
        await self._check_nested(ticket)
        if self._ledger.waiting(ticket.job_id) is None:  # it has left meanwhile
            return Offer(())
        together = demand(self._ledger.queue, ticket.job_id)
        if together > ticket.slices:
            try:
                return await self._slices(ticket, together, start=start)
            except NeverFits:  # so many at once never, but they come one after the other
                pass
        return await self._slices(ticket, ticket.slices, start=start)

    async def _slices(self, ticket: Ticket, count: int, *, start: bool) -> Offer:
        taken = self._ledger.leased
        try:
            return await self._in_thread(self._scaler.slices, ticket.kind, count, taken, start=start)
        finally:
            self.told = taken

    def _in_thread(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> asyncio.Future[R]:
        return asyncio.get_running_loop().run_in_executor(self._threads, partial(function, *args, **kwargs))


def _forget(asking: asyncio.Future[Offer]) -> None:
    if not asking.cancelled():
        asking.exception()  # seen; nobody waits for it any more

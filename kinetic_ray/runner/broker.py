"""The slice broker: one detached Ray actor a cluster that hands out slices and CPUs to drivers, in order.

Deciding is `queue.py` and `yielding.py`, the books are `ledger.py`; here are the waiting, the asking for hosts, and the
taking back. A driver that goes gives up its place and its lease, so does one whose successor has arrived. A broker that
was restarted reads its leases off the cluster, and hears from those that wait as they ask again.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

from kinetic_ray.errors import KineticError
from kinetic_ray.runner.asking import Asking, Bell
from kinetic_ray.runner.leases import Holdings
from kinetic_ray.runner.ledger import Ledger
from kinetic_ray.runner.queue import CPU, Pool, Slice, Ticket
from kinetic_ray.runner.scaling import RETRY, Scaler, SocketScaler, follow
from kinetic_ray.runner.standing import standing_actor
from kinetic_ray.runner.thrift import PATIENCE, Patience

NAME = "kinetic-broker"
#: A grant that comes within this many seconds spares its driver a word about waiting.
_GRACE = 0.3
_MAX_ASKS = 64
#: Threads that read the cluster's table and tell the supervisor, whatever the asking for hosts waits for.
_CLERKS = 2

Capacity = Callable[[], tuple[float, int]]
Table = Callable[[], Holdings]
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds of what the broker does by the clock.

    Attributes:
        settle: Between the two looks of a restarted broker: who was just granted something is placing it.
        look: Between two looks at what the cluster holds, while somebody waits.
        gone: How long a lease may be without what it held there.
        unplaced: How long it may be until its holder has placed anything.
        tell: Between two words to the supervisor.
        patience: Before hosts are started.
    """

    settle: float = 1.5
    look: float = 2.0
    gone: float = 4.0
    unplaced: float = 60.0
    tell: float = 0.2
    patience: Patience = PATIENCE


class SliceBroker:
    """The actor. Runs in one event loop, so nothing here needs a lock."""

    def __init__(
        self,
        scaler: Scaler,
        capacity: Capacity,
        table: Table | None = None,
        times: Times | None = None,
        *,
        restarted: bool = False,
    ) -> None:
        """Starts with empty books.

        Args:
            scaler: Where hosts come from.
            capacity: CPUs and bytes of memory that the cluster has for gangs of CPU hosts.
            table: What the cluster itself tells of leases; None where nothing does.
            times: How long things may take.
            restarted: Whether another one has granted leases before.
        """
        self._scaler = scaler
        self._capacity = capacity
        self._table = table
        self._times = times or Times()
        self._restarted = restarted
        self._ledger = Ledger()
        self._bell = Bell()
        self._threads = ThreadPoolExecutor(_CLERKS, thread_name_prefix="kinetic-books")
        asks = ThreadPoolExecutor(_MAX_ASKS, thread_name_prefix="kinetic-scaler")  # each may take as long as hosts do
        self._asking = Asking(scaler, asks, self._ledger, self._bell, self._serve, self._times.patience)
        self._early: dict[str, Ticket] = {}
        self._beginning: asyncio.Task[None] | None = None
        self._telling: asyncio.Task[None] | None = None
        self._looking: asyncio.Task[None] | None = None
        self._told: Mapping[str, Any] = {}

    async def acquire(self, ticket: Mapping[str, Any], seen: str = "", patience: float = 30.0) -> dict[str, Any]:
        """Waits for a lease; safe to repeat.

        Args:
            ticket: See :class:`Ticket`.
            seen: The reason for waiting that the caller knows already.
            patience: Seconds until it answers anyway.

        Returns:
            {"state": "granted", "slices": [{"name", "nodes"}]}, {"state": "waiting", "reason"},
            {"state": "refused", "reason"} or {"state": "fenced"}.
        """
        mine, ledger = Ticket.from_dict(ticket), self._ledger
        await self._begin(mine)
        if ledger.newest_epoch(mine.job_id) > mine.epoch:
            return {"state": "fenced"}
        if self._admit(mine):
            await self._serve({})
            self._asking.begin(mine)
        if not seen:
            await self._bell.wait_for(lambda: ledger.is_settled(mine), _GRACE)
        await self._bell.wait_for(lambda: ledger.is_settled(mine) or ledger.reason(mine.job_id) != seen, patience)
        return ledger.answer(mine)

    async def release(self, job_id: str, epoch: int) -> None:
        """Gives back what a job holds or waits for, unless a newer driver has taken it over; safe to repeat."""
        await self._begin()
        self._ledger.release(job_id, epoch)
        await self._change()

    async def wanted(self, patience: float = 30.0, seen: Sequence[str] = ()) -> list[str]:
        """The holders of yielding leases that should give them back when idle, because somebody waits.

        Args:
            patience: Seconds until it answers anyway.
            seen: The answer that the caller knows already.
        """
        await self._begin()
        await self._bell.wait_for(lambda: set(self._ledger.wanted()) != set(seen), patience)
        return list(self._ledger.wanted())

    async def snapshot(self) -> dict[str, Any]:
        """What everybody holds and waits for: {"leases": [...], "queue": [...]}."""
        await self._begin()
        return self._ledger.snapshot()

    async def holds(self) -> dict[str, list[str]]:
        """The slices that each job holds."""
        await self._begin()
        return {lease.ticket.job_id: [one.name for one in lease.slices] for lease in self._ledger.leases}

    # The beginning.

    async def _begin(self, early: Ticket | None = None) -> None:
        """Returns when the leases are known. What is asked for before that is served by age, not by chance."""
        if self._beginning is None:
            follow(self._scaler, asyncio.get_running_loop(), self._hear)
        if self._beginning is None or _has_failed(self._beginning):  # whoever met the failure asks again, or the next
            self._beginning = asyncio.create_task(self._recover())
        if early is not None and not self._beginning.done():
            known = self._early.get(early.job_id, early)
            self._early[early.job_id] = max(early, known, key=lambda ticket: ticket.epoch)
        await asyncio.shield(self._beginning)

    async def _recover(self) -> None:
        found = await self._read()
        if self._restarted or found.leases:
            await asyncio.sleep(self._times.settle)
            found = await self._read()
        self._ledger.adopt(found.leases)
        early = sorted(self._early.values(), key=lambda ticket: ticket.job_id.partition("-")[2])  # ids tell their age
        admitted = [ticket for ticket in early if self._admit(ticket)]
        await self._serve({})
        for ticket in admitted:
            self._asking.begin(ticket)

    async def _read(self) -> Holdings:
        """The leases that the cluster tells of; without them nothing may be granted, so it is asked until it does."""
        if self._table is None:
            return Holdings()
        while True:
            try:
                return await asyncio.get_running_loop().run_in_executor(self._threads, self._table)
            except Exception as exc:  # noqa: BLE001 - of Ray's many ways to say "not now", none is worth a slice twice
                _LOG.warning("the cluster doesn't tell what is held: %s: %s", type(exc).__name__, exc)
            await asyncio.sleep(RETRY)

    # The queue.

    def _admit(self, ticket: Ticket) -> bool:
        """Takes a ticket in; returns whether it has to be served and asked for."""
        if self._ledger.newest_epoch(ticket.job_id) > ticket.epoch or not self._ledger.admit(ticket):
            return False
        if self._ledger.passes_others(ticket):
            self._bell.changes += 1  # those behind it need more than they have asked for
        return True

    async def _serve(self, slices: Mapping[tuple[str, int], tuple[Slice, ...]]) -> None:
        """Grants what can be granted, given the slices that the scaler has just said are up."""
        cpus, memory = self._capacity() if any(t.accelerator == CPU for t in self._ledger.queue) else (0.0, 0)
        self._ledger.serve(Pool(slices, cpus, memory))
        if self._telling is None or self._telling.done():
            self._telling = asyncio.create_task(self._tell())
        if self._table is not None and self._ledger.queue and (self._looking is None or self._looking.done()):
            self._looking = asyncio.create_task(self._look_for_vanished())
        await self._bell.ring()

    async def _change(self) -> None:
        """Something may have become free: whoever waits looks again."""
        self._bell.changes += 1
        await self._serve({})

    async def _look_for_vanished(self) -> None:
        """While somebody waits: leases whose holders have gone without a word are found by what they no longer hold."""
        times, ledger = self._times, self._ledger
        while ledger.queue:
            await self._bell.wait_for(lambda: not ledger.queue, times.look)
            found = await self._read()
            if dropped := ledger.drop_vanished(found, time.monotonic(), times.gone, times.unplaced):
                _LOG.warning("%s: nothing of it is left in the cluster, its lease is taken back", ", ".join(dropped))
                await self._change()
        ledger.forget_looks()

    async def _tell(self) -> None:
        """Tells the supervisor what has changed, until it knows all of it."""
        asking, ledger = self._asking, self._ledger
        while (books := ledger.snapshot()) != self._told or asking.told != ledger.leased:
            names = ledger.leased
            pause = self._times.tell
            try:
                tell = partial(self._scaler.leases, names, books)
                await asyncio.get_running_loop().run_in_executor(self._threads, tell)
                self._told, asking.told = books, names
            except (KineticError, OSError) as exc:  # a lost word about leases costs idle hosts, no more
                _LOG.warning("the supervisor was not told of the leases: %s", exc)
                pause = RETRY
            await asyncio.sleep(pause)

    # Word from the supervisor.

    async def _hear(self, event: Mapping[str, Any]) -> None:
        await self._begin()
        if event["event"] == "driver_gone":
            epoch = event.get("epoch") or self._ledger.newest_epoch(event["job_id"])
            await self.release(event["job_id"], epoch)
            return
        if event["event"] == "host_lost":
            self._asking.lost_nodes.add(event["node_id"])
        await self._change()


def _has_failed(task: asyncio.Task[None]) -> bool:
    return task.done() and (task.cancelled() or task.exception() is not None)


def find_broker(supervisor: str) -> Any:
    """The cluster's broker, made if there is none yet."""
    return standing_actor(EmbeddedBroker, NAME, max_task_retries=-1).remote(supervisor)


class EmbeddedBroker(SliceBroker):
    """The broker of an embedded cluster, whose hosts are the supervisor's."""

    def __init__(self, supervisor: str) -> None:
        import ray

        from kinetic_ray.runner.slices import cpu_capacity, holdings

        restarted = ray.get_runtime_context().was_current_actor_reconstructed
        super().__init__(SocketScaler(supervisor), cpu_capacity, holdings, restarted=restarted)

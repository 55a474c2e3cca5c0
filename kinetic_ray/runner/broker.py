"""The slice broker: one detached Ray actor a cluster that hands out slices and CPUs to drivers, in order.

Deciding is `queue.py`; here are the waiting, the asking for hosts, and the taking back. A driver that goes gives up its
place and its lease, so does one whose successor has arrived.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, ParamSpec, TypeVar

from kinetic_ray.errors import KineticError
from kinetic_ray.runner.queue import CPU, Lease, Pool, Slice, Ticket, decide, demand, leased_names
from kinetic_ray.runner.scaling import NeverFits, Offer, Scaler, SocketScaler

NAME, NAMESPACE = "kinetic-broker", "kinetic"
#: A grant that comes within this many seconds spares its driver a word about waiting; a scaler that takes longer than
#: the shorter time is starting hosts, which that word should tell of.
_GRACE, _SHORT = 0.3, 0.2
#: Until a scaler that failed is asked again, and until a broken event stream is opened again.
_RETRY = 1.0
_MAX_ASKS = 64

Capacity = Callable[[], tuple[float, int]]
P = ParamSpec("P")
R = TypeVar("R")
_LOG = logging.getLogger(__name__)


class SliceBroker:
    """The actor. Runs in one event loop, so nothing here needs a lock."""

    def __init__(self, scaler: Scaler, capacity: Capacity) -> None:
        """Starts with an empty queue.

        Args:
            scaler: Where hosts come from.
            capacity: CPUs and bytes of memory that the cluster has for gangs of CPU hosts.
        """
        self._scaler = scaler
        self._capacity = capacity
        self._queue: list[Ticket] = []
        self._leases: dict[str, Lease] = {}
        self._reasons: dict[str, str] = {}
        self._refused: dict[str, str] = {}
        self._notes: dict[tuple[str, int], str] = {}
        self._asking: dict[str, asyncio.Task[None]] = {}
        self._lost_nodes: set[str] = set()
        self._changes = 0
        self._changed = asyncio.Condition()
        self._threads = ThreadPoolExecutor(_MAX_ASKS, thread_name_prefix="kinetic-scaler")
        self._following: threading.Thread | None = None
        self._background: asyncio.Future[None] | None = None

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
        wanted = Ticket(**ticket)
        self._follow()
        if self._is_fenced(wanted):
            return {"state": "fenced"}
        await self._admit(wanted)
        if not seen:
            await self._wait_for(lambda: self._settled(wanted), _GRACE)
        await self._wait_for(lambda: self._settled(wanted) or self._reasons.get(wanted.job_id) != seen, patience)
        return self._answer(wanted)

    async def release(self, job_id: str, epoch: int) -> None:
        """Gives back what a job holds or waits for, unless a newer driver has taken it over; safe to repeat."""
        held = self._leases.get(job_id)
        if held is not None and held.ticket.epoch <= epoch:
            del self._leases[job_id]
            self._tell_leases()
        self._queue = [t for t in self._queue if t.job_id != job_id or t.epoch > epoch]
        self._refused.pop(job_id, None)
        await self._change()

    async def where(self, job_id: str) -> str:
        """Why a job waits, or "" if it doesn't."""
        return self._reasons.get(job_id, "")

    async def holds(self) -> dict[str, list[str]]:
        """The slices that each job holds."""
        return {job_id: [one.name for one in lease.slices] for job_id, lease in self._leases.items()}

    # What an acquire is answered.

    def _is_fenced(self, wanted: Ticket) -> bool:
        held = self._leases.get(wanted.job_id)
        known = [t.epoch for t in self._queue if t.job_id == wanted.job_id] + ([held.ticket.epoch] if held else [])
        return any(epoch > wanted.epoch for epoch in known)

    def _settled(self, wanted: Ticket) -> bool:
        return wanted.job_id in self._leases or wanted.job_id in self._refused or self._is_fenced(wanted)

    def _answer(self, wanted: Ticket) -> dict[str, Any]:
        if self._is_fenced(wanted):
            return {"state": "fenced"}
        if (held := self._leases.get(wanted.job_id)) is not None:
            return {"state": "granted", "slices": [{"name": s.name, "nodes": list(s.nodes)} for s in held.slices]}
        if (reason := self._refused.pop(wanted.job_id, None)) is not None:
            return {"state": "refused", "reason": reason}
        return {"state": "waiting", "reason": self._reasons.get(wanted.job_id, "")}

    # The queue.

    async def _admit(self, wanted: Ticket) -> None:
        held = self._leases.get(wanted.job_id)
        if held is not None:
            self._leases[wanted.job_id] = Lease(wanted, held.slices)
        elif any(t.job_id == wanted.job_id for t in self._queue):
            self._queue = [wanted if t.job_id == wanted.job_id else t for t in self._queue]
        else:
            self._queue.append(wanted)
            await self._serve({})
            if wanted.accelerator != CPU and wanted in self._queue:
                asking = asyncio.create_task(self._ask_while_waiting(wanted.job_id))
                self._asking[wanted.job_id] = asking
                asking.add_done_callback(partial(self._asked, wanted.job_id))

    def _asked(self, job_id: str, asking: asyncio.Task[None]) -> None:
        """A ticket is not asked for any more; if that is a fault of ours, its job must not wait for ever."""
        self._asking.pop(job_id, None)
        if asking.cancelled() or (error := asking.exception()) is None:
            return
        _LOG.error("asking for hosts for %s broke off", job_id, exc_info=error)
        self._refused[job_id] = f"the slice broker could not ask for hosts: {type(error).__name__}: {error}"
        self._queue = [t for t in self._queue if t.job_id != job_id]
        self._background = asyncio.ensure_future(self._change())

    async def _serve(self, slices: Mapping[tuple[str, int], tuple[Slice, ...]]) -> None:
        """Grants what can be granted, given the slices that the scaler has just said are up."""
        cpus, memory = self._capacity() if any(t.accelerator == CPU for t in self._queue) else (0.0, 0)
        decision = decide(self._queue, tuple(self._leases.values()), Pool(slices, cpus, memory))
        self._leases |= {lease.ticket.job_id: lease for lease in decision.grants}
        self._refused |= decision.refused
        self._queue = [t for t in self._queue if t.job_id in decision.waiting]
        first: set[tuple[str, int]] = set()
        self._reasons = {}
        for ticket in self._queue:
            note = self._notes.get(ticket.kind, "") if ticket.kind not in first else ""
            first.add(ticket.kind)
            self._reasons[ticket.job_id] = "; ".join(filter(None, (decision.waiting[ticket.job_id], note)))
        async with self._changed:
            self._changed.notify_all()

    async def _change(self) -> None:
        """Something may have become free: whoever waits looks again."""
        self._changes += 1
        await self._serve({})

    async def _wait_for(self, predicate: Callable[[], bool], patience: float) -> None:
        async with self._changed:
            try:
                await asyncio.wait_for(self._changed.wait_for(predicate), patience)
            except TimeoutError:
                return

    # Hosts.

    async def _ask_while_waiting(self, job_id: str) -> None:
        """Asks the scaler for a ticket's sake, again after every change, until the ticket has left the queue."""
        while any(t.job_id == job_id for t in self._queue):
            seen = self._changes
            patience = await self._ask(job_id)
            await self._wait_for(partial(self._worth_another_look, job_id, seen), patience)

    def _worth_another_look(self, job_id: str, seen: int) -> bool:
        return self._changes != seen or all(t.job_id != job_id for t in self._queue)

    async def _ask(self, job_id: str) -> float:
        """One question to the scaler, one round of grants; returns how long its answer may stand."""
        ticket = next(t for t in self._queue if t.job_id == job_id)
        try:
            offer = await self._patiently(ticket)
        except NeverFits as exc:
            self._refused[job_id] = str(exc)
            self._queue = [t for t in self._queue if t.job_id != job_id]
            await self._serve({})
            return _RETRY
        except (KineticError, OSError) as exc:
            self._notes[ticket.kind] = f"no hosts for now: {exc}"
            await self._serve({})
            return _RETRY
        alive = tuple(one for one in offer.slices if not self._lost_nodes & set(one.nodes))
        self._notes[ticket.kind] = offer.note
        await self._serve({ticket.kind: alive})
        return 3600.0 if len(alive) == len(offer.slices) else _RETRY

    async def _patiently(self, ticket: Ticket) -> Offer:
        """An offer; if it takes long, hosts are being started, and those that wait are told."""
        asking = asyncio.create_task(self._offer(ticket))
        await asyncio.wait({asking}, timeout=_SHORT)
        if not asking.done():
            self._notes[ticket.kind] = "starting its hosts"
            await self._serve({})
        return await asking

    async def _offer(self, ticket: Ticket) -> Offer:
        """Asks for enough for all up to this ticket, so that hosts for several start at once; else for it alone."""
        together = demand(self._queue, ticket.job_id)
        taken = leased_names(tuple(self._leases.values()))
        if together > ticket.slices:
            try:
                return await self._in_thread(self._scaler.slices, ticket.kind, together, taken)
            except NeverFits:  # so many at once never, but they come one after the other
                taken = leased_names(tuple(self._leases.values()))
        return await self._in_thread(self._scaler.slices, ticket.kind, ticket.slices, taken)

    def _in_thread(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> asyncio.Future[R]:
        return asyncio.get_running_loop().run_in_executor(self._threads, partial(function, *args, **kwargs))

    def _tell_leases(self) -> None:
        names = leased_names(tuple(self._leases.values()))
        self._in_thread(self._scaler.leases, names).add_done_callback(_complain)

    # Word from the supervisor.

    def _follow(self) -> None:
        if self._following is None:
            loop = asyncio.get_running_loop()
            self._following = threading.Thread(target=self._listen, args=(loop,), name="kinetic-events", daemon=True)
            self._following.start()

    def _listen(self, loop: asyncio.AbstractEventLoop) -> None:
        pause = threading.Event()
        while not loop.is_closed():
            try:
                self._scaler.follow(lambda event: _hand_over(loop, self._hear(event)))
            except (KineticError, OSError) as exc:
                _LOG.warning("the supervisor's events broke off: %s", exc)
            pause.wait(_RETRY)

    async def _hear(self, event: Mapping[str, Any]) -> None:
        if event["event"] == "driver_gone":
            await self.release(event["job_id"], event.get("epoch") or self._newest_epoch(event["job_id"]))
        elif event["event"] == "host_lost":
            self._lost_nodes.add(event["node_id"])
            await self._change()
        else:
            await self._change()

    def _newest_epoch(self, job_id: str) -> int:
        held = self._leases.get(job_id)
        return max([t.epoch for t in self._queue if t.job_id == job_id] + ([held.ticket.epoch] if held else [0]))


def _hand_over(loop: asyncio.AbstractEventLoop, coroutine: Any) -> None:
    asyncio.run_coroutine_threadsafe(coroutine, loop)


def _complain(done: asyncio.Future[None]) -> None:
    """A lost word about leases costs idle hosts, no more."""
    if (error := done.exception()) is not None:
        _LOG.warning("the supervisor was not told of the leases: %s", error)


def find_broker(supervisor: str) -> Any:
    """The cluster's broker, made if there is none yet; it stays where the head is and comes back if it dies."""
    import ray

    actor = ray.remote(EmbeddedBroker).options(
        name=NAME,
        namespace=NAMESPACE,
        lifetime="detached",
        get_if_exists=True,
        max_restarts=-1,
        max_task_retries=-1,
        num_cpus=0,
        resources={"node:__internal_head__": 0.001},
    )
    return actor.remote(supervisor)


class EmbeddedBroker(SliceBroker):
    """The broker of an embedded cluster, whose hosts are the supervisor's."""

    def __init__(self, supervisor: str) -> None:
        super().__init__(SocketScaler(supervisor), _ray_capacity)


def _ray_capacity() -> tuple[float, int]:
    """CPUs and memory of the nodes that have CPUs to give: a slice's hosts have none, and their memory is their own."""
    import ray

    resources = [node["Resources"] for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU")]
    return sum(float(one["CPU"]) for one in resources), sum(int(one.get("memory", 0)) for one in resources)

"""Who gets which slices and CPUs, and why the others wait: the pure half of the broker.

The rule: tickets that want the same kind of resource (one accelerator with one number of chips per host, or CPUs) are
served by priority, and among equals first come, first served. While the first of a kind waits, all behind it wait too,
however small they are, so nobody starves among equals. Tickets of different kinds do not hold each other up. A ticket
gets all that it wants in one grant or nothing, so two that want two slices each can't hold one each and wait for ever.

A nested ticket belongs to something that is waited for by a holder, its ancestor. What it waits for must not wait for
that ancestor's end: it goes before all that are not nested and isn't held up by other nested ones, and its CPUs are not
counted, since the ancestor that waits has little use for its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

CPU = "cpu"


@dataclass(frozen=True, slots=True)
class Ticket:
    """What one job wants before it can start.

    Attributes:
        job_id: The job.
        epoch: Its driver's epoch; a newer driver takes over what an older one held.
        accelerator: Canonical name; "cpu" for a gang of CPU hosts.
        chips_per_host: Chips per host; 0 for CPUs.
        slices: Slices wanted; 0 for CPUs.
        hosts: Ranks of a gang of CPU hosts; 0 for slices.
        cpus: CPUs of each of these.
        memory: Bytes of each of these; 0 = not reserved.
        priority: Higher goes first, within one kind.
        name: The function's name, for people.
        yields: Whether its lease is given back, when it is idle, because somebody waits.
        ancestors: Holders that wait for what will run here, outermost first.
    """

    job_id: str
    epoch: int
    accelerator: str
    chips_per_host: int = 0
    slices: int = 0
    hosts: int = 0
    cpus: float = 0.0
    memory: int = 0
    priority: int = 0
    name: str = ""
    yields: bool = False
    ancestors: tuple[str, ...] = ()

    @property
    def kind(self) -> tuple[str, int]:
        """What it queues for."""
        return self.accelerator, self.chips_per_host

    @property
    def all_cpus(self) -> float:
        return round(self.hosts * self.cpus, 4)  # Ray counts ten-thousandths, and sums of floats drift

    @property
    def all_memory(self) -> int:
        return self.hosts * self.memory

    @property
    def is_counted(self) -> bool:
        """Whether its CPUs and memory count; those of a nested one are lent by who waits for it."""
        return not self.ancestors

    @property
    def wish(self) -> str:
        """What it wants, for people."""
        if self.accelerator == CPU:
            return f"{self.hosts} x {self.cpus:g} CPUs"
        return f"{self.slices} {self.accelerator} {'slice' if self.slices == 1 else 'slices'}"

    @property
    def label(self) -> str:
        """Who it is, for people."""
        return f"{self.job_id} ({self.name})" if self.name else self.job_id

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> Ticket:
        """Reads what :meth:`to_dict` wrote, also after a trip through JSON."""
        return Ticket(**{**data, "ancestors": tuple(data.get("ancestors", ()))})


@dataclass(frozen=True, slots=True)
class Slice:
    """One slice that is up.

    Attributes:
        name: Its name, unique in the cluster.
        nodes: Ray node ids by worker id.
    """

    name: str
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Pool:
    """What there is, leased or not.

    Attributes:
        slices: By kind; a kind that is missing is not known yet.
        cpus: CPUs for gangs of CPU hosts.
        memory: Bytes for them.
    """

    slices: Mapping[tuple[str, int], tuple[Slice, ...]] = field(default_factory=dict)
    cpus: float = 0.0
    memory: int = 0


@dataclass(frozen=True, slots=True)
class Lease:
    """What a job holds until it ends."""

    ticket: Ticket
    slices: tuple[Slice, ...] = ()


@dataclass(frozen=True, slots=True)
class Decision:
    """What follows from a queue, the leases and a pool.

    Attributes:
        grants: New leases, in the order of the queue.
        waiting: Why each of the others waits, by job id.
        refused: Why a ticket can never be served, by job id.
    """

    grants: tuple[Lease, ...] = ()
    waiting: Mapping[str, str] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)


def decide(queue: Sequence[Ticket], leases: Sequence[Lease], pool: Pool) -> Decision:
    """Grants what can be granted now.

    Args:
        queue: Waiting tickets in order of arrival.
        leases: What is held.
        pool: What there is.

    Example:
        >>> ticket = Ticket("job-a", 1, "cpu", hosts=1, cpus=2.0)
        >>> [lease.ticket.job_id for lease in decide([ticket], [], Pool(cpus=2.0)).grants]
        ['job-a']
    """
    grants: list[Lease] = []
    waiting: dict[str, str] = {}
    refused: dict[str, str] = {}
    ahead: dict[tuple[str, int], list[Ticket]] = {}
    for ticket in in_order(queue):
        if reason := _never(ticket, pool):
            refused[ticket.job_id] = reason
            continue
        before = ahead.setdefault(ticket.kind, [])
        held_up = bool(before) and not ticket.ancestors
        lease = None if held_up else _fit(ticket, (*leases, *grants), pool)
        if lease is not None:
            grants.append(lease)
        else:
            before.append(ticket)
            waiting[ticket.job_id] = _why(ticket, before[:-1], (*leases, *grants), pool)
    return Decision(tuple(grants), waiting, refused)


def in_order(queue: Sequence[Ticket]) -> list[Ticket]:
    """Tickets in the order in which they are served, given in order of arrival."""
    return sorted(queue, key=lambda ticket: (not ticket.ancestors, -ticket.priority))


def demand(queue: Sequence[Ticket], job_id: str) -> int:
    """Slices of its kind that must be free until a ticket's turn is over: its own and those of all before it."""
    line = in_order(queue)
    place = next(i for i, ticket in enumerate(line) if ticket.job_id == job_id)
    return sum(ticket.slices for ticket in line[: place + 1] if ticket.kind == line[place].kind)


def lent(ticket: Ticket, leases: Sequence[Lease]) -> int:
    """Slices of a ticket's kind that its ancestors hold, which they won't give back before it has had its turn."""
    return sum(
        len(lease.slices)
        for lease in leases
        if lease.ticket.job_id in ticket.ancestors and lease.ticket.kind == ticket.kind
    )


def leased_names(leases: Sequence[Lease]) -> tuple[str, ...]:
    """Names of all slices that are held, sorted."""
    return tuple(sorted(held.name for lease in leases for held in lease.slices))


def _fit(ticket: Ticket, leases: Sequence[Lease], pool: Pool) -> Lease | None:
    """The lease of a ticket if everything that it wants is free."""
    if ticket.accelerator == CPU:
        if not ticket.is_counted:
            return Lease(ticket)
        cpus, memory = free_amounts(leases, pool)
        fits = ticket.all_cpus <= cpus and ticket.all_memory <= memory
        return Lease(ticket) if fits else None
    free = _free_slices(ticket, leases, pool)
    return Lease(ticket, tuple(free[: ticket.slices])) if len(free) >= ticket.slices else None


def free_amounts(leases: Sequence[Lease], pool: Pool) -> tuple[float, int]:
    """CPUs and bytes that nobody holds."""
    counted = [lease.ticket for lease in leases if lease.ticket.is_counted]
    cpus = round(pool.cpus - sum(ticket.all_cpus for ticket in counted), 4)
    return cpus, pool.memory - sum(ticket.all_memory for ticket in counted)


def _free_slices(ticket: Ticket, leases: Sequence[Lease], pool: Pool) -> list[Slice]:
    held = set(leased_names(leases))
    return [one for one in pool.slices.get(ticket.kind, ()) if one.name not in held]


def _never(ticket: Ticket, pool: Pool) -> str:
    """Why a gang of CPU hosts can't ever be placed, or "". What slices there can be, only the scaler knows."""
    if ticket.accelerator != CPU:
        return ""
    if ticket.all_cpus > pool.cpus:
        return f"{ticket.wish} needs {ticket.all_cpus:g} CPUs, the cluster has {pool.cpus:g}"
    if ticket.all_memory > pool.memory:
        return f"{ticket.wish} needs {ticket.all_memory:,} bytes of memory, the cluster has {pool.memory:,}"
    return ""


def _why(ticket: Ticket, before: Sequence[Ticket], leases: Sequence[Lease], pool: Pool) -> str:
    parts = [f"waiting for {ticket.wish}"]
    if before:
        parts.append(f"position {len(before) + 1} in the queue, behind {_names(before)}")
    elif ticket.accelerator == CPU:
        cpus, _ = free_amounts(leases, pool)
        parts.append(f"first in the queue, {max(cpus, 0):g} of {pool.cpus:g} CPUs free")
    else:
        parts.append("first in the queue")
    holders = [lease.ticket for lease in leases if lease.ticket.kind == ticket.kind]
    if holders:
        parts.append(f"held by {_names(holders)}")
    return "; ".join(parts)


def _names(tickets: Sequence[Ticket], limit: int = 3) -> str:
    more = f" and {len(tickets) - limit} more" if len(tickets) > limit else ""
    return ", ".join(ticket.label for ticket in tickets[:limit]) + more

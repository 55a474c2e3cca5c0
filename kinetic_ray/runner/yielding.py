"""Which leases should be given back because somebody waits: pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from kinetic_ray.runner.queue import CPU, Lease, Ticket

Kind = tuple[str, int]
#: Slices and 0, or CPUs and bytes of memory.
Amount = tuple[float, float]


def wanted(
    waiting: Sequence[Ticket], leases: Sequence[Lease], free: Mapping[Kind, Amount], stuck: Collection[str] = ()
) -> tuple[str, ...]:
    """Holders whose yielding leases those that wait could use.

    Args:
        waiting: Tickets in the order in which they are served.
        leases: What is held, granted longest ago first.
        free: What nobody holds, by kind; a kind that is missing has nothing.
        stuck: Ids of those for whom hosts of other kinds stand in the way.

    Returns:
        For each ticket as many of its kind as it lacks; all that yield slices for one that is stuck even then.
    """
    chosen: dict[str, None] = {}
    spare = dict(free)
    for ticket in waiting:
        could = [lease for lease in leases if lease.ticket.job_id not in chosen and _may_ask(ticket, lease)]
        of_kind = [lease for lease in could if lease.ticket.kind == ticket.kind]
        missing = _less(_amount(ticket), spare.get(ticket.kind, (0.0, 0.0)))
        for lease in _enough(missing, of_kind):
            chosen[lease.ticket.job_id] = None
            missing = _less(missing, _yield_of(lease))
        spare[ticket.kind] = (max(-missing[0], 0.0), max(-missing[1], 0.0))
        if ticket.job_id in stuck and _is_short(missing):
            chosen |= dict.fromkeys(lease.ticket.job_id for lease in could if lease.slices)
    return tuple(chosen)


def _may_ask(ticket: Ticket, lease: Lease) -> bool:
    """Never its own lease, nor that of one that waits for it."""
    holder = lease.ticket.job_id
    return lease.ticket.yields and holder != ticket.job_id and holder not in ticket.ancestors


def _enough(missing: Amount, leases: Sequence[Lease]) -> Iterator[Lease]:
    """The first leases that together make up for what is missing, without those that add nothing to it."""
    for lease in leases:
        gain = _yield_of(lease)
        if any(lack > 0 and more > 0 for lack, more in zip(missing, gain, strict=True)):
            yield lease
            missing = _less(missing, gain)


def _amount(ticket: Ticket) -> Amount:
    return (ticket.all_cpus, float(ticket.all_memory)) if ticket.accelerator == CPU else (float(ticket.slices), 0.0)


def _yield_of(lease: Lease) -> Amount:
    if lease.ticket.accelerator == CPU:
        return _amount(lease.ticket) if lease.ticket.is_counted else (0.0, 0.0)
    return float(len(lease.slices)), 0.0


def _less(one: Amount, other: Amount) -> Amount:
    return round(one[0] - other[0], 4), one[1] - other[1]


def _is_short(missing: Amount) -> bool:
    return missing[0] > 0 or missing[1] > 0

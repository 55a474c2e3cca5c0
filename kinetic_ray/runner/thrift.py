"""When hosts are started for one that waits, and when it waits for a slice that is about to be free instead: pure.

A call's gang gives an idle lease back in a tenth of a second; a host takes seconds to start, and stays. Calls that
queue ask for a gang each, though the one that there is serves short ones sooner than another is up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kinetic_ray.runner.queue import Lease, Ticket, in_order

#: How the ids of those begin that hold leases for calls.
CALLS = "call-"


@dataclass(frozen=True, slots=True)
class Patience:
    """Seconds of waiting before hosts are started.

    Attributes:
        grace: For a lease that a call holds.
        spread: For one more gang of functions, where hosts are started on demand, as those that are there may soon be
            idle. It waits as long as the last start has taken, which slows down all that run meanwhile, but so long
            at least.
        longest: And so long at most.
    """

    grace: float = 0.5
    spread: float = 1.0
    longest: float = 30.0


PATIENCE = Patience()


def start_after(
    ticket: Ticket,
    queue: Sequence[Ticket],
    leases: Sequence[Lease],
    patience: Patience = PATIENCE,
    *,
    on_demand: bool,
    start_takes: float = 0.0,
) -> float | None:
    """Seconds of waiting after which hosts are started for a ticket: 0 = at once, None = not before things change.

    Args:
        ticket: One of the queue.
        queue: Waiting tickets in order of arrival.
        leases: What is held.
        patience: How long one may have to wait.
        on_demand: Whether there may be any number of hosts, rather than a pool that somebody has fixed.
        start_takes: Seconds that the last start of this kind has taken; 0 for not known.

    Example:
        >>> call = Ticket("call-b", 1, "tpu-v6e-16", 4, slices=1, yields=True)
        >>> start_after(call, [call], [], on_demand=True)
        0.0
    """
    held = any(_may_come_back(lease, ticket) for lease in leases)
    if not on_demand or not ticket.yields or ticket.ancestors:  # nested ones are not held up by each other
        return patience.grace if held else 0.0
    line = [one.job_id for one in in_order(queue) if one.kind == ticket.kind and one.yields and not one.ancestors]
    if line[:1] != [ticket.job_id]:
        return None
    return min(max(patience.spread, start_takes), patience.longest) if held else 0.0


def _may_come_back(lease: Lease, ticket: Ticket) -> bool:
    """Whether a lease is a call's, and not one that waits for this very ticket."""
    holder = lease.ticket.job_id
    return lease.ticket.kind == ticket.kind and holder.startswith(CALLS) and holder not in ticket.ancestors

"""The broker's books: who waits, who holds what, and what each is told. No waiting, no asking, no clock in here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kinetic_ray.runner.leases import Holdings, is_whole
from kinetic_ray.runner.queue import CPU, Lease, Pool, Slice, Ticket, decide, free_amounts, in_order, leased_names
from kinetic_ray.runner.yielding import Amount, Kind, wanted


class Ledger:
    """Queue and leases, changed by one event loop only.

    Attributes:
        queue: Waiting tickets in order of arrival.
    """

    def __init__(self) -> None:
        self.queue: list[Ticket] = []
        self._leases: dict[str, Lease] = {}
        self._reasons: dict[str, str] = {}
        self._refused: dict[str, str] = {}
        self._notes: dict[Kind, str] = {}
        self._answered: set[str] = set()
        self._stuck: set[str] = set()
        self._up: dict[Kind, tuple[Slice, ...]] = {}
        self._cpus: Amount = (0.0, 0.0)
        self._placed: set[str] = set()
        self._missing_since: dict[str, float] = {}

    # What is asked of it.

    @property
    def leases(self) -> tuple[Lease, ...]:
        """Granted longest ago first."""
        return tuple(self._leases.values())

    @property
    def leased(self) -> tuple[str, ...]:
        """Names of all slices that are held."""
        return leased_names(self.leases)

    def waiting(self, job_id: str) -> Ticket | None:
        """A ticket in the queue."""
        return next((ticket for ticket in self.queue if ticket.job_id == job_id), None)

    def reason(self, job_id: str) -> str:
        """Why one waits; "" if it doesn't."""
        return self._reasons.get(job_id, "")

    def newest_epoch(self, job_id: str) -> int:
        """Of the drivers of a job that have asked; 0 for none."""
        held = self._leases.get(job_id)
        return max([t.epoch for t in self.queue if t.job_id == job_id] + ([held.ticket.epoch] if held else [0]))

    def is_settled(self, ticket: Ticket) -> bool:
        """Whether there is more to answer than "waiting"."""
        job_id = ticket.job_id
        return job_id in self._leases or job_id in self._refused or self.newest_epoch(job_id) > ticket.epoch

    def answer(self, ticket: Ticket) -> dict[str, Any]:
        """What an acquire is answered; a refusal is told once."""
        job_id = ticket.job_id
        if self.newest_epoch(job_id) > ticket.epoch:
            return {"state": "fenced"}
        if (held := self._leases.get(job_id)) is not None:
            return {"state": "granted", "slices": [{"name": s.name, "nodes": list(s.nodes)} for s in held.slices]}
        if (reason := self._refused.pop(job_id, None)) is not None:
            return {"state": "refused", "reason": reason}
        return {"state": "waiting", "reason": self.reason(job_id)}

    def wanted(self) -> tuple[str, ...]:
        """Holders whose yielding leases are wanted by those that wait for longer than a look takes."""
        waits = [t for t in in_order(self.queue) if t.accelerator == CPU or t.job_id in self._answered]
        held = set(self.leased)
        free = {kind: (float(sum(one.name not in held for one in up)), 0.0) for kind, up in self._up.items()}
        return wanted(waits, self.leases, {**free, (CPU, 0): self._cpus}, self._stuck)

    def snapshot(self) -> dict[str, Any]:
        """All of it, for people."""
        return {
            "leases": [_lease_shown(lease) for lease in self.leases],
            "queue": [
                {
                    "holder": ticket.job_id,
                    "name": ticket.name,
                    "wish": ticket.wish,
                    "reason": self.reason(ticket.job_id),
                    "priority": ticket.priority,
                }
                for ticket in in_order(self.queue)
            ],
        }

    # What changes it.

    def admit(self, ticket: Ticket) -> bool:
        """Takes a ticket in; a newer driver's takes over what an older one held. Returns whether it is new here."""
        job_id = ticket.job_id
        held = self._leases.get(job_id)
        if held is not None and is_whole(held):
            if held.ticket.epoch < ticket.epoch:
                self._placed.discard(job_id)
            self._leases[job_id] = Lease(ticket, held.slices)
            return False
        if held is not None:  # a rest, found after a restart
            self._drop(job_id)
        if self.waiting(job_id) is not None:
            self.queue = [ticket if t.job_id == job_id else t for t in self.queue]
            return False
        self.queue.append(ticket)
        return True

    def passes_others(self, ticket: Ticket) -> bool:
        """Whether a ticket is served before others of its kind that came earlier."""
        line = [one.job_id for one in in_order(self.queue) if one.kind == ticket.kind]
        return line[-1:] != [ticket.job_id]

    def adopt(self, found: Sequence[Lease]) -> None:
        """Takes over leases that the cluster tells of and that nobody has claimed meanwhile."""
        for lease in found:
            self._leases.setdefault(lease.ticket.job_id, lease)
            self._placed.add(lease.ticket.job_id)

    def release(self, job_id: str, epoch: int) -> None:
        """Takes back what a job holds or waits for, unless a newer driver has it."""
        held = self._leases.get(job_id)
        if held is not None and held.ticket.epoch <= epoch:
            self._drop(job_id)
        self.queue = [t for t in self.queue if t.job_id != job_id or t.epoch > epoch]
        self._refused.pop(job_id, None)

    def refuse(self, job_id: str, why: str) -> None:
        """Takes one out of the queue that can't be served."""
        self._refused[job_id] = why
        self.queue = [t for t in self.queue if t.job_id != job_id]

    def note(self, kind: Kind, text: str) -> None:
        """A word for the first of a kind, beside its reason for waiting."""
        self._notes[kind] = text

    def offered(self, ticket: Ticket, up: Sequence[Slice], *, stuck: bool) -> None:
        """What the scaler has answered for a ticket's sake, and whether other kinds' hosts are in its way."""
        self._up[ticket.kind] = tuple(up)
        self.keep_waiting(ticket.job_id)
        if stuck:
            self._stuck.add(ticket.job_id)
        else:
            self._stuck.discard(ticket.job_id)

    def keep_waiting(self, job_id: str) -> None:
        """From now on one counts as waiting: what it wants is not simply there."""
        self._answered.add(job_id)

    def serve(self, pool: Pool) -> None:
        """Grants what can be granted now."""
        decision = decide(self.queue, self.leases, pool)
        self._leases |= {lease.ticket.job_id: lease for lease in decision.grants}
        self._refused |= decision.refused
        self.queue = [t for t in self.queue if t.job_id in decision.waiting]
        self._answered.intersection_update(decision.waiting)
        self._stuck.intersection_update(decision.waiting)
        self._cpus = free_amounts(self.leases, pool)
        first: set[Kind] = set()
        self._reasons = {}
        for ticket in in_order(self.queue):
            note = self._notes.get(ticket.kind, "") if ticket.kind not in first else ""
            first.add(ticket.kind)
            self._reasons[ticket.job_id] = "; ".join(filter(None, (decision.waiting[ticket.job_id], note)))

    def drop_vanished(self, found: Holdings, now: float, gone: float, unplaced: float) -> list[str]:
        """Takes back leases that the cluster knows nothing of any more; looks at several times are needed.

        Args:
            found: What the cluster tells.
            now: The time of this look.
            gone: Seconds without groups after which a lease that had some is dropped.
            unplaced: The same for one that never had any: its holder may just be slow to place it.

        Returns:
            The holders.
        """
        dropped = []
        epochs = {lease.ticket.job_id: lease.ticket.epoch for lease in found.leases}
        for job_id, lease in tuple(self._leases.items()):
            mine = (job_id, lease.ticket.epoch)
            if mine in epochs.items() or mine in found.ended:  # what an older driver holds still says nothing of this
                self._placed.add(job_id)
            if job_id in epochs:
                self._missing_since.pop(job_id, None)
                continue
            since = self._missing_since.setdefault(job_id, now)
            if now - since >= (gone if job_id in self._placed else unplaced):
                self._drop(job_id)
                dropped.append(job_id)
        return dropped

    def forget_looks(self) -> None:
        """No more looks follow: what was missing in the last one may be there in the next."""
        self._missing_since.clear()

    def _drop(self, job_id: str) -> None:
        del self._leases[job_id]
        self._placed.discard(job_id)
        self._missing_since.pop(job_id, None)


def _lease_shown(lease: Lease) -> Mapping[str, Any]:
    ticket = lease.ticket
    return {
        "holder": ticket.job_id,
        "name": ticket.name,
        "accelerator": ticket.accelerator,
        "slices": [one.name for one in lease.slices],
        "cpus": ticket.all_cpus if ticket.is_counted else 0.0,
        "priority": ticket.priority,
        "idle_ok": ticket.yields,
    }

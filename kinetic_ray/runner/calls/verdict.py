"""One call on all ranks of a gang: when it is over, which rank's failure is the cause. Pure, no Ray, no clock."""

from __future__ import annotations

import math
import signal
from collections.abc import Sequence

from kinetic_ray.core.causes import Failure, cause_of, explain
from kinetic_ray.core.state import Reason
from kinetic_ray.runner.book import reading_of
from kinetic_ray.runner.calls.failures import CallFailure
from kinetic_ray.runner.inbox import HostLost
from kinetic_ray.runner.slices import Host

#: How long the cause of a lost peer, or of a lost agent, is looked for.
LOOK_AROUND = 2.0
#: How long the other ranks may take to end by themselves after a rank's own exception, so that they stay warm.
COME_HOME = 1.0


class CallBook:
    """How the ranks of a gang stand in one call.

    Attributes:
        running: Ranks that have not ended as far as is known.
    """

    def __init__(self, hosts: Sequence[Host]) -> None:
        self.running = {host.rank for host in hosts}
        self._hosts = {host.rank: host for host in hosts}
        self._told: dict[int, CallFailure] = {}
        self._failures: list[Failure] = []
        self._stopped: set[int] = set()
        self._lost: set[int] = set()
        self._going: list[int] = []
        self._patient = False

    @property
    def has_failed(self) -> bool:
        return bool(self._failures)

    @property
    def is_settled(self) -> bool:
        """Whether nothing more will be heard that matters."""
        return not self.running and not any(failure.unsure for failure in self._failures)

    @property
    def patience(self) -> float:
        """Seconds after the first failure in which to hear more before the ranks that still run are ended.

        Where a host is about to go, all may use the time of grace.
        """
        if self._patient:
            return math.inf
        cause = cause_of(self._failures)
        if cause.is_open:
            return LOOK_AROUND
        return COME_HOME if self._told[cause.rank].is_users else 0.0

    @property
    def keeps_children(self) -> bool:
        """Whether all ranks have ended by themselves with nothing but values and exceptions of user code.

        One that has lost a peer can't meet the others again.
        """
        fine = all(told.is_users and told.reason != Reason.PEER_LOST for told in self._told.values())
        return fine and not (self.running or self._stopped or self._lost or self._going)

    @property
    def lost(self) -> frozenset[int]:
        """Ranks whose hosts or agents are gone."""
        return frozenset(self._lost)

    def unsure(self) -> list[Host]:
        """Hosts whose agents are gone, while of the hosts themselves nothing is known."""
        return [self._hosts[failure.rank] for failure in self._failures if failure.unsure]

    def succeed(self, rank: int) -> None:
        self.running.discard(rank)

    def fail(self, rank: int, told: CallFailure, *, after_end: bool = False) -> None:
        """A rank has ended without a value.

        Args:
            rank: The rank.
            told: By its agent.
            after_end: The gang's children were being ended: one that was only stopped has caused nothing.
        """
        if rank not in self.running:
            return
        if after_end and told.reason == Reason.CANCELLED:
            self.running.discard(rank)
            self._stopped.add(rank)
            return
        if rank in self._going and told.exit_code == -signal.SIGTERM:
            self._patient = False  # the notice itself has ended it: nobody there makes use of the grace
        reason = Reason(told.reason)
        if reason is Reason.PEER_LOST and len(self._hosts) == 1:
            reason = Reason.USER_ERROR if told.is_users else Reason.PROCESS_DIED
        self._add(rank, told.with_fields(reason=str(reason)), reason)

    def expect_loss(self, node_id: str) -> None:
        """A host is about to be taken away: whatever any rank fails of from now on, that is the reason."""
        going = [rank for rank, host in self._hosts.items() if host.node_id == node_id]
        self._going += going
        self._patient = self._patient or bool(going)

    def lose_agent(self, rank: int, why: str) -> None:
        """The agent of a rank is gone; word of its host may still come."""
        if rank in self.running:
            self._lost.add(rank)
            told = CallFailure(str(Reason.PROCESS_DIED), f"its host agent is gone: {why}", rank=rank)
            self._add(rank, told, Reason.PROCESS_DIED, unsure=True)

    def lose_host(self, lost: HostLost) -> None:
        """A host is gone, and with it its rank, whatever that rank may have said in the last moment."""
        rank = next((rank for rank, host in self._hosts.items() if host.node_id == lost.node_id), None)
        self._patient = self._patient and rank is None
        if rank is None or (rank not in self.running and not self._is_unsure(rank)):
            return
        self._lost.add(rank)
        self._failures = [failure for failure in self._failures if failure.rank != rank]
        reason, words = reading_of(lost)
        self._add(rank, CallFailure(str(reason), words, rank=rank), reason)

    def verdict(self, where: str = "", gang: str = "") -> CallFailure:
        """What the caller is told, once something has failed.

        Args:
            where: What ran where, for people.
            gang: The gang's id.
        """
        cause = cause_of(self._failures)
        told = self._told[cause.rank]
        around = explain(cause, self._failures, self._stopped | self.running).splitlines()[1:]
        message = "\n".join((told.message, *around))
        rank = cause.rank if len(self._hosts) > 1 else told.rank
        return told.with_fields(message=message, rank=rank, where=where or told.where, gang=gang or told.gang)

    def _add(self, rank: int, told: CallFailure, reason: Reason, *, unsure: bool = False) -> None:
        if self._going:
            told = told.under_notice("its host" if rank in self._going else self._hosts[self._going[0]].where)
            reason, unsure = Reason(told.reason), unsure and told.reason != Reason.PREEMPTED
        self.running.discard(rank)
        self._told[rank] = told
        self._failures.append(Failure(rank, reason, told.message, self._hosts[rank].where, unsure=unsure))

    def _is_unsure(self, rank: int) -> bool:
        return any(failure.rank == rank and failure.unsure for failure in self._failures)

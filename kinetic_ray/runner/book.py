"""The books of one attempt: what the ranks say becomes events, and one end. No Ray, no clock."""

from __future__ import annotations

import signal
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from kinetic_ray.core.causes import Failure, cause_of, explain, explain_overdue, failure_of
from kinetic_ray.core.outcome import Outcome
from kinetic_ray.core.policy import AttemptEnd
from kinetic_ray.core.state import EventKind, RankPhase, Reason
from kinetic_ray.runner.inbox import HostLost
from kinetic_ray.runner.progress import Progress
from kinetic_ray.runner.slices import Host

Note = tuple[EventKind, dict[str, Any]]

_LOSSES = {
    "NodeLost": "its host is gone",
    "SliceLost": "its host went with its slice, which had lost another",
    "Silent": "its host doesn't answer any more, and Ray has given it up",
}


class Overdue(Exception):
    """The job's time ran out before its ranks had ended; says how they stood.

    Attributes:
        rank: The first one that had not come to its end, whose log is the one to read.
    """

    def __init__(self, message: str, rank: int) -> None:
        super().__init__(message)
        self.rank = rank


class AttemptBook:
    """One gang start of all hosts.

    Attributes:
        number: From 1.
        failures: Ranks that ended without a value by themselves, in order of arrival.
        progress: The reports.
    """

    def __init__(self, number: int, hosts: Sequence[Host]) -> None:
        self.number = number
        self.failures: list[Failure] = []
        self.progress = Progress(len(hosts))
        self._hosts = {host.rank: host for host in hosts}
        self._running = set(self._hosts)
        self._stopped: set[int] = set()
        self._phases: dict[int, str] = {}
        self._going: list[int] = []
        self._patient = False

    @property
    def running(self) -> frozenset[int]:
        """Ranks that have not ended as far as is known."""
        return frozenset(self._running)

    @property
    def is_over(self) -> bool:
        """Whether all succeeded, or one failed. Where a host is about to go, all may use the time of grace."""
        return not self._running or (bool(self.failures) and not self._patient)

    @property
    def is_clear(self) -> bool:
        """Whether a look around can't change who is named any more."""
        if not self.failures:
            return False
        cause = cause_of(self.failures)
        return not cause.is_open or (not self._running and not cause.unsure)

    def hear(self, rank: int, message: Mapping[str, Any], now: float) -> list[Note]:
        """One message of a rank's agent."""
        if rank not in self._running:
            return []
        match message["t"]:
            case "phase":
                self._phases[rank] = message["phase"]
                return [(EventKind.RANK_PHASE, {"rank": rank, "phase": message["phase"]})]
            case "report":
                return [(EventKind.PROGRESSED, fields) for fields in self.progress.add(rank, message, now)]
            case "ended":
                return self._ended(rank, Outcome.from_dict(message["outcome"]), fenced=bool(message.get("fenced")))
        return []

    def rank_on(self, node_id: str) -> int | None:
        """The rank of a host, if it is one of these."""
        return next((rank for rank, host in self._hosts.items() if host.node_id == node_id), None)

    def expect_loss(self, rank: int, grace: float) -> list[Note]:
        """A rank's host is about to be taken away: whatever any rank fails of from now on, that is the reason.

        Any rank: those that agree on a step to save at leave together, and a rank that leaves breaks its peers.
        """
        slice_name = self._hosts[rank].slice_name
        is_news = all(self._hosts[known].slice_name != slice_name for known in self._going)
        self._going.append(rank)
        self._patient = True
        text = f"{self._hosts[rank].where} is being preempted: its slice goes in {grace:g} s"
        return [(EventKind.WARNED, {"message": text})] if is_news else []

    def lose_host(self, lost: HostLost) -> list[Note]:
        """A host is gone, and with it its rank, whatever that rank may have said."""
        rank = self.rank_on(lost.node_id)
        self._patient = self._patient and rank is None
        if rank is None or (rank not in self._running and not self._is_unsure(rank)):
            return []
        self.failures = [f for f in self.failures if f.rank != rank or not f.unsure]
        reason, words = reading_of(lost)
        return self._fail(self._failure(rank, reason, words))

    def lose_agent(self, rank: int, why: str, *, unsure: bool = True) -> list[Note]:
        """The agent of a rank doesn't answer any more; while `unsure`, word of its host may still come."""
        if rank not in self._running:
            return []
        return self._fail(self._failure(rank, Reason.PROCESS_DIED, f"its host agent is gone: {why}", unsure=unsure))

    def lose_to_memory(self, rank: int, words: str) -> list[Note]:
        """The agent of a rank was ended because its host ran out of memory."""
        return self._fail(self._failure(rank, Reason.OUT_OF_MEMORY, words)) if rank in self._running else []

    def end(self) -> AttemptEnd:
        """The end, once :attr:`is_over`."""
        if not self.failures:
            return AttemptEnd(self.number, ok=True)
        cause = cause_of(self.failures)
        text = explain(cause, self.failures, self._stopped | self._running)
        return AttemptEnd(self.number, ok=False, reason=cause.reason, message=text, rank=cause.rank)

    def overdue(self) -> Overdue:
        """How the ranks stand, while not :attr:`is_over`, for a job whose time has run out."""
        # A rank of a gang that has returned waits for its peers before its process ends: it is not what took long.
        closing = {rank for rank in self._running if self._phases.get(rank) == RankPhase.FINISH}
        running = self._running - closing
        words = explain_overdue(running, self._hosts.keys() - running, closing)
        return Overdue(words, min(running or closing))

    def unsure(self) -> Iterable[Host]:
        """Hosts whose agents are gone, while of the hosts themselves nothing is known."""
        return [self._hosts[f.rank] for f in self.failures if f.unsure]

    def _ended(self, rank: int, outcome: Outcome, *, fenced: bool) -> list[Note]:
        if outcome.ok:
            self._running.discard(rank)
            return [(EventKind.RANK_ENDED, {"rank": rank, "ok": True})]
        if fenced and outcome.reason == Reason.CANCELLED:  # it was well; an error of its own would stand there instead
            self._running.discard(rank)
            self._stopped.add(rank)
            fields = {"rank": rank, "ok": False, "reason": str(Reason.CANCELLED), "message": "stopped with the others"}
            return [(EventKind.RANK_ENDED, fields)]
        if rank in self._going and outcome.exit_code == -signal.SIGTERM:
            self._patient = False  # the notice itself has ended it: nobody there makes use of the grace
        return self._fail(failure_of(outcome, self._hosts[rank].where, len(self._hosts)))

    def _fail(self, failure: Failure) -> list[Note]:
        if self._going and failure.reason not in (Reason.PREEMPTED, Reason.NODE_LOST):
            going = "its host" if failure.rank in self._going else self._hosts[self._going[0]].where
            text = f"{going} was being preempted; {failure.message}"
            failure = replace(failure, reason=Reason.PREEMPTED, message=text, unsure=False)
        self._running.discard(failure.rank)
        self.failures.append(failure)
        fields = {"rank": failure.rank, "ok": False, "reason": str(failure.reason), "message": failure.message}
        return [(EventKind.RANK_ENDED, fields)]

    def _failure(self, rank: int, reason: Reason, message: str, *, unsure: bool = False) -> Failure:
        return Failure(rank, reason, message, self._hosts[rank].where, self._phases.get(rank, ""), unsure=unsure)

    def _is_unsure(self, rank: int) -> bool:
        return any(f.rank == rank and f.unsure for f in self.failures)


def reading_of(lost: HostLost) -> tuple[Reason, str]:
    """What the loss of a host means for its rank: a reason, and words for people."""
    if lost.reason == "Preempted":
        return Reason.PREEMPTED, "its host was preempted"
    return Reason.NODE_LOST, _LOSSES.get(lost.reason, f"its host was lost ({lost.reason})")

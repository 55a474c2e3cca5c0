"""Which of several failures caused the others, and how to say it."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from kinetic_ray.core.outcome import Outcome
from kinetic_ray.core.state import BEFORE_CALL, Reason

#: What collectives, jax's coordination service and gRPC say when somebody else is gone.
_PEER_TEXT = re.compile(
    r"connection (closed|reset) by peer|connection refused|socket closed|broken pipe|gloo [\w -]+ failed"
    r"|\bUNAVAILABLE:|\bABORTED:.*(peer|task)|coordination service"
    r"|heartbeat timeout|stopped sending heartbeats|unhealthy \(stopped|another task died"
    r"|deadline[ _]exceeded.*(barrier|coordination|rendezvous)|barrier timed out|read timeout \[|timed out waiting \d",
    re.IGNORECASE,
)
#: Classes that collectives raise. A user's own class, or a ConnectionError of the user's own sockets, is never one.
_PEER_CLASSES = frozenset({"JaxRuntimeError", "XlaRuntimeError", "RuntimeError", "DistBackendError"})
#: jax's client ends the process with these words when the coordination service tells it that another task died.
_FATAL_TEXT = "because the JAX distributed service detected fatal errors"

#: The smaller, the more of a cause: what happens to a host kills a process, which breaks its peers' connections.
_WEIGHT = {Reason.PREEMPTED: 0, Reason.NODE_LOST: 0, Reason.PEER_LOST: 2}


@dataclass(frozen=True, slots=True)
class Failure:
    """One rank that ended without a value by itself; being stopped with the others is none.

    Attributes:
        rank: The rank.
        reason: Why.
        message: One line, without the rank's name.
        where: The place, e.g. "host 2 of tpu-v6e-16-0".
        phase: The named phase that it was in, "" where unknown.
        unsure: Whether something deeper may lie under it: its agent is gone, but whether the host is too is not known.
        log_tail: Its last log lines.
    """

    rank: int
    reason: Reason
    message: str
    where: str = ""
    phase: str = ""
    unsure: bool = False
    log_tail: str = ""

    @property
    def is_open(self) -> bool:
        """Whether to look around for a moment before this failure is named as the cause."""
        return self.unsure or self.reason is Reason.PEER_LOST


def failure_of(outcome: Outcome, where: str, world_size: int) -> Failure:
    """The failure that an outcome without a value tells of.

    Args:
        outcome: The outcome.
        where: The rank's place.
        world_size: Ranks in the gang; one alone has no peers to lose.
    """
    reason = Reason(outcome.reason) if outcome.reason else Reason.PROCESS_DIED
    if world_size > 1 and _tells_of_a_peer(outcome, reason):
        reason = Reason.PEER_LOST
    message = outcome.message or (outcome.error.message if outcome.error else "") or str(reason)
    return Failure(outcome.rank, reason, message, where, outcome.phase, log_tail=outcome.log_tail)


def _tells_of_a_peer(outcome: Outcome, reason: Reason) -> bool:
    if reason is Reason.PEER_LOST:
        return True
    if reason is Reason.PROCESS_DIED:
        return _FATAL_TEXT in outcome.log_tail
    if reason not in (Reason.USER_ERROR, Reason.SETUP_ERROR) or outcome.error is None:
        return False
    if reason is Reason.SETUP_ERROR and outcome.phase != "init":
        return False
    error = outcome.error
    theirs = error.type_name in _PEER_CLASSES and error.module != "__main__"
    return theirs and _PEER_TEXT.search(error.message) is not None


def cause_of(failures: Sequence[Failure]) -> Failure:
    """The failure that caused the others.

    A first failure that is sure of itself is the cause. Under one that isn't, the deepest counts: a lost host, then
    anything a rank did by itself, then a lost peer; among equals the first to arrive.

    Args:
        failures: In order of arrival, at least one.
    """
    first = failures[0]
    if not first.is_open:
        return first
    return min(failures, key=lambda failure: (_WEIGHT.get(failure.reason, 1), failure.unsure))


def explain(cause: Failure, failures: Sequence[Failure], stopped: Collection[int]) -> str:
    """The text of an attempt's end: the causing rank first, what followed from it underneath.

    Args:
        cause: What :func:`cause_of` gave.
        failures: All failures, the cause among them.
        stopped: Ranks that were well and were stopped with the others.

    Example:
        >>> lost = Failure(1, Reason.NODE_LOST, "its host was lost", "host 1 of tpu-v6e-8-0")
        >>> print(explain(lost, [lost], stopped=[0]))
        rank 1 (host 1 of tpu-v6e-8-0): its host was lost
          stopped with it: rank 0
    """
    lines = [_line(cause)]
    others = sorted((f for f in failures if f.rank != cause.rank), key=lambda f: f.rank)
    lines += [f"  after it: {_line(other)}" for other in others]
    if stopped:
        noun = "rank" if len(stopped) == 1 else "ranks"
        lines.append(f"  stopped with it: {noun} {_spans(stopped)}")
    return "\n".join(lines)


def _line(failure: Failure) -> str:
    place = f" ({failure.where})" if failure.where else ""
    before = failure.phase in BEFORE_CALL and failure.reason not in (Reason.NODE_LOST, Reason.PREEMPTED)
    phase = f" in phase {failure.phase}" if before else ""
    first_line = failure.message.strip().partition("\n")[0]
    return f"rank {failure.rank}{place}{phase}: {first_line}"


def _spans(ranks: Collection[int]) -> str:
    """Numbers as text, runs joined: [0, 1, 2, 5] is "0-2, 5"."""
    spans: list[list[int]] = []
    for rank in sorted(ranks):
        if spans and rank == spans[-1][1] + 1:
            spans[-1][1] = rank
        else:
            spans.append([rank, rank])
    return ", ".join(f"{a}" if a == b else f"{a}-{b}" for a, b in spans)

"""Which of several failures caused the others, and how to say it."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from kinetic_ray.core.outcome import Outcome
from kinetic_ray.core.state import BEFORE_CALL, Reason

#: JAX's own errors. What they say of a peer, of the coordination service or of gRPC is about the gang.
_JAX_ERRORS = frozenset({"JaxRuntimeError", "XlaRuntimeError"})
_JAX_TEXT = re.compile(
    r"connection (closed|reset|refused)|(closed|reset) by peer|socket closed|broken pipe|gloo|coordination service"
    r"|coordinator|heartbeat|barrier|another task|preempted|UNAVAILABLE|ABORTED",
    re.IGNORECASE,
)
#: Others (torch's gloo, and JAX itself in the middle of a call) raise plain classes, in which only the transport's very
#: words count.
_PLAIN_ERRORS = frozenset({"RuntimeError", "DistBackendError", "ValueError"})
_PLAIN_TEXT = re.compile(
    r"\bconnection (closed|reset) by peer \[|\btimed out waiting \d+ms"
    r"|\b(read|write|connect)\w* error \[[^\]]*\]:\d+: |\bpair\.cc:\d+\].*(connect|socket|broken pipe)",
    re.IGNORECASE,
)
#: The client of JAX's coordination service ends the process with these words when another task has died.
_LAST_WORDS = re.compile(r"JAX distributed service detected fatal errors|leader process.* died", re.IGNORECASE)

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


def is_peer_loss(type_name: str, message: str) -> bool:
    """Whether an exception tells of the loss of a peer. A ConnectionError of the user's own sockets doesn't.

    Args:
        type_name: Its class's name.
        message: `str(exc)`.

    Example:
        >>> is_peer_loss("JaxRuntimeError", "UNKNOWN: Gloo all-reduce failed: Connection closed by peer")
        True
    """
    if type_name in _JAX_ERRORS:
        return _JAX_TEXT.search(message) is not None
    return type_name in _PLAIN_ERRORS and _PLAIN_TEXT.search(message) is not None


def aborted_for_peer(last_words: str) -> bool:
    """Whether the last words in a dead process's log say that the loss of a peer aborted it."""
    return _LAST_WORDS.search(last_words) is not None


def failure_of(outcome: Outcome, where: str, world_size: int) -> Failure:
    """The failure that an outcome without a value tells of.

    Args:
        outcome: The outcome.
        where: The rank's place.
        world_size: Ranks in the gang; one alone has no peers to lose.
    """
    reason = Reason(outcome.reason) if outcome.reason else Reason.PROCESS_DIED
    if reason is Reason.PEER_LOST and world_size == 1:
        reason = _reason_alone(outcome)
    message = outcome.message or (outcome.error.message if outcome.error else "") or str(reason)
    return Failure(outcome.rank, reason, message, where, outcome.phase, log_tail=outcome.log_tail)


def _reason_alone(outcome: Outcome) -> Reason:
    if outcome.error is None:
        return Reason.PROCESS_DIED
    return Reason.SETUP_ERROR if outcome.phase in BEFORE_CALL else Reason.USER_ERROR


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
    lines += [f"  after it: {line}" for line in _together(others)]
    if stopped:
        lines.append(f"  stopped with it: {_named(stopped)}")
    return "\n".join(lines)


def explain_overdue(running: Collection[int], returned: Collection[int], closing: Collection[int] = ()) -> str:
    """How the ranks stood when the job's time ran out; at least one of them has not ended.

    Args:
        running: Ranks whose function had not returned.
        returned: Ranks whose function had.
        closing: Those of `returned` whose processes had not ended.

    Example:
        >>> explain_overdue(running=[3], returned=[0, 1, 2])
        'rank 3 was still running; ranks 0-2 had returned'
    """
    if running:
        words = f"{_named(running)} {'was' if len(running) == 1 else 'were'} still running"
        return f"{words}; {_named(returned)} had returned" if returned else words
    rest, theirs = ("process", "its") if len(closing) == 1 else ("processes", "their")
    held = "an exit handler, or a thread that is no daemon, may have held it up"
    return f"{_named(closing)} had returned, but {theirs} {rest} had not ended: {held}"


def _named(ranks: Collection[int]) -> str:
    return f"{'rank' if len(ranks) == 1 else 'ranks'} {_spans(ranks)}"


def _together(failures: Sequence[Failure]) -> Iterator[str]:
    """A line for each, and one for all that have the same to say: a lost slice has up to hundreds of hosts."""
    alike: dict[str, list[Failure]] = {}
    for failure in failures:
        alike.setdefault(_said(failure), []).append(failure)
    for said, group in alike.items():
        yield _line(group[0]) if len(group) == 1 else f"each of {_named([f.rank for f in group])}{said}"


def _line(failure: Failure) -> str:
    place = f" ({failure.where})" if failure.where else ""
    return f"rank {failure.rank}{place}{_said(failure)}"


def _said(failure: Failure) -> str:
    before = failure.phase in BEFORE_CALL and failure.reason not in (Reason.NODE_LOST, Reason.PREEMPTED)
    phase = f" in phase {failure.phase}" if before else ""
    first_line = failure.message.strip().partition("\n")[0]
    return f"{phase}: {first_line}"


def _spans(ranks: Collection[int]) -> str:
    """Numbers as text, runs joined: [0, 1, 2, 5] is "0-2, 5"."""
    spans: list[list[int]] = []
    for rank in sorted(ranks):
        if spans and rank == spans[-1][1] + 1:
            spans[-1][1] = rank
        else:
            spans.append([rank, rank])
    return ", ".join(f"{a}" if a == b else f"{a}-{b}" for a, b in spans)

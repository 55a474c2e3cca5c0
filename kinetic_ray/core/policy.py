"""What to do when an attempt ends: the pure decision that the driver's loop asks for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from kinetic_ray.core.state import Reason


class Restart(StrEnum):
    """When a gang is started again."""

    NEVER = "never"


@dataclass(frozen=True, slots=True)
class FailurePolicy:
    """What the user wants to happen when an attempt fails.

    Attributes:
        restart: When to start the gang again.
    """

    restart: Restart = Restart.NEVER


@dataclass(frozen=True, slots=True)
class AttemptEnd:
    """How one attempt ended.

    Attributes:
        attempt: Its number, from 1.
        ok: Whether every rank succeeded.
        reason: Why not; None when ok.
        message: For people: the causing rank first, the collateral under it.
        rank: The causing rank; None where no rank caused it.
    """

    attempt: int
    ok: bool
    reason: Reason | None = None
    message: str = ""
    rank: int | None = None


class Action(StrEnum):
    """What the driver does next."""

    SUCCEED = "succeed"
    FAIL = "fail"
    RESTART = "restart"


def decide(policy: FailurePolicy, history: Sequence[AttemptEnd], event: AttemptEnd) -> Action:
    """What follows the end of an attempt.

    Args:
        policy: The job's policy.
        history: The attempts before this one, oldest first.
        event: The attempt that has just ended.

    Example:
        >>> decide(FailurePolicy(), (), AttemptEnd(1, ok=False, reason=Reason.NODE_LOST))
        <Action.FAIL: 'fail'>
    """
    if any(earlier.ok for earlier in history):
        raise ValueError(f"attempt {event.attempt} follows one that succeeded")
    if event.ok:
        return Action.SUCCEED
    if policy.restart is Restart.NEVER:
        return Action.FAIL
    raise ValueError(f"unknown restart rule {policy.restart!r}")

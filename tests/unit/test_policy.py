"""What follows the end of an attempt."""

import pytest

from kinetic_ray.core.policy import Action, AttemptEnd, FailurePolicy, decide
from kinetic_ray.core.state import Reason


def test_a_clean_end_succeeds() -> None:
    assert decide(FailurePolicy(), (), AttemptEnd(1, ok=True)) is Action.SUCCEED


@pytest.mark.parametrize("reason", list(Reason))
def test_never_restart_means_never(reason: Reason) -> None:
    end = AttemptEnd(1, ok=False, reason=reason, message="rank 0: gone", rank=0)
    assert decide(FailurePolicy(), (), end) is Action.FAIL


def test_nothing_follows_a_success() -> None:
    with pytest.raises(ValueError, match="attempt 2 follows one that succeeded"):
        decide(FailurePolicy(), (AttemptEnd(1, ok=True),), AttemptEnd(2, ok=False))

"""What is tried again, how often and for how long."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinetic_ray.errors import ConfigError, DataError, StoreError, UsageError
from kinetic_ray.journal import Fenced
from kinetic_ray.runner.patience import Trouble, is_passing, retried
from kinetic_ray.store import MissingKey


@pytest.mark.parametrize(
    ("error", "passing"),
    [
        (StoreError("away"), True),
        (OSError(5, "Input/output error"), True),
        (OSError(28, "No space left on device"), True),
        (ConnectionResetError(), True),
        (MissingKey("no object 'x'"), False),
        (DataError("torn"), False),
        (UsageError("no job"), False),
        (ConfigError("newer"), False),
        (Fenced("epoch 2"), False),
        (TypeError("our own fault"), False),
    ],
)
def test_what_passes(error: Exception, passing: bool) -> None:
    assert is_passing(error) is passing
    tries = [error]
    if passing:
        assert retried(lambda: _fail(tries), wait=lambda _: None) == "done"
    else:
        with pytest.raises(type(error)):
            retried(lambda: _fail(tries), wait=lambda _: None)


def _fail(errors: list[Exception]) -> str:
    if errors:
        raise errors.pop()
    return "done"


@given(budget=st.floats(0.0, 1000.0), took=st.lists(st.floats(0.0, 30.0), max_size=30))
def test_it_is_tried_until_the_budget_is_over_and_at_its_end(budget: float, took: list[float]) -> None:
    now, costs = [0.0], iter(took)
    tries: list[float] = []

    def act() -> None:
        tries.append(now[0])
        now[0] += next(costs, 0.0)
        raise StoreError("away")

    def wait(seconds: float) -> None:
        assert 0 < seconds <= 5.0
        now[0] += seconds

    with pytest.raises(StoreError):
        retried(act, budget, clock=lambda: now[0], wait=wait)
    since = tries[0] + (took[0] if took else 0.0)  # the first failure
    assert now[0] >= since + budget  # not given up before
    assert all(each < since + budget + 1e-6 for each in tries)  # and not tried after


def test_a_success_begins_a_new_stretch() -> None:
    now = [0.0]
    trouble = Trouble(1.0, clock=lambda: now[0])
    assert trouble.is_new
    assert trouble.pause(StoreError("away")) == 0.1
    assert not trouble.is_new
    trouble.over()
    now[0] = 5.0
    assert trouble.is_new
    assert trouble.pause(StoreError("away")) == 0.1
    now[0] = 6.0
    with pytest.raises(StoreError):
        trouble.pause(StoreError("away"))

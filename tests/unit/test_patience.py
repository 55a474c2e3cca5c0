"""What is tried again, how often and for how long."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinetic_ray.errors import ConfigError, DataError, StoreError, UsageError
from kinetic_ray.journal import Fenced
from kinetic_ray.store import MissingKey
from kinetic_ray.store.patience import Trouble, Until, is_passing, retried, waited_out, waited_out_aside


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
    assert trouble.pause(StoreError("away")) == 0.1
    trouble.over()
    now[0] = 5.0
    assert trouble.pause(StoreError("away")) == 0.1
    now[0] = 6.0
    with pytest.raises(StoreError):
        trouble.pause(StoreError("away"))


@pytest.mark.parametrize("deadline", [None, 30.0])
def test_who_waits_in_front_of_a_screen_is_told_once_and_waits_to_the_end(
    deadline: float | None, caplog: pytest.LogCaptureFixture
) -> None:
    """A deadline is the caller's, and bounds what follows the first failure as well as what was before it."""
    now, tries = [20.0], [0]

    def act() -> str:
        tries[0] += 1
        if tries[0] < 20:
            raise OSError(5, "Input/output error")
        return "done"

    def wait(seconds: float) -> None:
        now[0] += seconds

    trouble = Until(deadline, "nothing can be read", clock=lambda: now[0])
    if deadline is None:
        assert waited_out(act, trouble, wait=wait) == "done"
    else:
        tries[0] = -1000
        with pytest.raises(TimeoutError, match=r"nothing can be read just now: .*Input/output"):
            waited_out(act, trouble, wait=wait)
        assert now[0] == pytest.approx(deadline)
    assert len(caplog.messages) == 1


def test_only_what_means_the_store_is_waited_out() -> None:
    """Who prints what is read: a pipe that nobody reads any more is no trouble with the store."""

    def act() -> None:
        raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        waited_out(act, Trouble(), blips=(StoreError,), wait=lambda _: None)


def test_an_event_loop_waits_aside() -> None:
    tries: list[Exception] = [StoreError("away")]
    assert asyncio.run(waited_out_aside(lambda: _fail(tries), Trouble())) == "done"
    with pytest.raises(DataError):
        asyncio.run(waited_out_aside(lambda: _fail([DataError("torn")]), Trouble()))

"""When a process is told that its calls wait, and in which words."""

from hypothesis import given
from hypothesis import strategies as st

from kinetic_ray.runner.calls.telling import PATIENCE, PAUSE, Telling, Wait

BUSY = "waiting for 1 x tpu-v6e-16; first in the queue; held by job-a (fit)"
BEHIND = "waiting for 1 x tpu-v6e-16; position 2 in the queue, behind job-b (eval)"


def wait(call: int = 1, reason: str = BUSY, *, client: str = "c1", name: str = "train", key: str = "k") -> Wait:
    return Wait(call, client, name, key, reason)


def test_only_a_call_that_waits_for_long_is_told_of_and_once() -> None:
    telling = Telling()
    assert telling.look([wait()], 0.0) == []
    assert telling.look([wait()], PATIENCE - 0.1) == []
    line = "kinetic: train waits for 1 x tpu-v6e-16; first in the queue; held by job-a (fit)"
    assert telling.look([wait()], PATIENCE) == [("c1", line)]
    assert telling.look([wait()], PATIENCE + 10 * PAUSE) == []


def test_another_reason_is_told_after_a_pause() -> None:
    telling = Telling(patience=1.0, pause=3.0)
    telling.look([wait()], 0.0)
    assert telling.look([wait()], 1.0)
    assert telling.look([wait(reason=BEHIND)], 3.9) == []
    assert telling.look([wait(reason=BEHIND)], 4.0) == [
        ("c1", "kinetic: train waits for 1 x tpu-v6e-16; position 2 in the queue, behind job-b (eval)")
    ]


def test_a_reason_that_was_another_for_a_moment_is_no_news() -> None:
    telling = Telling(patience=1.0, pause=3.0)
    telling.look([wait()], 0.0)
    assert telling.look([wait()], 1.0)
    telling.look([wait(reason=BEHIND)], 2.0)
    assert telling.look([wait()], 9.0) == []


def test_calls_of_one_kind_are_told_of_together_and_each_process_of_its_own() -> None:
    telling = Telling(patience=1.0)
    waits = [wait(1), wait(2), wait(3, client="c2"), wait(4, name="eval"), wait(5)]
    telling.look(waits, 0.0)
    told = telling.look(waits, 1.0)
    assert [(client, line.split(" for ")[0]) for client, line in told] == [
        ("c1", "kinetic: 3 calls of train wait"),
        ("c2", "kinetic: train waits"),
        ("c1", "kinetic: eval waits"),
    ]


def test_a_call_that_began_to_wait_after_the_last_word_is_told_of_too() -> None:
    telling = Telling(patience=1.0, pause=3.0)
    telling.look([wait(1), wait(2)], 0.0)
    assert telling.look([wait(1), wait(2)], 1.0)
    telling.look([wait(2), wait(3)], 2.0)
    assert telling.look([wait(2), wait(3)], 9.0) == []  # it was meant as well
    assert len(telling.look([wait(3)], 9.0)) == 1


@given(
    st.lists(st.tuples(st.floats(0.0, 20.0), st.sets(st.integers(0, 3)), st.sampled_from([BUSY, BEHIND])), max_size=40)
)
def test_no_process_is_told_more_often_than_it_can_bear(looks: list[tuple[float, set[int], str]]) -> None:
    telling = Telling()
    now, said, seen = 0.0, -PAUSE, dict[int, float]()
    for later, calls, reason in looks:
        now += later
        seen = {call: seen.get(call, now) for call in sorted(calls)}
        if telling.look([wait(call, reason) for call in sorted(calls)], now):
            assert now - said >= PAUSE
            assert now - seen[min(calls)] >= PATIENCE
            said = now

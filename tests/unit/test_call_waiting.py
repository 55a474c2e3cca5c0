"""Calls that wait: in order, and no more of them are looked at than can matter."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kinetic_ray.runner.calls.errands import Code, Errand
from kinetic_ray.runner.calls.roster import MAX_ASKS, Need, Phase, Standing, plan
from kinetic_ray.runner.calls.waiting import Waiting
from kinetic_ray.runner.calls.wish import Order, Wish

NOW = 1000.0


def errand(number: int, main: str = "a.py", priority: int = 0) -> Errand:
    order = Order(Wish(main=main), "digest", "f", "01000000", priority=priority)
    done: Any = None
    return Errand(number, order, order.to_bytes(), Code(), None, done)


def test_who_came_first_is_first_among_those_of_the_highest_priority() -> None:
    waiting = Waiting()
    calls = [errand(1), errand(2, priority=5), errand(3, "b.py"), errand(4, priority=5)]
    for call in calls:
        waiting.add(call)
    key = calls[0].need.key
    served = []
    while (first := waiting.first_of(key)) is not None:
        assert waiting.pop(first.number) is first
        served.append(first.number)
    assert served == [2, 4, 1]
    assert len(waiting) == 1
    assert [need.number for need in waiting.needs(9)] == [3]


def test_one_that_waits_again_has_its_old_place() -> None:
    waiting = Waiting()
    first, second = errand(1), errand(2)
    for call in (first, second):
        waiting.add(call)
    waiting.pop(1)
    waiting.add(first)
    assert waiting.first_of(first.need.key) is first
    assert waiting.pop(7) is None
    assert {one.number for one in waiting.all()} == {1, 2}


NEEDS = st.lists(st.tuples(st.sampled_from(("a.py", "b.py")), st.integers(0, 2)), max_size=60)
GANGS = st.lists(
    st.tuples(st.integers(0, 1), st.sampled_from(Phase), st.booleans(), st.sampled_from((0.0, 1e-3, 1e3))), max_size=8
)


@given(NEEDS, GANGS)
def test_looking_at_the_first_decides_as_looking_at_all(
    needs: list[tuple[str, int]], gangs: list[tuple[int, Phase, bool, float]]
) -> None:
    waiting = Waiting()
    calls = [errand(number, *need) for number, need in enumerate(needs)]
    for call in calls:
        waiting.add(call)
    keys = [errand(0, main).need for main in ("a.py", "b.py")]
    standings = [
        Standing(f"call-{n}", keys[which].key, phase, NOW - ago, keys[which].stem, client="01000000", is_wanted=wanted)
        for n, (which, phase, wanted, ago) in enumerate(gangs)
    ]
    everything: list[Need] = [call.need for call in calls]
    few = plan(waiting.needs(len(standings) + MAX_ASKS), standings, NOW)
    whole = plan(everything, standings, NOW)
    assert set(few.steps) == set(whole.steps)
    assert few.look_at == whole.look_at


def test_a_queue_of_thousands_is_looked_at_by_its_beginning() -> None:
    waiting = Waiting()
    for number in range(5000):
        waiting.add(errand(number))
    assert [need.number for need in waiting.needs(9)] == list(range(9))
    for number in range(5000):
        waiting.pop(number)
    assert waiting.needs(9) == []
    assert len(waiting) == 0

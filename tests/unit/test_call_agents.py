"""Agents that rest: which of them a gang gets, and which go."""

from typing import Any

import pytest

from kinetic_ray.runner.calls.agents import KEPT, UNUSED, Agent, choose, surplus

NOW = 1000.0


def agent(node: str = "n", ago: float = UNUSED + 1, **more: Any) -> Agent:
    given = {"used": False, "rested_at": NOW - ago, **more}
    return Agent("place", node, None, **given)


def test_those_that_rested_longest_go_and_some_stay() -> None:
    resting = [agent(ago=UNUSED + 10 - number) for number in range(5)]
    assert surplus(resting, NOW) == resting[: 5 - KEPT][::-1]


def test_each_node_keeps_its_own() -> None:
    assert surplus([agent(node) for node in "ab" for _ in range(KEPT)], NOW) == []


def test_what_is_used_or_was_just_now_or_has_children_stays() -> None:
    busy = [agent(used=True), agent(ago=UNUSED - 1), agent(tenant="call-a")] * (KEPT + 1)
    assert surplus(busy, NOW) == []


MINE = {"tenant": "call-a", "stem": "s", "plan": "p"}
FREE, FREE_OF_MY_KIND = {"plan": "q"}, {"plan": "p"}
OLDER_CODE = {"tenant": "call-b", "stem": "s", "plan": "p"}
FOREIGN = {"tenant": "call-c", "stem": "other", "plan": "q"}


@pytest.mark.parametrize(
    ("resting", "at_most", "chosen"),
    [
        ([], 6, None),
        ([FREE, MINE, OLDER_CODE], 6, MINE),
        ([OLDER_CODE, FREE, FREE_OF_MY_KIND, FOREIGN], 6, FREE_OF_MY_KIND),
        ([FOREIGN, OLDER_CODE], 6, OLDER_CODE),
        ([FOREIGN], 6, None),  # somebody's warm children: there is room for another
        ([FOREIGN], 1, FOREIGN),
    ],
)
def test_the_agent_that_costs_least_is_taken(
    resting: list[dict[str, str]], at_most: int, chosen: dict[str, str] | None
) -> None:
    agents = [agent(**one) for one in resting]
    found = choose(agents, "call-a", "p", "s", at_most)
    assert found is (None if chosen is None else agents[resting.index(chosen)])

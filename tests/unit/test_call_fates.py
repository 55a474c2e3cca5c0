"""What became of a host that a process called itself: who is asked, and which word counts."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from kinetic_ray.core.state import Reason
from kinetic_ray.runner.calls.agents import Agent
from kinetic_ray.runner.calls.fates import Fates
from kinetic_ray.runner.calls.wish import Order, Wish
from kinetic_ray.runner.inbox import HostLost
from tests.unit.loops import PATIENCE, turn


def agent(number: int = 1, *, actor: str = "") -> Agent:
    handle = SimpleNamespace(_actor_id=bytes([number]))
    order = Order(Wish(), "digest", "train", "01000000", actor=actor)
    return Agent("place", f"node-{number}", handle, slice_name="tpu-v6e-4-0", opened=("call-a", order))


def lost(reason: str) -> HostLost:
    return HostLost("node-1", "tpu-v6e-4-0", 0, reason)


@pytest.mark.parametrize(
    ("reason", "told", "words"),
    [
        ("Preempted", Reason.PREEMPTED, "train on tpu-v6e-4-0: rank 0: its host was preempted"),
        ("NodeLost", Reason.NODE_LOST, "train on tpu-v6e-4-0: rank 0: its host is gone"),
    ],
)
def test_the_word_of_who_watches_hosts_counts_also_if_it_comes_later(reason: str, told: Reason, words: str) -> None:
    async def scenario() -> None:
        fates = Fates(lambda _: True, PATIENCE)
        asking = asyncio.create_task(fates.of(agent()))
        await turn()
        fates.lose_host(HostLost("node-2", "", 0, "NodeLost"))
        await turn()
        fates.lose_host(lost(reason))
        failure = await asking
        assert (failure.reason, failure.gang, failure.actor) == (told, "call-a", "")
        assert str(failure) == words
        assert str(await fates.of(agent())) == words

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("is_alive", "reason", "words"),
    [
        (True, Reason.PROCESS_DIED, "its host agent is gone: killed"),
        (False, Reason.NODE_LOST, "doesn't answer any more"),
    ],
)
def test_without_any_word_the_host_is_asked_for(is_alive: bool, reason: Reason, words: str) -> None:
    async def scenario() -> None:
        gone = agent()
        gone.dead = "killed"
        failure = await Fates(lambda _: is_alive, 0.0).of(gone)
        assert failure.reason == reason
        assert words in str(failure)

    asyncio.run(scenario())


def test_the_failure_of_an_instance_names_it() -> None:
    async def scenario() -> None:
        fates = Fates(lambda _: True, 0.0)
        fates.lose_host(lost("Preempted"))
        assert (await fates.of(agent(actor="act-1"))).actor == "act-1"

    asyncio.run(scenario())


def test_agents_are_remembered_for_a_while() -> None:
    async def scenario() -> None:
        fates = Fates(lambda _: True, 0.0)
        many: list[Any] = [agent(number % 256) for number in range(300)]
        for one in many:
            fates.lose_agent(one)
        assert fates.find("2b") is many[299]
        assert fates.find("nobody") is None

    asyncio.run(scenario())

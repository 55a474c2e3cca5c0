"""Arguments that calls wait for: each is looked after while somebody waits for it, and no longer."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from kinetic_ray.runner.calls.errands import Readiness
from tests.unit.loops import until


class Store:
    """Stands in for `ray.wait`: what is there is the test's to say."""

    def __init__(self) -> None:
        self.there: set[str] = set()
        self.asked: list[Sequence[str]] = []

    def wait(self, refs: Sequence[str], *, num_returns: int, timeout: float, fetch_local: bool) -> Any:
        assert not fetch_local
        self.asked.append(refs)
        ready = [ref for ref in refs if ref in self.there][:num_returns]
        return ready, [ref for ref in refs if ref not in ready]


def test_a_call_waits_for_all_of_its_arguments() -> None:
    async def scenario() -> None:
        store = Store()
        readiness = Readiness(store.wait)
        waiting = asyncio.create_task(readiness.wait(["a", "b"]))
        await until(lambda: ["a"] in store.asked)
        store.there.add("a")
        await until(lambda: ["b"] in store.asked)
        assert not waiting.done()
        store.there.add("b")
        await waiting
        await readiness.wait([])
        await readiness.wait(["a"])  # once more

    asyncio.run(scenario())


def test_two_wait_for_the_same_and_one_gives_up() -> None:
    async def scenario() -> None:
        store = Store()
        readiness = Readiness(store.wait)
        first, second = (asyncio.create_task(readiness.wait(["a"])) for _ in range(2))
        await until(lambda: bool(store.asked))
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        store.there.add("a")
        await second

    asyncio.run(scenario())


def test_what_nobody_waits_for_any_more_is_forgotten() -> None:
    async def scenario() -> None:
        store = Store()
        readiness = Readiness(store.wait)
        gone = asyncio.create_task(readiness.wait(["never"]))
        await until(lambda: bool(store.asked))
        gone.cancel()
        with pytest.raises(asyncio.CancelledError):
            await gone
        other = asyncio.create_task(readiness.wait(["a"]))
        await until(lambda: ["a"] in store.asked)
        store.there.add("a")
        await other

    asyncio.run(scenario())

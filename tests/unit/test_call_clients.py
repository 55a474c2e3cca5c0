"""What waits for processes that call, and what is kept of those that have gone."""

import asyncio

from kinetic_ray.runner.calls.clients import MAX_LINES, Clients
from tests.unit.loops import PATIENCE, turn

NOTHING = {"lines": [], "recalled": []}


def test_what_there_is_is_told_once() -> None:
    async def scenario() -> None:
        clients = Clients()
        clients.say("a", [("f", 0, "", "one"), ("f", 0, "", "two")])
        clients.recall("a", "call-1")
        told = await clients.listen("a", PATIENCE)
        assert told == {"lines": [["f", 0, "", "one"], ["f", 0, "", "two"]], "recalled": ["call-1"]}
        assert await clients.listen("a", 0.0) == await clients.listen("b", 0.0) == NOTHING

    asyncio.run(scenario())


def test_who_listens_hears_at_once() -> None:
    async def scenario() -> None:
        clients = Clients()
        hearing = asyncio.create_task(clients.listen("a", PATIENCE))
        await turn()
        clients.say("b", [("f", 0, "", "not for it")])
        clients.say("a", [("f", 0, "", "now")])
        assert (await hearing)["lines"] == [["f", 0, "", "now"]]

    asyncio.run(scenario())


def test_of_one_that_has_gone_nothing_is_kept_until_it_comes_again() -> None:
    async def scenario() -> None:
        clients = Clients()
        hearing = asyncio.create_task(clients.listen("a", PATIENCE))
        await turn()
        assert clients.known() == {"a"}
        clients.leave("a")
        assert await hearing == NOTHING
        clients.say("a", [("f", 0, "", "late")])
        clients.recall("a", "call-1")
        assert clients.known() == set()
        clients.welcome("a")
        clients.say("a", [("f", 0, "", "again")])
        assert (await clients.listen("a", 0.0))["lines"] == [["f", 0, "", "again"]]

    asyncio.run(scenario())


def test_of_too_many_lines_the_last_are_kept() -> None:
    async def scenario() -> None:
        clients = Clients()
        clients.say("a", [("f", 0, "", str(number)) for number in range(MAX_LINES + 5)])
        lines = (await clients.listen("a", 0.0))["lines"]
        assert (len(lines), lines[0][3], lines[-1][3]) == (MAX_LINES, "5", str(MAX_LINES + 4))

    asyncio.run(scenario())

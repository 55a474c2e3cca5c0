"""What waits for processes that call, and what is kept of those that have gone."""

import asyncio
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kinetic_ray.runner.calls.clients import Clients, Line
from tests.unit.loops import PATIENCE, turn

FIRST = ("", 0)  # what a process has got before the first answer


def line(text: object, name: str = "f") -> Line:
    return [name, 0, "", str(text)]


def texts(answer: dict[str, Any]) -> list[str]:
    return [text for *_, text in answer["lines"]]


def got(answer: dict[str, Any]) -> tuple[str, int]:
    return answer["box"], answer["number"]


async def all_of(clients: Clients, client: str, last: tuple[str, int] = FIRST) -> list[Line]:
    """What a process gets that asks again and again until there is nothing."""
    lines = []
    while (answer := await clients.listen(client, 0.0, last))["lines"]:
        last = got(answer)
        lines += answer["lines"]
    assert client not in clients.behind()
    return lines


def test_what_there_is_is_told_once() -> None:
    async def scenario() -> None:
        clients = Clients()
        await clients.say("a", [line("one"), line("two")])
        clients.recall("a", "call-1")
        assert clients.behind() == {"a"}
        told = await clients.listen("a", PATIENCE, FIRST)
        assert (texts(told), told["recalled"]) == (["one", "two"], ["call-1"])
        for client, before in (("a", got(told)), ("b", FIRST)):
            nothing = await clients.listen(client, 0.0, before)
            assert (nothing["lines"], nothing["recalled"]) == ([], [])

    asyncio.run(scenario())


def test_who_listens_hears_at_once() -> None:
    async def scenario() -> None:
        clients = Clients()
        hearing = asyncio.create_task(clients.listen("a", PATIENCE, FIRST))
        await turn()
        await clients.say("b", [line("not for it")])
        await clients.say("a", [line("now")])
        assert texts(await hearing) == ["now"]

    asyncio.run(scenario())


def test_of_one_that_has_gone_nothing_is_kept_until_it_comes_again() -> None:
    async def scenario() -> None:
        clients = Clients()
        hearing = asyncio.create_task(clients.listen("a", PATIENCE, FIRST))
        await turn()
        assert clients.known() == {"a"}
        clients.leave("a")
        assert texts(await hearing) == []
        await clients.say("a", [line("late")])
        clients.note("a", "late")
        clients.recall("a", "call-1")
        assert clients.known() == set()
        clients.welcome("a")
        await clients.say("a", [line("again")])
        assert texts(await clients.listen("a", 0.0, FIRST)) == ["again"]

    asyncio.run(scenario())


@given(st.lists(st.tuples(st.sampled_from(["say", "recall", "take", "lose"]), st.integers(0, 3))))
def test_each_line_and_recall_comes_once_and_in_order_whatever_answers_are_lost(acts: list[tuple[str, int]]) -> None:
    async def scenario() -> None:
        clients = Clients(answer=150)
        lines: list[str] = []
        recalled: list[str] = []
        last, said = FIRST, 0
        for act, count in [*acts, *[("take", 0)] * (3 * len(acts) + 1)]:
            if act == "say":
                await clients.say("a", [line(said + number) for number in range(count)])
                said += count
            elif act == "recall":
                clients.recall("a", f"call-{said}")
            else:
                answer = await clients.listen("a", 0.0, last)
                if act == "take":
                    last = got(answer)
                    lines += texts(answer)
                    recalled += answer["recalled"]
        assert lines == [str(number) for number in range(said)]
        assert len(recalled) == sum(act == "recall" for act, _ in acts)

    asyncio.run(scenario())


def test_two_questions_at_once_get_the_same_answer() -> None:
    """The first may have lost its way back, for all that the process knows."""

    async def scenario() -> None:
        clients = Clients()
        asking = [asyncio.create_task(clients.listen("a", PATIENCE, FIRST)) for _ in range(2)]
        await turn()
        await clients.say("a", [line("once")])
        one, other = await asyncio.gather(*asking)
        assert one == other and texts(one) == ["once"]
        await clients.say("a", [line("next")])
        assert texts(await clients.listen("a", PATIENCE, got(one))) == ["next"]

    asyncio.run(scenario())


def test_another_box_is_told_from_the_one_before() -> None:
    async def scenario() -> None:
        before = await Clients().listen("a", 0.0, FIRST)
        clients = Clients()
        await clients.say("a", [line("new")])
        after = await clients.listen("a", 0.0, got(before))
        assert texts(after) == ["new"] and after["box"] != before["box"]

    asyncio.run(scenario())


def test_who_has_more_to_say_than_there_is_room_for_waits_for_it() -> None:
    async def scenario() -> None:
        clients = Clients(most=2000, answer=500)
        sides: list[int] = []

        async def print_side(side: int) -> None:
            for number in range(100):
                await clients.say("a", [line(f"{side}:{number}")])
            sides.append(side)

        printing = [asyncio.create_task(print_side(side)) for side in range(3)]
        for _ in range(20):
            await turn()
        assert sides == []
        shown: list[str] = []
        last = FIRST
        while len(shown) < 300:
            answer = await clients.listen("a", PATIENCE, last)
            last = got(answer)
            shown += texts(answer)
        await asyncio.gather(*printing)
        for side in range(3):
            assert [text for text in shown if text.startswith(f"{side}:")] == [f"{side}:{i}" for i in range(100)]

    asyncio.run(scenario())


def test_what_one_misses_that_takes_nothing_is_counted_and_named() -> None:
    async def scenario() -> None:
        clients = Clients(most=1000, patience=0.0)
        for number in range(2000):
            await clients.say("a", [line(number, name="flood")])
        await clients.say("a", [["other", 2, "host 2", "x"]])
        lines = await all_of(clients, "a")
        kept = [text for name, *_, text in lines if name]
        assert kept == [str(number) for number in range(len(kept))] and 5 < len(kept) < 100
        assert [text for name, *_, text in lines if not name] == [
            f"kinetic: {2000 - len(kept):,} lines are not shown of (flood rank=0): this process had taken none for 0 s",
            "kinetic: 1 line is not shown of (other rank=2 host 2): this process had taken none for 0 s",
        ]
        assert lines[-2][0] == lines[-1][0] == ""
        await clients.say("a", [line("after")])
        assert texts(await clients.listen("a", 0.0)) == ["after"]

    asyncio.run(scenario())


def test_what_was_missed_is_told_before_what_comes_after_it() -> None:
    async def scenario() -> None:
        clients = Clients(most=100, answer=100, patience=0.0)
        for text in ("first", "second", "third"):
            await clients.say("a", [line(text)])
        answer = await clients.listen("a", 0.0, FIRST)
        assert texts(answer) == ["first"]
        await clients.say("a", [line("fourth")])
        later = [text for *_, text in await all_of(clients, "a", got(answer))]
        assert later[0] == "second" and "1 line is not shown of (f rank=0)" in later[1] and later[2:] == ["fourth"]

    asyncio.run(scenario())


def test_whoever_waits_for_room_is_let_go_with_the_process() -> None:
    async def scenario() -> None:
        clients = Clients(most=10)
        await clients.say("a", [line("one")])
        saying = [asyncio.create_task(clients.say("a", [line("two")])) for _ in range(3)]
        await turn()
        clients.leave("a")
        await asyncio.wait_for(asyncio.gather(*saying), PATIENCE)
        assert clients.known() == set()

    asyncio.run(scenario())


def test_one_that_is_about_to_go_is_answered_at_once() -> None:
    async def scenario() -> None:
        clients = Clients()
        hearing = asyncio.create_task(clients.listen("a", PATIENCE, FIRST))
        await turn()
        clients.hurry("a")
        answer = await hearing
        assert texts(answer) == []
        await clients.say("a", [line("late")])
        answer = await clients.listen("a", PATIENCE, got(answer))
        assert texts(answer) == ["late"]
        assert texts(await asyncio.wait_for(clients.listen("a", 10 * PATIENCE, got(answer)), PATIENCE)) == []

    asyncio.run(scenario())


def test_kinetic_s_own_lines_wait_for_no_room() -> None:
    async def scenario() -> None:
        clients = Clients(most=10)
        await clients.say("a", [line("one")])
        clients.note("a", "kinetic: f waits")
        assert await all_of(clients, "a") == [line("one"), ["", 0, "", "kinetic: f waits"]]

    asyncio.run(scenario())

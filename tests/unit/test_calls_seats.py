"""Which way a call goes: by the desk, or straight to an agent that is lent, and back to the desk when that is over."""

import pickle
from collections.abc import Callable
from typing import Any

import pytest

from kinetic_ray.calls.requests import Request, request_of
from kinetic_ray.calls.seats import Got, Line
from kinetic_ray.runner.calls.again import MOST_BYTES, Again, is_to_be_kept
from kinetic_ray.runner.calls.heads import read_head, split
from kinetic_ray.runner.calls.packing import pack_arguments
from kinetic_ray.runner.calls.wish import Order, Wish
from tests.unit.cluster_of_calls import Agent, Desk, Kept, Ray, Ref

WISH = Wish()


def request(digest: str = "d1", **changes: Any) -> Request:
    order = Order(**{"wish": WISH, "function": digest, "name": "double", "client": "c1", **changes})
    return request_of(order, [f"ref of {digest}", None])


class Way:
    """A line with its cluster, and what has gone where."""

    def __init__(self, *, in_order: bool = False) -> None:
        self.desk, self.ray, self.agent = Desk(), Ray(), Agent()
        self.line = Line(self.desk, "c1", self.ray, in_order=in_order)

    def send(self, told: Request | None = None) -> str:
        """Sends one; gives which way it went."""
        before = len(self.desk.call.calls)
        self.line.send(told or request(), Kept(1))
        return "desk" if len(self.desk.call.calls) > before else "agent"

    def lend(self, gang: str = "g1") -> None:
        self.desk.lent[-1].done.set_result({"gang": gang, "agent": self.agent})

    def finish(self, refs: list[Ref]) -> None:
        for ref in refs:
            if not ref.done.done():
                ref.done.set_result(None)


@pytest.fixture
def way() -> Way:
    return Way()


def test_the_first_call_goes_by_the_desk_which_is_asked_for_a_seat_once(way: Way) -> None:
    told = request()
    assert [way.send(told) for _ in range(3)] == ["desk"] * 3
    assert [call[:2] for call in way.desk.call.calls] == [(told.data, ["ref of d1", None])] * 3
    assert way.desk.lend.calls == [(told.data,)]
    assert way.desk.call.names == ["double"] * 3


def test_a_lent_seat_is_called_directly_while_it_is_idle(way: Way) -> None:
    told = request()
    way.send(told)
    way.lend()
    assert way.send(told) == "agent"
    assert way.agent.direct.names == ["double"] * len(way.agent.direct.names)
    ((head, packed),) = way.agent.direct.calls
    assert (read_head(head).gang, read_head(head).client, read_head(head).order) == ("g1", "c1", told.order)
    assert packed.value == 1
    assert way.send(told) == "desk"  # the agent is busy with the first
    way.finish(way.agent.refs)
    assert way.send(told) == "agent"
    assert len(way.desk.lend.calls) == 1


def test_a_function_goes_to_the_agent_once(way: Way) -> None:
    way.send()
    way.lend()
    for digest in ("d1", "d2", "d1", "d2"):
        assert way.send(request(digest)) == "agent"
        way.finish(way.agent.refs)
    assert way.agent.learn.calls == [("d1", "ref of d1"), ("d2", "ref of d2")]
    heads = [call[0] for call in way.agent.direct.calls]
    assert heads[0] == heads[2] != heads[1] == heads[3]


def recalled(way: Way) -> None:
    way.line.recall("g1")


def died(way: Way) -> None:
    way.agent.state = 4


@pytest.mark.parametrize("ends", [recalled, died])
def test_without_its_seat_a_process_goes_back_to_the_desk_and_asks_anew(way: Way, ends: Callable[[Way], None]) -> None:
    way.send()
    way.lend()
    assert way.send() == "agent"
    way.finish(way.agent.refs)
    ends(way)
    assert way.send() == "desk"
    assert len(way.desk.lend.calls) == 2
    way.agent.state = 2
    way.lend("g2")
    assert way.send() == "agent"


def test_a_seat_that_was_recalled_before_it_was_taken_is_not_taken(way: Way) -> None:
    way.send()
    way.lend()
    way.line.recall("g1")  # the process had nothing to send meanwhile
    assert way.send() == "desk"
    assert len(way.desk.lend.calls) == 2
    way.lend()  # the same gang, once more
    assert way.send() == "agent"


@pytest.mark.parametrize("state", [None, 0, 1, 2])
def test_a_handle_that_knows_nothing_of_its_agent_yet_will_do(way: Way, state: int | None) -> None:
    way.agent.state = state
    way.send()
    way.lend()
    assert way.send() == "agent"


def test_a_seat_that_is_on_its_way_is_waited_for_once_and_only_while_nothing_else_is(way: Way) -> None:
    waits = way.ray.waits
    way.send()
    way.send()  # the first is still running
    assert not any(waits)
    way.finish(way.desk.refs)
    way.send()
    assert sum(wait > 0 for wait in waits) == 1
    way.finish(way.desk.refs)
    way.send()
    assert sum(wait > 0 for wait in waits) == 1
    way.finish(way.desk.refs)
    way.lend()
    assert way.send() == "agent"


def test_a_recall_of_another_gang_changes_nothing(way: Way) -> None:
    way.send()
    way.lend()
    assert way.send() == "agent"
    way.finish(way.agent.refs)
    way.line.recall("g0")
    assert way.send() == "agent"


@pytest.mark.parametrize("answer", ["none", "error"])
def test_where_nothing_is_lent_calls_go_on_by_the_desk(way: Way, answer: str) -> None:
    way.send()
    if answer == "none":
        way.desk.lent[-1].done.set_result(None)
    else:
        way.desk.lent[-1].done.set_exception(RuntimeError("the desk has died"))
    assert way.send() == "desk"
    assert len(way.desk.lend.calls) == 2


@pytest.mark.parametrize(
    "told", [request(wish=Wish(hosts=4)), request(wish=Wish("tpu-v6e-4", 4, 2)), request(kind="create", actor="act-1")]
)
def test_only_what_one_host_can_serve_is_asked_for(way: Way, told: Request) -> None:
    assert way.send(told) == "desk"
    assert way.desk.lend.calls == []


def test_methods_of_an_instance_never_overtake_each_other() -> None:
    way = Way(in_order=True)
    step = request(kind="method", actor="act-1", method="step")
    way.send(step)
    way.lend()
    assert way.send(step) == "desk"  # the first may still be running
    way.finish(way.desk.refs)
    assert way.send(step) == "agent"
    assert way.agent.learn.calls == []  # the instance is there already


def test_calls_of_an_instance_by_the_desk_tell_their_place() -> None:
    way = Way(in_order=True)
    for _ in range(2):
        way.send(request(kind="method", actor="act-1", method="step"))
    way.lend()
    way.finish(way.desk.refs)
    assert way.send(request(kind="method", actor="act-1", method="step")) == "agent"
    assert way.send(request(kind="method", actor="act-1", method="step")) == "desk"
    way.finish(way.agent.refs)
    way.send(request(kind="method", actor="act-1", method="step"))
    way.line.recall("g1")
    way.finish(way.agent.refs)
    assert way.send(request(kind="method", actor="act-1", method="step")) == "desk"
    code = ["ref of d1", None]
    straight = way.agent.refs[0]  # was on its way when the third came, and must not be overtaken
    assert [call[1] for call in way.desk.call.calls] == [
        [*code, 0], [*code, 1], [*code, 2, straight], [*code, 3], [*code, 4]
    ]  # fmt: skip


def test_an_instance_that_is_not_lent_is_not_asked_for_again() -> None:
    way = Way(in_order=True)
    step = request(kind="method", actor="act-1", method="step")
    way.send(step)
    way.desk.lent[-1].done.set_result(None)
    assert [way.send(step) for _ in range(3)] == ["desk"] * 3
    assert len(way.desk.lend.calls) == 1


def test_a_value_is_let_go_of_once_it_is_there(way: Way) -> None:
    way.send()
    way.lend()
    way.send()
    assert not way.line.is_quiet()
    way.finish(way.agent.refs)
    assert way.line.is_quiet()
    assert way.line._last is None


def test_large_arguments_go_to_the_desk_as_a_ref(way: Way) -> None:
    large = Kept("large", 1 << 20)
    way.line.send(request(), large)
    ((_, _, ((ref),)),) = way.desk.call.calls
    assert ref.done.result() is large


def test_arguments_that_are_one_pickle_travel_in_one_piece_with_the_head(way: Way) -> None:
    told = request()
    way.send(told)
    way.lend()
    way.line.send(told, pack_arguments((1, "a"), {}, lambda _: False))
    ((piece,),) = way.agent.direct.calls
    head, data = split(piece)
    assert (read_head(head).gang, read_head(head).order, pickle.loads(data)) == ("g1", told.order, ((1, "a"), {}))


class Repeating(Way):
    """A line with a seat, over which calls with given arguments go one after the other."""

    def __init__(self) -> None:
        super().__init__()
        self.told = request()
        super().send(self.told)
        self.lend()

    def call_piece(self, *args: Any) -> bytes:
        """Sends one for the first time; gives what the agent was sent."""
        assert self.call(*args)[0] == "direct"
        ((piece,)) = self.agent.direct.calls[-1]
        return bytes(piece)

    def call(self, *args: Any) -> tuple[str, str]:
        """Sends one; gives the agent's method, and the name of the call."""
        before = len(self.agent.again.calls)
        self.finish(self.agent.refs)
        self.line.send(self.told, pack_arguments(args, {}, lambda _: False))
        if len(self.agent.again.calls) > before:
            assert self.agent.again.calls[-1] == ()
            return "again", self.agent.again.names[-1]
        ((piece,)) = self.agent.direct.calls[-1]
        assert pickle.loads(split(piece)[1]) == (args, {})
        return "direct", self.agent.direct.names[-1]


def test_the_same_call_again_and_again_is_sent_by_its_name_alone() -> None:
    way = Repeating()
    assert way.call(1) == ("direct", "double")
    how, name = way.call(1)
    assert (how, is_to_be_kept(name), name.startswith("double #")) == ("direct", True, True)
    assert [way.call(1) for _ in range(3)] == [("again", name)] * 3
    assert way.call(2) == ("direct", "double")
    assert way.call(1) == ("again", name)
    assert len(way.agent.learn.calls) == 1


def test_calls_that_are_each_different_are_all_sent_whole() -> None:
    way = Repeating()
    assert {way.call(number) for number in range(50)} == {("direct", "double")}
    large = b"x" * MOST_BYTES
    assert {way.call(large)[0] for _ in range(5)} == {"direct"}


def test_of_many_calls_in_turn_those_made_last_are_remembered() -> None:
    way = Repeating()
    for number in range(20):
        for _ in range(3):
            assert way.call(number)[0] in ("direct", "again")
    assert [way.call(number)[0] for number in (0, 19, 15)] == ["direct", "again", "again"]
    assert len({*way.agent.again.names}) == 20  # none shares its name with another


def test_what_the_agent_has_forgotten_is_never_called_by_its_name() -> None:
    way, kept = Repeating(), Again()
    others = request("d2", name="triple")
    head = read_head(split(way.call_piece(0))[0])

    def call(told: Request, number: int) -> None:
        way.told = told
        how, name = way.call(number)
        if how == "again":
            assert kept.get(name) is not None
        elif is_to_be_kept(name):
            kept.keep(name, (head, b""))

    for number in range(1200):
        if number % 400 == 0:  # a seldom one, between many that are made twice
            for _ in range(3):
                call(request(), 0)
        for _ in range(2):
            call(others, number)
    for _ in range(3):
        call(request(), 0)
    assert way.call(0)[0] == "again"


def test_another_seat_knows_nothing_of_what_the_first_was_told() -> None:
    way = Repeating()
    names = {way.call(1)[1] for _ in range(4)}
    way.line.recall("g1")
    way.finish(way.agent.refs)
    super(Repeating, way).send(way.told)
    way.lend("g2")
    assert way.call(1) == ("direct", "double")
    assert way.call(1)[1] not in names


def test_of_a_call_that_was_waited_for_ray_is_not_asked_again() -> None:
    got = Got()
    desk, ray, agent = Desk(), Ray(), Agent()
    line = Line(desk, "c1", ray, in_order=False, got=got)
    line.send(request(), Kept(1))
    desk.lent[-1].done.set_result({"gang": "g1", "agent": agent})
    first = line.send(request(), Kept(1))
    first.done.set_result(None)
    got.add(first)
    before = len(ray.waits)
    second = line.send(request(), Kept(1))
    assert (len(ray.waits), len(agent.direct.calls)) == (before, 2)
    line.send(request(), Kept(1))  # the second is on its way, of which nothing is known
    assert (len(ray.waits) > before, len(agent.direct.calls), second.done.done()) == (True, 2, False)

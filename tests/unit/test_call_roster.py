"""Which gang serves which call: as tables, and what must hold in every round whatever happens."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from kinetic_ray.runner.calls.roster import (
    MAX_ASKS,
    RECALLED_WITHIN,
    WARM,
    Ask,
    End,
    Lend,
    Need,
    Phase,
    Plan,
    Recall,
    Release,
    Serve,
    Standing,
    Step,
    Withdraw,
    plan,
    wanted_by_others,
)

NOW = 1000.0
KEYS = ("k", "m")


def gang(name: str, phase: Phase = Phase.IDLE, key: str = "k", since: float = NOW, **more: object) -> Standing:
    return Standing(name, key, phase, since, **more)  # type: ignore[arg-type]


def steps(needs: list[Need], gangs: list[Standing], **more: object) -> list[Step]:
    return list(plan(needs, gangs, NOW, **more).steps)  # type: ignore[arg-type]


CASES: dict[str, tuple[list[Need], list[Standing], list[Step]]] = {
    "nothing": ([], [], []),
    "an idle gang serves": ([Need(1, "k")], [gang("a")], [Serve("a", 1)]),
    "not one of another key": ([Need(1, "k")], [gang("a", key="m")], [Ask(1)]),
    "higher priority first": ([Need(1, "k"), Need(2, "k", priority=5)], [gang("a")], [Serve("a", 2), Ask(1)]),
    "the gang that served the caller last": (
        [Need(1, "k", client="y")],
        [gang("a", client="x"), gang("b", client="y", since=NOW - 0.5)],
        [Serve("b", 1)],
    ),
    "a busy one doesn't": ([Need(1, "k")], [gang("a", Phase.BUSY)], [Ask(1)]),
    "asked for already": ([Need(1, "k")], [gang("a", Phase.BUSY), gang("b", Phase.ASKING)], []),
    "as many as wait": ([Need(1, "k"), Need(2, "k")], [gang("b", Phase.ASKING)], [Ask(2)]),
    "one that rests is woken": ([Need(1, "k")], [gang("a", Phase.RESTING)], [Ask(1, "a")]),
    "nothing waits any more": ([], [gang("a", Phase.ASKING)], [Withdraw("a")]),
    "a lent one is recalled first": ([Need(1, "k")], [gang("a", Phase.LENT)], [Recall("a")]),
    "recalled just now": ([Need(1, "k")], [gang("a", Phase.RECALLED)], []),
    "recalled, but at work": ([Need(1, "k")], [gang("a", Phase.RECALLED, since=NOW - 1.0)], [Ask(1)]),
    "edited code takes over": (
        [Need(1, "k2", "stem", "x")],
        [gang("a", stem="stem", client="x")],
        [Serve("a", 1)],
    ),
    "but not another process's": ([Need(1, "k2", "stem", "y")], [gang("a", stem="stem", client="x")], [Ask(1)]),
    "but one of a process that has gone": (
        [Need(1, "k2", "stem", "y")],
        [gang("a", stem="stem", client="x", is_left=True)],
        [Serve("a", 1)],
    ),
    "unless it has another shape": (
        [Need(1, "k2", "stem", "y")],
        [gang("a", stem="other", client="x", is_left=True)],
        [Ask(1)],
    ),
    "or is at work": (
        [Need(1, "k2", "stem", "y")],
        [gang("a", Phase.BUSY, stem="stem", client="x", is_left=True)],
        [Ask(1)],
    ),
    "its own first": (
        [Need(1, "k2", "stem", "y")],
        [gang("a", stem="stem", client="x", is_left=True), gang("b", stem="stem", client="y", since=NOW - 0.5)],
        [Serve("b", 1)],
    ),
    "wanted and idle": ([], [gang("a", is_wanted=True)], [Release("a")]),
    "wanted, though calls wait": ([Need(1, "k")], [gang("a", is_wanted=True)], [Release("a"), Ask(1)]),
    "wanted, but has served nobody": ([Need(1, "k")], [gang("a", is_wanted=True, has_served=False)], [Serve("a", 1)]),
    "wanted, served nobody, nobody waits": ([], [gang("a", is_wanted=True, has_served=False)], [Release("a")]),
    "wanted and lent": ([], [gang("a", Phase.LENT, is_wanted=True)], [Recall("a")]),
    "wanted and busy: an idle one goes instead": (
        [],
        [gang("a", Phase.BUSY, is_wanted=True), gang("b", key="m")],
        [Release("b")],
    ),
    "but not one of another kind": (
        [],
        [gang("a", Phase.BUSY, is_wanted=True), gang("b", kind=("tpu-v6e-4", 4))],
        [],
    ),
    "idle for too long": ([], [gang("a", since=NOW - 1.0)], [Release("a")]),
    "idle for a while": ([], [gang("a", since=NOW - 0.9)], []),
    "lent, and not used": ([], [gang("a", Phase.LENT, since=NOW - 1.0)], [Recall("a")]),
    "rests for too long": ([], [gang("a", Phase.RESTING, since=NOW - WARM)], [End("a")]),
}


@pytest.mark.parametrize("case", CASES)
def test_what_is_done(case: str) -> None:
    needs, gangs, expected = CASES[case]
    assert steps(needs, gangs) == expected


def test_a_gang_is_lent_to_the_process_that_it_served_last() -> None:
    idle = gang("a", client="x")
    assert steps([], [idle], borrowers=[("x", "k")]) == [Lend("a", "x")]
    assert steps([], [idle], borrowers=[("y", "k"), ("x", "m")]) == []
    assert steps([Need(1, "k")], [idle], borrowers=[("x", "k")]) == [Serve("a", 1)]
    assert steps([], [gang("a", client="x", lends=False)], borrowers=[("x", "k")]) == []
    assert steps([], [gang("a", client="x", is_wanted=True)], borrowers=[("x", "k")]) == [Release("a")]


def test_only_so_many_are_asked_for_at_once() -> None:
    needs = [Need(number, "k") for number in range(100)]
    assert len(steps(needs, [])) == MAX_ASKS
    asking = [gang(str(number), Phase.ASKING) for number in range(MAX_ASKS)]
    assert steps(needs, asking) == []


def test_what_was_refused_is_not_asked_for_again() -> None:
    assert steps([Need(1, "k"), Need(2, "m")], [gang("a", Phase.BUSY)], refused=["k"]) == [Ask(2)]


def test_it_looks_again_when_something_is_due() -> None:
    assert plan([], [gang("a", since=NOW - 0.25)], NOW) == Plan((), NOW + 0.75)
    assert plan([Need(1, "k")], [gang("a", Phase.LENT)], NOW).look_at == NOW + RECALLED_WITHIN
    assert plan([], [], NOW).look_at is None


def test_more_gangs_of_the_same_key_are_nobody_else() -> None:
    keys = {"a": "k", "b": "k", "c": "m"}
    assert wanted_by_others(["a"], ["b"], keys) == frozenset()
    assert wanted_by_others(["a"], ["b", "c"], keys) == {"a"}
    assert wanted_by_others(["a", "c"], ["job-1"], keys) == {"a", "c"}
    assert wanted_by_others(["a"], [], keys) == frozenset()


needs_in_any_number = st.lists(
    st.builds(
        Need,
        st.integers(0, 10**6),
        st.sampled_from(KEYS),
        st.sampled_from(("", "stem")),
        st.sampled_from(("x", "y")),
        st.integers(-2, 2),
    ),
    max_size=12,
    unique_by=lambda need: need.number,
)
gangs_in_any_state = st.lists(
    st.builds(
        Standing,
        st.uuids().map(str),
        st.sampled_from(KEYS),
        st.sampled_from(Phase),
        st.floats(0, NOW),
        stem=st.sampled_from(("", "stem")),
        client=st.sampled_from(("x", "y")),
        has_served=st.booleans(),
        is_wanted=st.booleans(),
        keeps=st.sampled_from((1.0, 300.0)),
        is_left=st.booleans(),
    ),
    max_size=10,
    unique_by=lambda one: one.gang,
)
BORROWERS = st.frozensets(st.tuples(st.sampled_from(("x", "y")), st.sampled_from(KEYS)))
FITTING = {
    Serve: {Phase.IDLE},
    Release: {Phase.IDLE},
    Lend: {Phase.IDLE},
    Recall: {Phase.LENT},
    Withdraw: {Phase.ASKING},
    End: {Phase.RESTING},
    Ask: {Phase.RESTING},
}


@given(needs_in_any_number, gangs_in_any_state, BORROWERS)
def test_every_gang_gets_at_most_one_step_and_one_that_fits(
    needs: list[Need], gangs: list[Standing], borrowers: frozenset[tuple[str, str]]
) -> None:
    found = plan(needs, gangs, NOW, borrowers)
    phases = {one.gang: one.phase for one in gangs}
    touched = [step.gang for step in found.steps if step.gang is not None]
    assert len(touched) == len(set(touched))
    assert all(phases[step.gang] in FITTING[type(step)] for step in found.steps if step.gang is not None)
    served = [step.number for step in found.steps if isinstance(step, Serve)]
    asked = [step.number for step in found.steps if isinstance(step, Ask)]
    assert len(served + asked) == len(set(served + asked))
    assert found.look_at is None or found.look_at > NOW


@dataclass
class Simulated:
    """A gang that does what it is told."""

    gang: str
    key: str
    phase: Phase = Phase.ASKING
    since: float = 0.0
    client: str = ""
    has_served: bool = False
    number: int | None = None


@dataclass
class World:
    """What a desk holds, with a pool of two leases."""

    now: float = 0.0
    numbers: int = 0
    waiting: dict[int, Need] = field(default_factory=dict)
    gangs: dict[str, Simulated] = field(default_factory=dict)
    outsider: bool = False


class DeskLife(RuleBasedStateMachine):
    """Calls come, gangs serve them, others want the leases: no call is lost, served twice, or waits for ever."""

    POOL = 2

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.served: list[int] = []

    @rule(key=st.sampled_from(KEYS), client=st.sampled_from(("x", "y")))
    def a_call_comes(self, key: str, client: str) -> None:
        self.world.numbers += 1
        self.world.waiting[self.world.numbers] = Need(self.world.numbers, key, "", client)
        self.turn()

    @rule(data=st.data())
    def a_call_ends(self, data: st.DataObject) -> None:
        if busy := [one for one in self.world.gangs.values() if one.phase is Phase.BUSY]:
            one = data.draw(st.sampled_from(busy))
            one.phase, one.since, one.number = Phase.IDLE, self.world.now, None
        self.turn()

    @rule(seconds=st.sampled_from((0.01, 1.0, 400.0)))
    def time_passes(self, seconds: float) -> None:
        self.world.now += seconds
        self.turn()

    @rule(comes=st.booleans())
    def somebody_else(self, comes: bool) -> None:
        self.world.outsider = comes
        self.turn()

    @invariant()
    def never_twice(self) -> None:
        assert len(self.served) == len(set(self.served))

    def teardown(self) -> None:
        """In the end, with nobody else there, everything is served, and nothing is held for ever."""
        self.world.outsider = False
        for _ in range(4 * self.world.numbers + 8):
            for one in self.world.gangs.values():
                if one.phase is Phase.BUSY:
                    one.phase, one.since = Phase.IDLE, self.world.now
            self.turn()
        assert not self.world.waiting
        assert sorted(self.served) == list(range(1, self.world.numbers + 1))
        self.world.now += WARM + 1
        self.turn()
        self.world.now += WARM + 1
        self.turn()
        assert not self.world.gangs

    def turn(self) -> None:
        """Until nothing more follows, as the desk does."""
        for _ in range(50):
            self.grant()
            found = plan(list(self.world.waiting.values()), [self.view(one) for one in self.all()], self.world.now)
            for step in found.steps:
                self.do(step)
            if not found.steps and not self.grant():
                return
        raise AssertionError("the desk never comes to rest")

    def all(self) -> list[Simulated]:
        return list(self.world.gangs.values())

    def view(self, one: Simulated) -> Standing:
        """The broker wants all leases for whoever else waits: an outsider, or a gang of another key."""
        keys = {other.key for other in self.all() if other.phase is Phase.ASKING}
        is_wanted = one.phase in (Phase.IDLE, Phase.BUSY) and (self.world.outsider or bool(keys - {one.key}))
        return Standing(
            one.gang, one.key, one.phase, one.since, client=one.client, has_served=one.has_served, is_wanted=is_wanted
        )

    def grant(self) -> bool:
        """What is free goes to who asks, an outsider first."""
        granted = False
        for one in self.all():
            held = sum(other.phase in (Phase.IDLE, Phase.BUSY) for other in self.all()) + self.world.outsider
            if one.phase is Phase.ASKING and held < self.POOL:
                one.phase, one.since, one.has_served = Phase.IDLE, self.world.now, False
                granted = True
        return granted

    def do(self, step: Step) -> None:
        match step:
            case Serve(name, number):
                one, need = self.world.gangs[name], self.world.waiting.pop(number)
                assert one.key == need.key
                one.phase, one.client, one.has_served = Phase.BUSY, need.client, True
                self.served.append(number)
            case Ask(number, None):
                name = f"call-{len(self.served)}-{number}-{self.world.now}-{len(self.world.gangs)}"
                assert name not in self.world.gangs
                self.world.gangs[name] = Simulated(name, self.world.waiting[number].key)
            case Ask(_, str(name)):
                self.world.gangs[name].phase = Phase.ASKING
            case Release(name) | Withdraw(name):
                self.world.gangs[name].phase, self.world.gangs[name].since = Phase.RESTING, self.world.now
            case End(name):
                del self.world.gangs[name]


TestDeskLife = DeskLife.TestCase
TestDeskLife.settings = settings(max_examples=50, stateful_step_count=30)

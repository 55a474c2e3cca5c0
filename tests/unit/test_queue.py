"""The broker's pure half: order, all or nothing, no slice twice, nobody starves."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinetic_ray.runner.queue import Lease, Pool, Slice, Ticket, decide, demand, in_order, leased_names, lent

V6E = ("tpu-v6e-16", 4)
V5E = ("tpu-v5e-4", 4)


def tpu(name: str, slices: int = 1, kind: tuple[str, int] = V6E, priority: int = 0) -> Ticket:
    return Ticket(name, 1, kind[0], chips_per_host=kind[1], slices=slices, priority=priority)


def cpu(name: str, hosts: int = 1, cpus: float = 1.0, memory: int = 0) -> Ticket:
    return Ticket(name, 1, "cpu", hosts=hosts, cpus=cpus, memory=memory)


def nested(ticket: Ticket, *ancestors: str) -> Ticket:
    return replace(ticket, ancestors=ancestors)


def urgent(ticket: Ticket, priority: int = 5) -> Ticket:
    return replace(ticket, priority=priority)


def slices(kind: tuple[str, int], *numbers: int) -> tuple[Slice, ...]:
    return tuple(Slice(f"{kind[0]}-{n}", tuple(f"{kind[0]}-{n}-node{i}" for i in range(4))) for n in numbers)


def pool(v6e: int = 0, v5e: int = 0, cpus: float = 0.0, memory: int = 0) -> Pool:
    return Pool({V6E: slices(V6E, *range(v6e)), V5E: slices(V5E, *range(v5e))}, cpus, memory)


@pytest.mark.parametrize(
    ("queue", "leases", "there", "granted"),
    [
        pytest.param([], [], pool(2), [], id="nobody waits"),
        pytest.param([tpu("a")], [], pool(1), ["a"], id="one slice, one ticket"),
        pytest.param([tpu("a")], [], Pool(), [], id="the pool is not known yet"),
        pytest.param([tpu("a"), tpu("b")], [], pool(1), ["a"], id="first come, first served"),
        pytest.param([tpu("a", 2), tpu("b")], [], pool(1), [], id="a small one never passes the head of its kind"),
        pytest.param([tpu("a", 2), tpu("b", 2)], [], pool(3), ["a"], id="two slices each: all or nothing"),
        pytest.param([tpu("a", 2), tpu("b", 1, V5E)], [], pool(1, 1), ["b"], id="kinds don't hold each other up"),
        pytest.param([tpu("a"), cpu("c")], [], pool(0, cpus=2), ["c"], id="cpu passes a waiting slice job"),
        pytest.param([cpu("c"), cpu("d"), cpu("e")], [], pool(cpus=2), ["c", "d"], id="as many as there is room for"),
        pytest.param([cpu("c", cpus=2), cpu("d")], [Lease(cpu("x"))], pool(cpus=2), [], id="cpu head of line"),
        pytest.param([cpu("c", hosts=3, cpus=0.1)], [], pool(cpus=0.3), ["c"], id="fractions add up"),
        pytest.param([cpu("c", memory=6), cpu("d", memory=5)], [], pool(cpus=4, memory=10), ["c"], id="memory counts"),
        pytest.param([tpu("b")], [Lease(tpu("a"), slices(V6E, 0))], pool(1), [], id="held slices aren't free"),
        pytest.param([cpu("big", cpus=9), cpu("c")], [], pool(cpus=2), ["c"], id="what never fits blocks nobody"),
        pytest.param([tpu("a"), urgent(tpu("b"))], [], pool(1), ["b"], id="priority goes before arrival"),
        pytest.param([tpu("a"), urgent(tpu("b"), -1)], [], pool(1), ["a"], id="a negative one comes last"),
        pytest.param([tpu("a"), urgent(tpu("b", 2))], [], pool(1), [], id="the first by priority holds up the others"),
        pytest.param([tpu("a"), urgent(tpu("b", 1, V5E))], [], pool(1, 1), ["b", "a"], id="priority is within a kind"),
        pytest.param([cpu("c"), urgent(cpu("d"))], [], pool(cpus=1), ["d"], id="priority of cpu jobs"),
    ],
)
def test_who_is_granted(queue: list[Ticket], leases: list[Lease], there: Pool, granted: list[str]) -> None:
    assert [lease.ticket.job_id for lease in decide(queue, leases, there).grants] == granted


A_HOLDS_ONE = [Lease(tpu("a"), slices(V6E, 0))]
ALL_CPUS = [Lease(cpu("a", hosts=2, memory=4))]


@pytest.mark.parametrize(
    ("queue", "leases", "there", "granted"),
    [
        pytest.param([nested(cpu("n"), "a")], ALL_CPUS, pool(cpus=2, memory=8), ["n"], id="cpus are lent"),
        pytest.param([nested(cpu("n", memory=5), "a")], ALL_CPUS, pool(cpus=2, memory=8), ["n"], id="memory too"),
        pytest.param([cpu("w"), nested(cpu("n"), "a")], ALL_CPUS, pool(cpus=2, memory=8), ["n"], id="past who waits"),
        pytest.param([cpu("w")], [Lease(nested(cpu("n"), "a"))], pool(cpus=1), ["w"], id="nested ones take nothing"),
        pytest.param([nested(cpu("n", cpus=9), "a")], [], pool(cpus=2), [], id="what never fits doesn't"),
        pytest.param(
            [tpu("w", 2), nested(tpu("n"), "a")], A_HOLDS_ONE, pool(2), ["n"], id="not behind one that waits for a"
        ),
        pytest.param(
            [urgent(tpu("w", 2)), nested(tpu("n"), "a")], A_HOLDS_ONE, pool(2), ["n"], id="however urgent that is"
        ),
        pytest.param(
            [nested(tpu("m", 2), "b"), nested(tpu("n"), "a")], A_HOLDS_ONE, pool(2), ["n"], id="nor another nested one"
        ),
        pytest.param(
            [nested(tpu("n", 2), "a"), tpu("w")], A_HOLDS_ONE, pool(2), [], id="others wait while a nested one does"
        ),
        pytest.param(
            [urgent(tpu("w")), nested(tpu("n", 2), "a")], A_HOLDS_ONE, pool(2), [], id="also those that came earlier"
        ),
    ],
)
def test_nested_tickets(queue: list[Ticket], leases: list[Lease], there: Pool, granted: list[str]) -> None:
    assert [lease.ticket.job_id for lease in decide(queue, leases, there).grants] == granted


def test_what_ancestors_hold_of_a_kind_is_lent() -> None:
    leases = [
        Lease(tpu("a", 2), slices(V6E, 0, 1)),
        Lease(tpu("b"), slices(V6E, 2)),
        Lease(tpu("c", 1, V5E), slices(V5E, 0)),
    ]
    assert lent(nested(tpu("n"), "a", "c"), leases) == 2
    assert lent(nested(tpu("n", 1, V5E), "a", "c"), leases) == 1
    assert lent(tpu("n"), leases) == 0


def test_the_reason_names_functions() -> None:
    held = [Lease(replace(tpu("job-x"), name="train"), slices(V6E, 0))]
    waiting = decide([replace(tpu("job-a"), name="f"), tpu("job-b")], held, pool(1)).waiting
    assert waiting["job-a"] == "waiting for 1 tpu-v6e-16 slice; first in the queue; held by job-x (train)"
    assert "position 2 in the queue, behind job-a (f); held by job-x (train)" in waiting["job-b"]


def test_tickets_travel_as_json() -> None:
    ticket = replace(nested(urgent(tpu("call-a", 2)), "job-a", "call-b"), name="f", yields=True)
    assert Ticket.from_dict(json.loads(json.dumps(ticket.to_dict()))) == ticket
    old = {"job_id": "job-a", "epoch": 1, "accelerator": "cpu", "hosts": 2, "cpus": 1.0}
    assert Ticket.from_dict(old) == Ticket("job-a", 1, "cpu", hosts=2, cpus=1.0)


def test_the_reason_tells_position_and_holders() -> None:
    held = [Lease(tpu("job-x"), slices(V6E, 0))]
    waiting = decide([tpu("job-a", 2), tpu("job-b")], held, pool(2)).waiting
    assert waiting["job-a"] == "waiting for 2 tpu-v6e-16 slices; first in the queue; held by job-x"
    assert waiting["job-b"] == ("waiting for 1 tpu-v6e-16 slice; position 2 in the queue, behind job-a; held by job-x")


def test_the_reason_of_a_cpu_job_tells_what_is_free() -> None:
    waiting = decide([cpu("job-a", cpus=2)], [Lease(cpu("job-x"))], pool(cpus=2)).waiting
    assert waiting["job-a"] == "waiting for 1 x 2 CPUs; first in the queue, 1 of 2 CPUs free; held by job-x"


def test_what_can_never_fit_is_refused_with_both_numbers() -> None:
    refused = decide([cpu("job-a", hosts=3, cpus=2)], [], pool(cpus=4)).refused
    assert refused == {"job-a": "3 x 2 CPUs needs 6 CPUs, the cluster has 4"}


def test_demand_counts_those_of_its_kind_up_to_it() -> None:
    queue = [tpu("a", 2), tpu("x", 5, V5E), cpu("c"), tpu("b", 1), tpu("later", 7)]
    assert [demand(queue, name) for name in ("a", "x", "b", "later")] == [2, 5, 3, 10]
    assert demand([*queue, urgent(tpu("now"))], "now") == 1
    assert demand([*queue, urgent(tpu("now"))], "b") == 4


KINDS = st.sampled_from([V6E, V5E])


@st.composite
def tickets(draw: st.DrawFn, name: str) -> Ticket:
    priority = draw(st.integers(-1, 1))
    if draw(st.booleans()):
        wanted = cpu(name, hosts=draw(st.integers(1, 3)), cpus=draw(st.sampled_from([0.5, 1.0, 2.0])))
        return urgent(wanted, priority)
    return tpu(name, draw(st.integers(1, 3)), draw(KINDS), priority)


@st.composite
def queues(draw: st.DrawFn) -> list[Ticket]:
    return [draw(tickets(f"job-{n}")) for n in range(draw(st.integers(0, 8)))]


@dataclass
class Cluster:
    """A queue and leases that only ever move as the broker moves them."""

    there: Pool
    queue: list[Ticket]
    leases: list[Lease] = field(default_factory=list)
    order: list[str] = field(default_factory=list)

    def serve(self) -> None:
        decision = decide(self.queue, self.leases, self.there)
        self.leases += decision.grants
        gone = {lease.ticket.job_id for lease in decision.grants} | set(decision.refused)
        self.order += [lease.ticket.job_id for lease in decision.grants]
        self.queue = [ticket for ticket in self.queue if ticket.job_id not in gone]

    def end_one(self, choose: Callable[[list[Lease]], Lease]) -> None:
        self.leases.remove(choose(self.leases))


@given(queues(), st.integers(0, 4), st.integers(0, 4), st.integers(0, 4), st.data())
def test_invariants_and_nobody_starves(queue: list[Ticket], v6e: int, v5e: int, cpus: int, data: st.DataObject) -> None:
    there = pool(v6e, v5e, float(cpus))
    cluster = Cluster(there, list(queue))
    cluster.serve()
    while cluster.leases:
        check(cluster)
        cluster.end_one(lambda held: data.draw(st.sampled_from(held)))
        cluster.serve()
    possible = {ticket.job_id for ticket in queue if fits_alone(ticket, there)}
    blocked = {t.job_id for t in queue if any(not fits_alone(b, there) for b in before_in_kind(queue, t))}
    assert set(cluster.order) == possible - blocked


def check(cluster: Cluster) -> None:
    names = leased_names(cluster.leases)
    assert len(names) == len(set(names)), "a slice was granted twice"
    assert sum(lease.ticket.all_cpus for lease in cluster.leases) <= cluster.there.cpus
    for lease in cluster.leases:
        known = {one.name for one in cluster.there.slices.get(lease.ticket.kind, ())}
        assert {one.name for one in lease.slices} <= known, "slices of two kinds were mixed"
        assert len(lease.slices) == lease.ticket.slices, "less than all was granted"
    waiting = decide(cluster.queue, cluster.leases, cluster.there).waiting
    assert set(waiting) == {ticket.job_id for ticket in cluster.queue}, "somebody waits without a reason"


def before_in_kind(queue: list[Ticket], ticket: Ticket) -> list[Ticket]:
    """Slices only: a gang of CPU hosts that never fits is refused and so holds up nobody."""
    line = in_order(queue)
    return [t for t in line[: line.index(ticket)] if t.kind == ticket.kind and t.accelerator != "cpu"]


def fits_alone(ticket: Ticket, there: Pool) -> bool:
    if ticket.accelerator == "cpu":
        return ticket.all_cpus <= there.cpus
    return ticket.slices <= len(there.slices[ticket.kind])


@given(queues(), st.integers(0, 4), st.integers(0, 4), st.integers(0, 4))
def test_served_in_order_within_a_kind(queue: list[Ticket], v6e: int, v5e: int, cpus: int) -> None:
    decision = decide(queue, [], pool(v6e, v5e, float(cpus)))
    granted = {lease.ticket.job_id for lease in decision.grants}
    for kind in {ticket.kind for ticket in queue}:
        line = [t.job_id in granted for t in in_order(queue) if t.kind == kind and t.job_id not in decision.refused]
        assert line == sorted(line, reverse=True), "one was passed by another of its kind"


@given(queues())
def test_the_order_is_priority_then_arrival(queue: list[Ticket]) -> None:
    line = in_order(queue)
    assert sorted(line, key=lambda t: t.job_id) == sorted(queue, key=lambda t: t.job_id)
    for earlier, later in pairwise(line):
        assert earlier.priority >= later.priority
        if earlier.priority == later.priority:
            assert queue.index(earlier) < queue.index(later)


@given(st.lists(st.integers(0, 3), min_size=2, max_size=6), st.data())
def test_gangs_that_want_two_each_never_deadlock(priorities: list[int], data: st.DataObject) -> None:
    """On a pool of three, whoever ends first: there is always one that runs, and all have run in the end."""
    cluster = Cluster(pool(3), [tpu(f"job-{n}", 2, priority=p) for n, p in enumerate(priorities)])
    cluster.serve()
    while cluster.queue or cluster.leases:
        assert len(cluster.leases) == 1, "all wait for each other" if not cluster.leases else "two slices twice of 3"
        cluster.end_one(lambda held: data.draw(st.sampled_from(held)))
        cluster.serve()
    assert len(cluster.order) == len(priorities)

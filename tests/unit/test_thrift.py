"""When hosts are started for one that waits: a table, and what must hold for any queue."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinetic_ray.runner.queue import Lease, Slice, Ticket, in_order
from kinetic_ray.runner.thrift import PATIENCE, start_after

GRACE, SPREAD = PATIENCE.grace, PATIENCE.spread
V6E, V5E = ("tpu-v6e-16", 4), ("tpu-v5e-16", 4)


def ticket(holder: str, kind: tuple[str, int] = V6E, **more: object) -> Ticket:
    return Ticket(holder, 1, *kind, slices=1, **more)  # type: ignore[arg-type]


def call(name: str, kind: tuple[str, int] = V6E, **more: object) -> Ticket:
    return ticket(f"call-{name}", kind, yields=True, **more)


def held(one: Ticket) -> Lease:
    return Lease(one, (Slice(f"slice-of-{one.job_id}", ("node",)),))


JOB, OTHER_JOB, ACTOR = ticket("job-a"), ticket("job-b"), ticket("call-actor")
A, B, C = call("a"), call("b"), call("c")
NESTED = call("n", ancestors=("call-a",))

CASES: dict[str, tuple[list[Ticket], list[Ticket], float | None]] = {
    "the first call": ([A], [], 0.0),
    "the first job": ([JOB], [], 0.0),
    "a second job starts its hosts as well": ([OTHER_JOB, JOB], [], 0.0),
    "a job ends when it ends": ([JOB], [OTHER_JOB], 0.0),
    "a call beside a job": ([A], [JOB], 0.0),
    "a job, while a call's gang may yield": ([JOB], [A], GRACE),
    "an actor, while the one before it ends": ([ticket("call-next")], [ACTOR], GRACE),
    "two actors at once": ([ticket("call-next"), ACTOR], [], 0.0),
    "a call, while one before it runs": ([B], [A], SPREAD),
    "a call behind another one": ([B, A], [], None),
    "a call ahead of another one": ([A, B], [C], SPREAD),
    "a job behind calls": ([JOB, A, B], [], 0.0),
    "a call behind a job": ([A, JOB], [], 0.0),
    "a more urgent call": ([call("u", priority=1), A], [C], SPREAD),
    "what is held of other kinds": ([A], [call("b", V5E)], 0.0),
    "what waits for other kinds": ([A, call("b", V5E)], [], 0.0),
    "its own caller gives nothing back": ([NESTED], [A], 0.0),
    "but others may": ([NESTED], [A, B], GRACE),
    "a nested one isn't held up by another": ([NESTED, call("m", ancestors=("call-a",))], [A], 0.0),
    "nor does it hold up others": ([A, NESTED], [], 0.0),
}
#: In which order they have come where it isn't that of the table, which names the one that is asked about first.
CAME_LATER = {"a second job starts its hosts as well", "two actors at once", "a call behind another one"}
CAME_LATER |= {"a job behind calls", "a call behind a job", "a more urgent call"}


@pytest.mark.parametrize("case", CASES)
def test_when_hosts_are_started(case: str) -> None:
    queue, leases, expected = CASES[case]
    line = [*queue[1:], queue[0]] if case in CAME_LATER else queue
    assert start_after(queue[0], line, [held(one) for one in leases], on_demand=True) == expected


@pytest.mark.parametrize(("queue", "leases", "expected"), [([A, B], [], 0.0), ([A, B], [C], GRACE)])
def test_a_pool_that_somebody_has_fixed_is_there_to_be_used(
    queue: list[Ticket], leases: list[Ticket], expected: float
) -> None:
    for one in queue:
        assert start_after(one, queue, [held(lease) for lease in leases], on_demand=False) == expected


@pytest.mark.parametrize(("takes", "expected"), [(0.0, SPREAD), (7.0, 7.0), (1000.0, PATIENCE.longest)])
def test_one_more_is_started_after_as_long_as_a_start_takes(takes: float, expected: float) -> None:
    assert start_after(B, [B], [held(A)], on_demand=True, start_takes=takes) == expected
    assert start_after(JOB, [JOB], [held(A)], on_demand=True, start_takes=takes) == GRACE


tickets = st.builds(
    ticket,
    st.integers(0, 99).map(lambda n: f"{('job', 'call')[n % 2]}-{n}"),
    st.sampled_from((V6E, V5E)),
    yields=st.booleans(),
    priority=st.integers(0, 2),
    ancestors=st.sampled_from(((), ("call-1",))),
)


@given(st.lists(tickets, min_size=1, max_size=10, unique_by=lambda one: one.job_id), st.lists(tickets, max_size=4))
def test_who_is_first_of_a_kind_never_waits_for_ever(queue: list[Ticket], leases: list[Ticket]) -> None:
    """And at most one gang of functions is started for at a time."""
    told = {one: start_after(one, queue, [held(lease) for lease in leases], on_demand=True) for one in queue}
    for kind in (V6E, V5E):
        line = [one for one in in_order(queue) if one.kind == kind]
        assert not line or told[line[0]] is not None
        gangs = [one for one in line if one.yields and not one.ancestors]
        assert sum(told[one] is not None for one in gangs) == min(1, len(gangs))

"""Which idle leases are wanted back: enough of a kind, longest held first, never those of who waits for the ticket."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinetic_ray.runner.queue import Lease, Slice, Ticket
from kinetic_ray.runner.yielding import Amount, Kind, wanted

V6E, V5E, CPU = ("tpu-v6e-16", 4), ("tpu-v5e-4", 4), ("cpu", 0)


def tpu(name: str, slices: int = 1, kind: Kind = V6E) -> Ticket:
    return Ticket(name, 1, kind[0], chips_per_host=kind[1], slices=slices)


def cpu(name: str, cpus: float = 1.0, memory: int = 0) -> Ticket:
    return Ticket(name, 1, "cpu", hosts=1, cpus=cpus, memory=memory)


def idle(ticket: Ticket) -> Lease:
    """A call gang's."""
    return Lease(
        replace(ticket, yields=True), tuple(Slice(f"{ticket.job_id}-{n}", ("n",)) for n in range(ticket.slices))
    )


def kept(ticket: Ticket) -> Lease:
    return replace(idle(ticket), ticket=ticket)


def inside(ticket: Ticket, *ancestors: str) -> Ticket:
    return replace(ticket, ancestors=ancestors)


G, H = idle(tpu("g")), idle(tpu("h"))


@pytest.mark.parametrize(
    ("waiting", "leases", "free", "stuck", "holders"),
    [
        pytest.param([], [G], {}, [], [], id="nobody waits"),
        pytest.param([tpu("w")], [], {}, [], [], id="nobody holds"),
        pytest.param([tpu("w")], [kept(tpu("j"))], {}, [], [], id="jobs keep theirs"),
        pytest.param([tpu("w")], [G, H], {}, [], ["g"], id="the one held longest"),
        pytest.param([tpu("w", 2)], [G, H], {}, [], ["g", "h"], id="as many as are missing"),
        pytest.param([tpu("w"), tpu("x")], [G, H], {}, [], ["g", "h"], id="one for each"),
        pytest.param([tpu("w", 2)], [G, H], {V6E: (1.0, 0.0)}, [], ["g"], id="what is free is not missing"),
        pytest.param([tpu("w")], [G], {V6E: (1.0, 0.0)}, [], [], id="nothing is missing"),
        pytest.param([tpu("w"), tpu("x")], [G, H], {V6E: (1.0, 0.0)}, [], ["g"], id="what is free serves one"),
        pytest.param(
            [tpu("w"), tpu("x")], [idle(tpu("g", 2)), H], {}, [], ["g"], id="what is left over serves the next"
        ),
        pytest.param([tpu("w", 3)], [G, kept(tpu("j"))], {}, [], ["g"], id="at once, although more is missing"),
        pytest.param([tpu("w", 1, V5E)], [G], {}, [], [], id="another kind"),
        pytest.param([tpu("w", 1, V5E)], [G, H], {}, ["w"], ["g", "h"], id="another kind is in the way"),
        pytest.param([tpu("w")], [G, idle(tpu("i", 1, V5E))], {}, ["w"], ["g"], id="enough of its own kind"),
        pytest.param([tpu("w")], [idle(cpu("c"))], {}, ["w"], [], id="CPUs make no slices"),
        pytest.param([cpu("w")], [G, idle(cpu("c")), idle(cpu("d"))], {}, [], ["c"], id="CPUs"),
        pytest.param(
            [cpu("w", 2)], [idle(cpu("c")), idle(cpu("d"))], {CPU: (0.5, 0.0)}, [], ["c", "d"], id="more CPUs"
        ),
        pytest.param(
            [cpu("w", 1, 8)], [idle(cpu("c")), idle(cpu("d", 1, 8))], {CPU: (1.0, 0.0)}, [], ["d"], id="memory"
        ),
        pytest.param([cpu("w")], [idle(inside(cpu("c"), "j"))], {}, [], [], id="lent CPUs give none back"),
        pytest.param([inside(tpu("w"), "g")], [G, H], {}, [], ["h"], id="not that of an ancestor"),
        pytest.param([inside(tpu("w", 1, V5E), "g")], [G], {}, ["w"], [], id="not even when it is in the way"),
        pytest.param([tpu("g")], [G], {}, [], [], id="not its own"),
    ],
)
def test_who_is_asked_to_yield(
    waiting: list[Ticket], leases: list[Lease], free: dict[Kind, Amount], stuck: list[str], holders: list[str]
) -> None:
    assert list(wanted(waiting, leases, free, stuck)) == holders


@given(
    st.lists(st.integers(1, 3), max_size=5),
    st.lists(st.tuples(st.integers(1, 3), st.booleans()), max_size=6),
    st.integers(0, 3),
)
def test_as_few_as_are_needed_and_only_those_that_yield(
    wishes: list[int], held: list[tuple[int, bool]], free: int
) -> None:
    waiting = [tpu(f"w{n}", size) for n, size in enumerate(wishes)]
    leases = [(idle if yields else kept)(tpu(f"h{n}", size)) for n, (size, yields) in enumerate(held)]
    chosen = wanted(waiting, leases, {V6E: (float(free), 0.0)})
    yielding = [lease.ticket.job_id for lease in leases if lease.ticket.yields]
    assert list(chosen) == yielding[: len(chosen)], "the longest held first, and no others"
    sizes = [len(lease.slices) for lease in leases if lease.ticket.yields]
    missing = sum(wishes) - free
    assert sum(sizes[: max(len(chosen) - 1, 0)]) < missing or not chosen, "the last one was not needed"
    assert sum(sizes[: len(chosen)]) >= missing or len(chosen) == len(yielding), "too few"

"""Leases in the names of placement groups: written, and read back by a broker that knows nothing else."""

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinetic_ray.runner.leases import Group, Holdings, group_name, holdings_of, is_whole
from kinetic_ray.runner.queue import Lease, Slice, Ticket

TWO = Ticket("job-a", 2, "tpu-v6e-8", chips_per_host=4, slices=2, name="Trainer.<locals>.train", priority=-3)
GANG = Ticket("call-b", 1, "cpu", hosts=2, cpus=0.5, memory=7, yields=True, ancestors=("job-a", "call-a"))

IDS = st.from_regex(r"(job|call)-[0-9a-v]{26}", fullmatch=True)
TEXTS = st.text(st.characters(blacklist_categories=["Cs"]), max_size=40)


@st.composite
def tickets(draw: st.DrawFn) -> Ticket:
    return Ticket(
        draw(IDS),
        draw(st.integers(1, 99)),
        draw(st.sampled_from(["cpu", "tpu-v6e-16", "tpu-v5p-2x2x4"])),
        chips_per_host=draw(st.integers(0, 8)),
        slices=draw(st.integers(1, 4)),
        hosts=draw(st.integers(0, 9)),
        cpus=draw(st.floats(0, 1000, allow_nan=False)),
        memory=draw(st.integers(0, 1 << 50)),
        priority=draw(st.integers(-1_000_000, 1_000_000)),
        name=draw(TEXTS),
        yields=draw(st.booleans()),
        ancestors=tuple(draw(st.lists(IDS, max_size=3))),
    )


def leases_of(groups: Sequence[Group], slices: Mapping[str, tuple[str, ...]]) -> tuple[Lease, ...]:
    return holdings_of(groups, slices).leases


def test_names_can_be_read_by_people() -> None:
    assert group_name(TWO, 1, "tpu-v6e-8-0") == (
        "kinetic/job-a/2/1?slice=tpu-v6e-8-0&accelerator=tpu-v6e-8&chips_per_host=4&slices=2&priority=-3"
        "&name=Trainer.<locals>.train"
    )


@given(tickets(), st.lists(TEXTS.filter(bool), min_size=1, max_size=4, unique=True))
def test_a_lease_is_read_back_whatever_its_names(ticket: Ticket, slices: list[str]) -> None:
    held = tuple(Slice(name, (f"{index}.0", f"{index}.1")) for index, name in enumerate(slices))
    groups = [Group(group_name(ticket, index, one.name), one.nodes) for index, one in enumerate(held)]
    assert leases_of(list(reversed(groups)), {}) == (Lease(ticket, held),)


def test_a_gang_of_cpu_hosts_is_one_group() -> None:
    assert leases_of([Group(group_name(GANG, 0), ("head", "head"))], {}) == (Lease(GANG),)
    assert is_whole(Lease(GANG))


def test_groups_that_wait_to_be_placed_hold_their_slices_too() -> None:
    groups = [Group(group_name(TWO, 0, "s-0"), ("n0", "n1")), Group(group_name(TWO, 1, "s-1"), ("", ""))]
    (lease,) = leases_of(groups, {"s-1": ("n2", "n3")})
    assert lease == Lease(TWO, (Slice("s-0", ("n0", "n1")), Slice("s-1", ("n2", "n3"))))
    assert is_whole(lease)
    (unknown,) = leases_of(groups, {})
    assert [one.name for one in unknown.slices] == ["s-0", "s-1"]
    assert not is_whole(unknown), "nobody can be told where its hosts are"


def test_only_the_newest_epoch_counts() -> None:
    newer = Ticket("job-a", 3, "tpu-v6e-8", chips_per_host=4, slices=1)
    groups = [Group(group_name(TWO, 0, "s-0"), ("n0",)), Group(group_name(newer, 0, "s-1"), ("n1",))]
    assert leases_of(groups, {}) == (Lease(newer, (Slice("s-1", ("n1",)),)),)


def test_what_was_removed_is_held_no_more() -> None:
    groups = [Group(group_name(TWO, 0, "s-0"), ("n0",), is_removed=True), Group(group_name(GANG, 0), ("", ""))]
    assert holdings_of(groups, {}) == Holdings((Lease(GANG),), frozenset({("job-a", 2)}))
    again = [*groups, Group(group_name(TWO, 0, "s-0"), ("n0",)), Group(group_name(TWO, 1, "s-1"), ("n1",))]
    assert holdings_of(again, {}).ended == frozenset()


def test_a_lease_of_which_a_part_is_placed_is_a_rest() -> None:
    (lease,) = leases_of([Group(group_name(TWO, 1, "s-1"), ("n2", "n3"))], {})
    assert [one.name for one in lease.slices] == ["s-1"]
    assert not is_whole(lease)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "a-group-of-the-user",
        "kinetic",
        "kinetic/job-a/1/0",
        "kinetic/job-a/1/0?",
        "kinetic/job-a/one/0?accelerator=cpu",
        "kinetic/job-a/1/0?accelerator=cpu&colour=teal",
        "kinetic/job-a/1/0?accelerator=cpu&hosts=many",
        "kinetic/job-a/1/0?hosts=2",
        "other/job-a/1/0?accelerator=cpu",
        "kinetic/job-a/1/0/5?accelerator=cpu",
        "kinetic/job-a/1/0?accelerator=cpu&hosts",
    ],
)
def test_what_is_not_ours_is_passed_over(name: str) -> None:
    assert leases_of([Group(name, ("head",))], {}) == ()


@given(st.text(max_size=60))
def test_no_name_breaks_the_reading(name: str) -> None:
    leases_of([Group(name), Group(f"kinetic/{name}"), Group(f"kinetic/job-a/1/0?{name}")], {})

"""Which slices are used, started, stopped or refused: tables, and what must hold for any of them."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinetic_ray.backends.local.pool import (
    Kind,
    Limits,
    Plan,
    Standing,
    idle_since,
    kind_of,
    next_names,
    parse_pool,
    plan,
    refusal,
    short_of_memory,
)
from kinetic_ray.core.accelerators import parse_accelerator
from kinetic_ray.errors import ConfigError

FOUR_HOSTS = parse_accelerator("tpu-v6e-16")
ONE_HOST = parse_accelerator("tpu-v6e-8")
FIXED = Limits({kind_of(FOUR_HOSTS): 2})
FREE = Limits()


def _slice(number: int, *, up: bool = True, used_at: float = 0.0, of: str = "tpu-v6e-16") -> Standing:
    accelerator = parse_accelerator(of)
    return Standing(f"{of}-{number}", kind_of(accelerator), accelerator.hosts, up, used_at)


@pytest.mark.parametrize(
    ("text", "pool"),
    [
        (None, None),
        ("{}", {}),
        ('{"tpu-v6e-16": 2}', {("tpu-v6e-16", 4): 2}),
        ('{"v6e-16": 1, "TPU-V6E-16": 1, "v4-8": 0}', {("tpu-v6e-16", 4): 2, ("tpu-v4-8", 4): 0}),
    ],
)
def test_pool_is_read(text: str | None, pool: dict[Kind, int] | None) -> None:
    assert parse_pool(text) == pool


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("two", "Expecting value"),
        ("[1]", "no JSON object"),
        ('{"tpu-v6e-17": 1}', "slices of"),
        ('{"cpu": 1}', "is no TPU"),
        ('{"l4": 1}', "is no TPU"),
        ('{"tpu-v6e-16": -1}', "whole number"),
        ('{"tpu-v6e-16": true}', "whole number"),
        ('{"tpu-v6e-16": 1.5}', "whole number"),
    ],
)
def test_bad_pool_is_refused_by_name(text: str, says: str) -> None:
    with pytest.raises(ConfigError, match="KINETIC_LOCAL_SLICES") as caught:
        parse_pool(text)
    assert not re.search(r"[?!.][?!.]", str(caught.value).partition(text)[2])
    assert """Write for example '{"tpu-v6e-16": 2}'""" in str(caught.value)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("limits", "name", "count", "says"),
    [
        (FREE, "tpu-v6e-64", 1, ""),
        (FREE, "tpu-v6e-16", 4, ""),
        (FREE, "tpu-v6e-16", 5, "20 hosts"),
        (FREE, "tpu-v6e-128", 1, "32 hosts"),
        (FIXED, "tpu-v6e-16", 2, ""),
        (FIXED, "tpu-v6e-16", 3, "2 x tpu-v6e-16"),
        (FIXED, "tpu-v4-8", 1, "KINETIC_LOCAL_SLICES"),
        (Limits({}), "tpu-v6e-16", 1, "no slices at all"),
    ],
)
def test_what_never_fits_is_refused_with_what_there_is(limits: Limits, name: str, count: int, says: str) -> None:
    why = refusal(limits, parse_accelerator(name), count)
    assert (says in why) if says else why == ""


@pytest.mark.parametrize(
    ("limits", "count", "standing", "taken", "wanted"),
    [
        # Nothing there yet.
        (FREE, 1, [], [], Plan((), start=1)),
        (FIXED, 2, [], [], Plan((), start=2)),
        # One is there and free, one is taken.
        (FREE, 1, [0], [], Plan(("tpu-v6e-16-0",))),
        (FREE, 2, [0], [], Plan(("tpu-v6e-16-0",), start=1)),
        (FREE, 1, [0], [0], Plan((), start=1)),
        (FIXED, 2, [0, 1], [0], Plan(("tpu-v6e-16-1",), wait="1 of 2 slices of tpu-v6e-16 are in use")),
        (FIXED, 1, [0, 1], [0, 1], Plan((), wait="2 of 2 slices of tpu-v6e-16 are in use")),
        # Nothing is started for a request that has to wait all the same.
        (FIXED, 2, [0], [0], Plan((), wait="1 of 1 slices of tpu-v6e-16 are in use")),
        # Sixteen hosts and no more.
        (FREE, 1, [0, 1, 2, 3], [0, 1, 2, 3], Plan((), wait="16 of 16 simulated hosts are in use")),
        (FREE, 2, [0, 1, 2], [0, 1, 2], Plan((), wait="12 of 16 simulated hosts are in use")),
    ],
)
def test_plan(limits: Limits, count: int, standing: list[int], taken: list[int], wanted: Plan) -> None:
    names = [f"tpu-v6e-16-{number}" for number in taken]
    assert plan(limits, FOUR_HOSTS, count, [_slice(n) for n in standing], names) == wanted


def test_slices_that_are_up_come_before_those_that_start() -> None:
    assert plan(FREE, FOUR_HOSTS, 1, [_slice(0, up=False), _slice(1)], []).use == ("tpu-v6e-16-1",)
    assert plan(FREE, FOUR_HOSTS, 1, [_slice(0, up=False)], []) == Plan(("tpu-v6e-16-0",))


def test_room_is_made_by_stopping_the_longest_unused() -> None:
    others = [_slice(n, of="tpu-v5p-16", used_at=10.0 - n) for n in range(4)]
    assert [s.hosts for s in others] == [4] * 4
    assert plan(FREE, FOUR_HOSTS, 1, others, ["tpu-v5p-16-3"]).stop == ("tpu-v5p-16-2",)
    assert plan(FREE, FOUR_HOSTS, 2, others, ["tpu-v5p-16-3"]).stop == ("tpu-v5p-16-2", "tpu-v5p-16-1")
    kept = plan(FREE, FOUR_HOSTS, 1, others, [], kept=[s.name for s in others])
    assert (kept.start, kept.stop) == (0, ())
    assert kept.wait


def test_a_shape_with_other_hosts_is_another_kind() -> None:
    two_hosts = parse_accelerator("tpu-v6e-8", chips_per_host=4)
    assert plan(FREE, two_hosts, 1, [_slice(0, of="tpu-v6e-8")], []) == Plan((), start=1)
    assert "chips_per_host=4" in refusal(Limits({kind_of(ONE_HOST): 1}), two_hosts, 1)


_STANDING = st.lists(
    st.builds(
        lambda number, of, up, used_at: _slice(number, of=of, up=up, used_at=used_at),
        st.integers(0, 5),
        st.sampled_from(["tpu-v6e-16", "tpu-v6e-8", "tpu-v5p-16"]),
        st.booleans(),
        st.floats(0, 100),
    ),
    max_size=6,
    unique_by=lambda s: s.name,
).filter(lambda there: sum(s.hosts for s in there) <= 16)


@given(
    _STANDING, st.integers(1, 4), st.sets(st.integers(0, 5)), st.sampled_from([FREE, Limits({("tpu-v6e-16", 4): 4})])
)
def test_any_plan_keeps_the_rules(standing: list[Standing], count: int, taken: set[int], limits: Limits) -> None:
    names = {f"{s.name.rsplit('-', 1)[0]}-{n}" for s in standing for n in taken}
    made = plan(limits, FOUR_HOSTS, count, standing, names)
    by_name = {s.name: s for s in standing}
    assert not {*made.use, *made.stop} & names
    assert not set(made.use) & set(made.stop)
    assert all(by_name[name].kind == kind_of(FOUR_HOSTS) for name in made.use)
    assert len(made.use) + made.start == count or (made.wait and made.start == 0 and not made.stop)
    left = [s for s in standing if s.name not in made.stop]
    if limits.pool is None:
        assert sum(s.hosts for s in left) + made.start * FOUR_HOSTS.hosts <= limits.max_hosts
    elif made.start:
        assert sum(s.kind == kind_of(FOUR_HOSTS) for s in left) + made.start <= 4


def test_memory_is_made_by_stopping_one_idle_slice() -> None:
    there = [_slice(0, used_at=5.0), _slice(1, used_at=1.0), _slice(2, up=False)]
    assert short_of_memory(100, 200, there, ["tpu-v6e-16-1"]) == "tpu-v6e-16-0"
    assert short_of_memory(100, 200, there, []) == "tpu-v6e-16-1"
    assert short_of_memory(300, 200, there, []) == ""
    assert short_of_memory(100, 200, there[2:], []) == ""


def test_idle_slices_are_those_that_nobody_used_lately() -> None:
    there = [_slice(0, used_at=5.0), _slice(1, used_at=1.0), _slice(2, used_at=1.0), _slice(3, used_at=1.0, up=False)]
    assert idle_since(there, ["tpu-v6e-16-2"], before=2.0) == ("tpu-v6e-16-1",)


@given(st.integers(1, 5), st.sets(st.integers(0, 8)))
def test_new_names_are_new_and_the_lowest(count: int, used: set[int]) -> None:
    names = next_names(FOUR_HOSTS, count, {f"tpu-v6e-16-{number}" for number in used})
    numbers = [int(name.rsplit("-", 1)[1]) for name in names]
    assert numbers == [number for number in range(20) if number not in used][:count]

"""What is kept for further use: bounded by number and by bytes, what was used longest ago goes."""

import pytest

from kinetic_ray.runner.calls.errands import CodeMemory
from kinetic_ray.runner.calls.recent import Recent
from kinetic_ray.runner.calls.wish import Order, Wish


@pytest.mark.parametrize(
    ("most", "most_bytes", "kept"),
    [(9, 99, "abcd"), (2, 99, "cd"), (9, 25, "cd"), (9, 1, "d"), (1, 99, "d")],
)
def test_what_was_used_longest_ago_goes_and_the_last_one_never(most: int, most_bytes: int, kept: str) -> None:
    recent = Recent(most, most_bytes)
    for name in "abcd":
        assert recent.add(name, name.upper(), 10) == name.upper()
    assert "".join(name for name in "abcd" if recent.get(name)) == kept


def test_what_is_used_stays() -> None:
    recent = Recent(2, 99)
    recent.add("a", 1, 10)
    recent.add("b", 2, 10)
    assert recent.get("a") == 1
    recent.add("c", 3, 10)
    assert [recent.get(name) for name in "abc"] == [1, None, 3]


def test_what_is_added_again_counts_once() -> None:
    recent = Recent(9, 30)
    for nbytes in (30, 20, 10, 10):
        recent.add("a", nbytes, nbytes)
    recent.add("b", 1, 20)
    assert (recent.get("a"), recent.get("b")) == (10, 1)


def test_the_desk_remembers_code_up_to_its_bytes() -> None:
    memory = CodeMemory()
    orders = [Order(Wish(bundle=f"b{n}"), f"f{n}", "f", "c", sizes=(400 << 20, 300 << 20)) for n in range(4)]
    for n, order in enumerate(orders):
        memory.complete(order, [f"function {n}", f"archive {n}"])
    found = [memory.complete(order, []) for order in orders]
    assert [one.function for one in found] == [None, None, "function 2", "function 3"]
    assert [one.archive for one in found] == [None, "archive 1", "archive 2", "archive 3"]

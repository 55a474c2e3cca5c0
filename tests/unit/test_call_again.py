"""What an agent remembers of calls that are made by their name alone."""

from kinetic_ray.runner.calls.again import MOST_BYTES, Again, is_to_be_kept, new_name
from kinetic_ray.runner.calls.heads import call_head, read_head
from kinetic_ray.runner.calls.wish import Order, Wish

HEAD = read_head(call_head(gang="g1", client="c1", order=Order(wish=Wish(), function="d1", name="f", client="c1")))


def test_names_are_readable_and_never_the_same() -> None:
    names = {new_name("train") for _ in range(1000)}
    assert len(names) == 1000
    assert all(name.startswith("train #") and is_to_be_kept(name) for name in names)
    assert not is_to_be_kept("train")
    assert not is_to_be_kept("item #3")  # a user's own, of which an agent would keep one for each


def test_what_was_kept_last_is_there() -> None:
    again = Again(most=3)
    for number in range(5):
        again.keep(f"f #{number}", (HEAD, bytes([number])))
    assert [again.get(f"f #{number}") for number in range(5)] == [
        None,
        None,
        (HEAD, b"\x02"),
        (HEAD, b"\x03"),
        (HEAD, b"\x04"),
    ]


def test_large_arguments_are_not_kept() -> None:
    again = Again()
    again.keep("f #1", (HEAD, b"x" * (MOST_BYTES + 1)))
    assert again.get("f #1") is None

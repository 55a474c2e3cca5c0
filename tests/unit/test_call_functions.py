"""Functions that an agent keeps: no more than so many, and those that are still on their way are waited for."""

import threading

from kinetic_ray.runner.calls.functions import MOST, Functions
from kinetic_ray.runner.calls.packing import Packed


def test_there_are_never_too_many() -> None:
    known = Functions()
    for number in range(MOST + 2):
        known.add(str(number), Packed(b""))
    assert [known.get(digest, 0.0) is None for digest in ("0", "1", "2")] == [True, True, False]


def test_one_that_is_on_its_way_is_waited_for() -> None:
    known, packed = Functions(), Packed(b"1")
    threading.Timer(0.01, known.add, ("a", packed)).start()
    assert known.get("a", 20.0) is packed

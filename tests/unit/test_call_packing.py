"""Values on their way: what is pickled how often, what lies beside the pickle, who sees what."""

import os
import pickle
import subprocess
import sys
import threading
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinetic_ray.errors import PayloadError
from kinetic_ray.runner.calls import packing
from kinetic_ray.runner.calls.functions import Functions
from kinetic_ray.runner.calls.packing import OUT_OF_BAND, Live, Packed, PackedList
from kinetic_ray.runner.calls.simple import is_simple, read_simple
from kinetic_ray.runner.calls.words import from_parts, to_parts

PLAIN = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary()
VALUES = st.recursive(PLAIN, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.tuples(inner))


def by_name(_module: str) -> bool:
    return False


def through_pickle(packed: Any) -> Any:
    """As Ray would carry it: its buffers beside the pickle."""
    buffers: list[pickle.PickleBuffer] = []
    data = pickle.dumps(packed, 5, buffer_callback=buffers.append)
    return pickle.loads(data, buffers=buffers)


@pytest.fixture
def packed_here() -> Iterator[None]:
    """This process is an agent's for the time of a test."""
    packing.keep_packed()
    yield
    packing.keep_packed(False)


@given(VALUES)
def test_values_come_back_as_they_were(value: Any) -> None:
    packed = packing.pack_value(value)
    assert packing.unpack(packed) == value
    assert through_pickle(packed) == value


@given(st.lists(VALUES), st.dictionaries(st.text(), VALUES))
def test_arguments_come_back_as_they_were(args: list[Any], kwargs: dict[str, Any]) -> None:
    packed = packing.pack_arguments(args, kwargs, by_name)
    assert packing.unpack_arguments(packed) == (tuple(args), kwargs)
    assert packing.unpack_arguments(Packed(packed.data)) == (tuple(args), kwargs)


def test_what_arguments_share_stays_shared() -> None:
    shared: list[int] = []
    args, kwargs = packing.unpack_arguments(packing.pack_arguments((shared,), {"again": shared}, by_name))
    assert args[0] is kwargs["again"]


def test_a_large_array_is_copied_nowhere() -> None:
    array = np.arange(1_000_000.0)
    packed = packing.pack_value({"deep": [array]})
    assert len(packed.data) < 1000
    assert np.shares_memory(np.frombuffer(packed.buffers[0]), array)
    back = through_pickle(packed)["deep"][0]
    assert np.shares_memory(back, array)
    assert packed.nbytes == array.nbytes + len(packed.data)


def test_packing_100_megabytes_takes_no_memory() -> None:
    array = np.zeros(100 << 20, dtype="u1")
    tracemalloc.start()
    packed = packing.pack_arguments((array,), {"more": [array]}, by_name)
    buffers: list[pickle.PickleBuffer] = []
    pickle.dumps(packed, 5, buffer_callback=buffers.append)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1 << 20


def test_small_arrays_stay_in_the_pickle() -> None:
    packed = packing.pack_value(np.zeros(OUT_OF_BAND - 1, dtype="u1"))
    assert packed.buffers == ()
    assert len(packing.pack_value(np.zeros(OUT_OF_BAND, dtype="u1")).buffers) == 1


def test_an_agent_sees_it_packed(packed_here: None) -> None:
    packed = through_pickle(packing.pack_value([1, np.zeros(OUT_OF_BAND)]))
    assert isinstance(packed, Packed)
    assert packed.data[:1] == b"\x80" and len(packed.buffers) == 1


def test_a_list_of_packed_values_is_the_list_of_values() -> None:
    items = PackedList([packing.pack_value([1]), packing.pack_value({"a": 2})])
    assert through_pickle(items) == [[1], {"a": 2}]


def test_a_list_of_packed_values_stays_packed_at_the_desk(packed_here: None) -> None:
    items = through_pickle(PackedList([packing.pack_value([1])]))
    assert isinstance(items, PackedList) and isinstance(items.items[0], Packed)


def test_large_pickles_go_beside_as_well() -> None:
    packed = packing.pack_value(b"x" * (1 << 20))
    assert len(pickle.dumps(packed, 5, buffer_callback=lambda _: None)) < 1000
    assert through_pickle(packed) == b"x" * (1 << 20)


def test_only_a_pickle_that_is_all_travels_light() -> None:
    assert isinstance(packing.pack_arguments((1,), {}, by_name).light(), bytes)
    assert isinstance(packing.pack_arguments((np.zeros(OUT_OF_BAND),), {}, by_name).light(), Packed)
    assert isinstance(Packed(b"x", (), [Live("ref")]).light(), Packed)
    assert isinstance(packing.pack_value("x" * OUT_OF_BAND).light(), Packed)


def test_what_cannot_travel_is_named() -> None:
    with pytest.raises(PayloadError, match=r"train: args\[1\]\['model'\] \(_thread.lock\) can't be sent"):
        packing.pack_arguments((1, {"model": threading.Lock()}), {}, by_name, "train")
    lock = threading.Lock()
    with pytest.raises(PayloadError, match="closure variable lock"):
        packing.pack_function(lambda: lock, lambda name: name == __name__)


def test_functions_come_with_the_modules_that_they_need() -> None:
    def mine(value: float) -> Any:
        return np.sqrt(value)

    packed, modules = packing.pack_function(mine, lambda name: name == __name__)
    assert packing.unpack(packed)(4.0) == 2.0
    assert "numpy" in modules


def test_refs_and_handles_lie_beside_the_pickle(tmp_path: Path) -> None:
    """In a process of its own: Ray's classes are there once Ray is imported, without a cluster."""
    script = """
import ray
from kinetic_ray.runner.calls import packing
top, inner = ray.ObjectRef(b"t" * 28), ray.ObjectRef(b"i" * 28)
packed = packing.pack_arguments((top, [inner]), {"k": top}, lambda _: False)
assert [tuple(each) for each in packed.live] == [(top, True), (inner, False)], packed.live
assert packing.unpack_arguments(packed) == ((top, [inner]), {"k": top})
resolved = packing.Packed(packed.data, (), [packing.Live("value", True), packed.live[1]])
assert packing.unpack_arguments(resolved) == (("value", [inner]), {"k": "value"})
value = packing.pack_value({"ref": inner})
assert packing.unpack(value) == {"ref": inner} and value.live == (packing.Live(inner),)
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=120, env=os.environ, cwd=tmp_path)


def test_nested_reading_keeps_its_places_apart() -> None:
    inner = Packed(pickle.dumps(_At(0), 5), (), [Live("inner")])
    outer = Packed(pickle.dumps([_Opens(inner), _At(0)], 5), (), [Live("outer")])
    assert packing.unpack(outer) == ["inner", "outer"]


class _At:
    def __init__(self, place: int) -> None:
        self.place = place

    def __reduce__(self) -> Any:
        return packing.live_at, (self.place,)


class _Opens:
    def __init__(self, packed: Packed) -> None:
        self.packed = packed

    def __reduce__(self) -> Any:
        return _open, (self.packed.data, [tuple(each) for each in self.packed.live])


def _open(data: bytes, live: list[Any]) -> Any:
    return packing.unpack(Packed(data, (), [Live(*each) for each in live]))


def test_an_agent_forgets_the_functions_that_it_used_longest_ago() -> None:
    functions = Functions(most_bytes=25)
    for digest in ("a", "b"):
        functions.add(digest, Packed(b"x" * 10))
    assert functions.get("a", 0) is not None
    functions.add("c", Packed(b"x" * 10))
    assert [digest for digest in "abc" if functions.get(digest, 0)] == ["a", "c"]
    functions.add("huge", Packed(b"x" * 1000))
    assert functions.get("huge", 0) is not None and functions.get("a", 0) is None


@given(PLAIN)
def test_simple_values_are_read_back(value: Any) -> None:
    data = pickle.dumps(value, 5)
    if is_simple(value):
        back = read_simple(data)
        assert back == value and type(back) is type(value)
    else:
        with pytest.raises(ValueError, match="not a simple value"):
            read_simple(data)


@pytest.mark.parametrize("value", [np.float64(1), [1], 2**80, "ä", "x" * 5000, True.__class__, os.getpid])
def test_what_has_a_class_of_its_own_is_not_simple(value: Any) -> None:
    assert not is_simple(value)
    with pytest.raises(ValueError, match="not a simple value"):
        read_simple(pickle.dumps(value, 5))


def test_a_packed_value_in_a_message_with_another_inside_and_a_name() -> None:
    inner = Packed(b"in", [b"buffer"], [Live({"ref": "x"})])
    packed = Packed(b"out", [b"one", b"two"], [Live({"ref": "a"}), Live(inner, is_value=True)])
    parts = [memoryview(part) for part in to_parts(packed, lambda obj: obj)]
    back = from_parts(parts, lambda wire: wire["ref"])
    assert bytes(back.data) == b"out" and [bytes(each) for each in back.buffers] == [b"one", b"two"]
    assert back.live[0] == Live("a")
    assert back.live[1].is_value and bytes(back.live[1].obj.buffers[0]) == b"buffer"
    assert back.live[1].obj.live == (Live("x"),)

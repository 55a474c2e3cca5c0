"""Values on their way through the store: nothing large is copied, all that is in them comes back as it was."""

import gc
import io
import os
import pickle
import subprocess
import sys
import tracemalloc
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kinetic_ray.payload.values import PackedValue, pack_value
from kinetic_ray.store import Store, open_store

GOLDEN = Path(__file__).parents[1] / "golden"
REGENERATE = os.environ.get("REGENERATE_GOLDEN") == "1"
MIB = 1 << 20


def whole(packed: PackedValue) -> bytes:
    data = b"".join(packed.chunks())
    assert len(data) == packed.nbytes
    return data


def there_and_back(value: Any, large: int = 64) -> Any:
    return pickle.loads(whole(pack_value(value, large)))


# What comes back.


def _array(count: int, order: Any, frozen: bool) -> Any:
    array = np.asarray(np.arange(count * 2, dtype=np.int32).reshape(count, 2), order=order)
    array.flags.writeable = not frozen
    return array


_arrays = st.builds(
    _array,
    st.integers(0, 40),
    st.sampled_from("CF"),
    st.booleans(),
)
_leaves = st.none() | st.integers() | st.text() | st.binary(max_size=200) | st.binary().map(bytearray) | _arrays
_values = st.recursive(
    _leaves, lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(st.text(), inner), max_leaves=8
)


def same(one: Any, other: Any) -> bool:
    if type(one) is not type(other):
        return False
    if isinstance(one, np.ndarray):
        flags = [(each.flags.writeable, each.flags.f_contiguous, each.dtype, each.shape) for each in (one, other)]
        return flags[0] == flags[1] and bool((one == other).all())
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


@given(_values, st.integers(0, 200))
def test_values_come_back_as_they_were(value: Any, large: int) -> None:
    assert same(there_and_back(value, large), value)


@given(_values, st.integers(0, 200))
def test_what_is_one_object_stays_one(part: Any, large: int) -> None:
    array = np.arange(100.0)
    value = [part, {"a": array, "b": [array, part]}, (array,)]
    value.append(value)
    back = there_and_back(value, large)
    assert back[3] is back
    assert back[1]["a"] is back[1]["b"][0] is back[2][0]
    assert back[1]["b"][1] is back[0] or isinstance(part, int | tuple | str | bytes)
    back[1]["a"][0] = 7.0  # a local call's array can be written to
    assert back[2][0][0] == 7.0


@pytest.mark.parametrize("dtype", ["float16", "complex128", "M8[s]", "S7", "U3", [("a", "i4"), ("b", "f8")], "object"])
def test_kinds_of_arrays(dtype: Any) -> None:
    array = np.zeros((64, 3), dtype)
    back = there_and_back([array, array[::2], array[:0], array.T])
    assert all(same(one, other) for one, other in zip(back, [array, array[::2], array[:0], array.T], strict=True))


JAX = """
import pickle
import jax
import jax.numpy as jnp
from kinetic_ray.payload.values import pack_value

MIB = 1 << 20
for dtype in (jnp.float32, jnp.bfloat16, jnp.int8, jnp.bool_):
    array = jnp.ones((MIB, 2), dtype)
    packed = pack_value({"a": array, "again": array})
    back = pickle.loads(b"".join(packed.chunks()))
    assert packed.nbytes < array.nbytes + 2000, dtype
    assert isinstance(back["a"], jax.Array)
    assert back["a"] is back["again"]
    assert (back["a"].dtype, back["a"].shape, back["a"].weak_type) == (array.dtype, array.shape, array.weak_type)
    assert bool((back["a"] == array).all())
keys = jax.random.split(jax.random.key(0), 3)
weak = jnp.full((MIB,), 1.0)
spread = jax.device_put(jnp.arange(4.0 * MIB), jax.sharding.NamedSharding(jax.make_mesh((4,), "x"), jax.P("x")))
back = pickle.loads(b"".join(pack_value([weak, jnp.float32(2), keys, spread]).chunks()))
assert back[0].weak_type == weak.weak_type
assert back[1] == 2
assert bool((jax.random.key_data(back[2]) == jax.random.key_data(keys)).all())
assert bool((back[3] == jnp.arange(4.0 * MIB)).all())
"""


def test_arrays_of_jax_come_back_on_the_device() -> None:
    """In a process of its own: jax starts threads, and other tests fork."""
    flags = {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_force_host_platform_device_count=4"}
    subprocess.run([sys.executable, "-c", JAX], check=True, env={**os.environ, **flags}, timeout=300)


# What it costs.


@contextmanager
def most_memory() -> Iterator[list[int]]:
    """The most bytes that Python and NumPy have taken inside beyond what they had."""
    peak = [0]
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        yield peak
        peak[0] = tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(tmp_path / "store")


def test_a_large_value_is_stored_without_a_copy(store: Store) -> None:
    array = np.ones(8 * MIB)
    value = {"array": array, "nested": [array.reshape(-1, 2), b"x" * (32 * MIB)]}
    with most_memory() as most:
        store.write_object("value", pack_value(value).chunks())
    assert most[0] < 16 * MIB
    assert store.size("value") > 160 * MIB


@pytest.mark.parametrize("kind", ["array", "bytes", "bytearray"])
def test_a_large_value_is_read_into_its_own_memory(store: Store, kind: str) -> None:
    size = 64 * MIB
    value: Any = {
        "array": lambda: np.ones(size // 8),
        "bytes": lambda: b"x" * size,
        "bytearray": lambda: bytearray(size),
    }
    store.write_object("value", pack_value({"it": value[kind]()}).chunks())
    with most_memory() as most, store.open_object("value") as file:
        back = pickle.load(file)
    assert size <= most[0] < size + 24 * MIB
    assert memoryview(back["it"]).nbytes == size


def test_what_changes_while_it_is_written_still_fits_its_digest(store: Store) -> None:
    array = np.zeros(MIB)

    def chunks() -> Iterator[bytes]:
        for chunk in pack_value(array).chunks():
            array[:] += 1
            yield chunk

    assert store.verify_object("value", store.write_object("value", chunks()))


# The format.

#: Not of NumPy, whose own names in a pickle change with its versions.
VALUE = {"small": [1, "two", b"three"], "large": pickle.PickleBuffer(bytearray(range(100)))}


@pytest.mark.parametrize(("name", "large"), [("value-v1.pickle", 1 << 20), ("value-parts.pickle", 100)])
def test_both_forms_stay_as_they_are(name: str, large: int) -> None:
    written = whole(pack_value(VALUE, large))
    if REGENERATE:
        (GOLDEN / name).write_bytes(written)
    golden = (GOLDEN / name).read_bytes()
    assert written == golden
    for back in (pickle.loads(golden), pickle.load(io.BytesIO(golden))):
        assert back == {"small": [1, "two", b"three"], "large": bytearray(range(100))}


def test_a_reader_needs_nothing_of_ours() -> None:
    names = {b"kinetic", b"cloudpickle"}
    assert not any(name in whole(pack_value(VALUE, 100)) for name in names)


# An object as a file.


@settings(max_examples=30)
@given(st.binary(max_size=300), st.lists(st.integers(0, 100), max_size=10))
def test_a_file_over_an_object_reads_what_is_in_it(data: bytes, sizes: list[int]) -> None:
    store = open_store(f"memory://{uuid.uuid4()}")
    store.create("a", data)
    with store.open_object("a") as file:
        plain = io.BytesIO(data)
        assert [file.read(size) for size in sizes] == [plain.read(size) for size in sizes]
        assert file.read() == plain.read()
        assert file.read() == b""

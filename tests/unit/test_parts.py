"""Payloads in parts: what is large is stored once, said by name, refused by name; what is shared stays shared."""

import ctypes
import logging
import pickle
import sys
import types
import uuid
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import IntFlag
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinetic_ray.errors import PayloadError
from kinetic_ray.payload import Payload, dump_call, load_call, pack_call
from kinetic_ray.payload.parts import LARGE
from kinetic_ray.payload.pickling import ValuePickler
from kinetic_ray.store import open_store
from tests.unit import payloads
from tests.unit.payloads import errors

GOLDEN = Path(__file__).parents[1] / "golden"


def by_value(name: str) -> bool:
    return name in (__name__, "__main__")


def pack(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Payload:
    return pack_call(function, args, kwargs, by_value=by_value)


class Shelf:
    """Blobs in memory, and what was put there."""

    def __init__(self) -> None:
        self.store = open_store(f"memory://{uuid.uuid4()}")

    def call(self, payload: Payload) -> Any:
        data = self.store.get_blob(payload.store(self.store.put_blob))
        function, args, kwargs = load_call(data, fetch=self.store.get_blob)
        return function(*args, **kwargs)

    def sizes(self) -> list[int]:
        return sorted(self.store.size(key) for key in self.store.walk("blobs"))

    def large(self) -> list[int]:
        return [size for size in self.sizes() if size >= LARGE]


BIG = bytes(range(256)) * 8192  # 2 MiB
ARRAY = np.arange(1 << 19, dtype=np.float64)  # 4 MiB
TABLE = [float(number) for number in range(200_000)]  # 1.8 MB in a pickle


def uses_bytes(x: int) -> tuple[int, int]:
    return x, len(BIG)


def uses_array(x: int) -> tuple[int, int, bool]:
    return x, len(ARRAY), bool(ARRAY.flags.writeable)


def uses_table(x: int) -> tuple[int, int]:
    return x, len(TABLE)


@pytest.mark.parametrize(
    ("function", "value"), [(uses_bytes, len(BIG)), (uses_array, len(ARRAY)), (uses_table, len(TABLE))]
)
def test_what_a_function_captures_is_stored_once(function: Callable[..., Any], value: int) -> None:
    shelf = Shelf()
    for x in range(3):
        assert shelf.call(pack(function, x))[:2] == (x, value)
    assert len(shelf.large()) == 1


def test_arrays_among_the_arguments_are_stored_once() -> None:
    shelf = Shelf()
    for x in range(3):
        assert shelf.call(pack(lambda x, array: (x, int(array[-1])), x, array=ARRAY)) == (x, (1 << 19) - 1)
    assert shelf.large() == [ARRAY.nbytes]


def test_arrays_can_be_written_to_where_they_could_be() -> None:
    fixed = ARRAY.copy()
    fixed.flags.writeable = False
    for array in (ARRAY, ARRAY[:10], np.asfortranarray(ARRAY.reshape(1024, -1)), fixed, ARRAY[::2]):
        ((arrived,), _) = arguments(array)
        assert arrived.flags.writeable == array.flags.writeable
        assert arrived.flags.f_contiguous >= array.flags.f_contiguous
        assert np.array_equal(arrived, array)
    ((data,), _) = arguments(bytearray(BIG))
    assert type(data) is bytearray
    data[0] = 7
    assert BIG[0] == 0


def arguments(*args: Any, **kwargs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments after a trip through a store."""
    store = Shelf().store
    blob = pack(print, *args, **kwargs).store(store.put_blob)
    _, args, kwargs = load_call(store.get_blob(blob), fetch=store.get_blob)
    return args, kwargs


def test_what_a_function_and_its_arguments_share_stays_shared() -> None:
    shared, array = [1], np.zeros(1 << 18)

    def function(x: Any, y: Any, *, again: Any) -> tuple[bool, ...]:
        return x is shared, y is array, again["x"] is shared, again["y"] is array

    assert Shelf().call(pack(function, shared, array, again={"x": shared, "y": array})) == (True,) * 4
    method = payloads.Trainer(shared).train.__wrapped__  # type: ignore[arg-type]
    opened, (arrived,), _ = load_call(pack(method, shared).data)
    assert opened.__self__.base is arrived  # type: ignore[attr-defined]


def test_what_is_small_is_one_object() -> None:
    shelf = Shelf()
    assert shelf.call(pack(lambda x: x + 1, 1)) == 2
    assert len(shelf.sizes()) == 1


def test_many_threads_store_one_large_part() -> None:
    shelf = Shelf()
    with ThreadPoolExecutor(8) as pool:
        assert [*pool.map(lambda x: shelf.call(pack(uses_array, x))[0], range(24))] == [*range(24)]
    assert len(shelf.large()) == 1


def test_a_part_that_is_missing_is_said_so() -> None:
    store = open_store(f"memory://{uuid.uuid4()}")
    blob = pack(uses_array, 1).store(store.put_blob)
    data = store.get_blob(blob)
    with pytest.raises(PayloadError, match="parts in a store"):
        load_call(data)


def test_the_second_format_stays_readable() -> None:
    function, args, kwargs = load_call((GOLDEN / "payload-v2.pickle").read_bytes())
    assert function(*args, **kwargs) == (6, payloads.Point(1, 2), 15)


# Much, and too much.

HEAVY = bytes(20 << 20)


def inner() -> int:
    return len(HEAVY)


def outer(*_args: Any) -> int:
    return inner()


def carries(_x: int) -> int:
    return inner()


def test_what_is_much_is_said_once_by_name_and_size(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "kinetic_ray"):
        for x in range(3):
            pack(carries, x)
    (message,) = caplog.messages
    assert message.startswith("carries takes along the function's global inner's global HEAVY (bytes, 21.0 MB)")


def test_large_arguments_are_no_news(caplog: pytest.LogCaptureFixture) -> None:
    pack(print, HEAVY)
    assert caplog.messages == []


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: pack(print, 1, {"data": [HEAVY]}), "args[1]['data'][0] (bytes, 21.0 MB)"),
        (lambda: pack(print, model=payloads.Slotted(HEAVY)), "kwargs['model'].inner (bytes, 21.0 MB)"),
        (lambda: pack(outer, 1), "the function's global inner's global HEAVY (bytes, 21.0 MB)"),
        (lambda: pack(lambda: HEAVY, np.zeros(4 << 20)), "args[0] (numpy.ndarray, 33.6 MB), the function's global"),
        (lambda: pack(print, [0.5] * 3_000_000), "args[0] (list, 27.0 MB)"),
    ],
)
def test_what_is_too_much_is_refused_by_name_and_size(
    call: Callable[[], Any], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    call()
    monkeypatch.setenv("KINETIC_PAYLOAD_LIMIT_MB", "20")
    with pytest.raises(PayloadError, match="more than the 20 MB of KINETIC_PAYLOAD_LIMIT_MB") as caught:
        call()
    assert told in str(caught.value)


# Kinds that others change on the way.


@pytest.mark.parametrize(
    "view",
    [
        memoryview(b"abc"),
        memoryview(bytearray(b"abc")),
        memoryview(b""),
        memoryview(np.arange(6, dtype=np.int32).reshape(2, 3)),
        memoryview(b"abcdef")[::2],
        memoryview(b"a" * (LARGE + 1)),
    ],
)
def test_a_view_arrives_as_one(view: memoryview) -> None:
    (([arrived],), _) = arguments([view])
    assert type(arrived) is memoryview
    assert (arrived.tobytes(), arrived.format, arrived.shape) == (view.tobytes(), view.format, view.shape)
    assert arrived.readonly == view.readonly


@pytest.mark.parametrize(
    "view",
    [
        memoryview(np.zeros(2, dtype=[("a", "i4"), ("b", "f8")])),
        memoryview(np.zeros(2, dtype=">i4")),
        memoryview(np.zeros(2, dtype="f2")),
        memoryview(np.zeros((0, 3))),
        memoryview((ctypes.c_int * 3)()),
    ],
)
def test_a_view_that_cannot_be_made_again_is_refused_where_it_is_sent(view: memoryview) -> None:
    with pytest.raises(PayloadError, match=r"args\[0\]\['view'\].*memoryview.*pass what it shows"):
        pack(print, {"view": view})
    with pytest.raises(TypeError, match="memoryview of format"):
        ValuePickler().dumps(view)


def test_errors_arrive_whatever_their_constructors_want() -> None:
    frozen, keyword = errors.Frozen(code=1), errors.KeywordOnly(code=3)
    (first, second), kwargs = arguments(frozen, keyword, again=[keyword])
    assert (type(first), first.code) == (errors.Frozen, 1)
    assert (type(second), second.code, str(second)) == (errors.KeywordOnly, 3, "code 3")
    assert kwargs["again"][0] is second


def test_an_open_file_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "data.txt").write_text("x")
    with (tmp_path / "data.txt").open() as file, pytest.raises(PayloadError, match=r"args\[0\]\['log'\].*open file"):
        pack(print, {"log": file})
    with (tmp_path / "data.txt").open("rb") as raw, pytest.raises(PayloadError, match=r"args\[0\]\['log'\]"):
        pack(print, {"log": raw})


def test_the_standard_streams_are_the_hosts_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with (tmp_path / "said").open("w") as stream:
        monkeypatch.setattr(sys, "stderr", stream)
        ((arrived,), _) = arguments(sys.stderr)
        assert arrived is stream


# Any arguments, with what they share.


class Level(IntFlag):
    LOW = 1
    HIGH = 2


@dataclass(slots=True)
class Pair:
    left: Any
    right: Any


class Named(dict):  # type: ignore[type-arg]
    name: Any = None


class Row(list):  # type: ignore[type-arg]
    name: Any = None


def of_the_script() -> int:
    return 7


@st.composite
def heaps(draw: st.DrawFn) -> list[Any]:
    """Values that hold each other in any way, in circles too."""
    makers: list[Callable[[], Any]] = [
        list,
        dict,
        OrderedDict,
        Named,
        Row,
        deque,
        set,
        lambda: defaultdict(of_the_script),
        lambda: Pair(None, None),
        lambda: np.arange(3),
        lambda: float("nan"),
        lambda: Level.LOW | Level.HIGH,
        lambda: bytearray(b"x"),
        lambda: "text",
        types.SimpleNamespace,
        lambda: payloads.Point(1, 2),
    ]
    heap = [draw(st.sampled_from(makers))() for _ in range(draw(st.integers(1, 8)))]
    for value in heap:
        others = draw(st.lists(st.sampled_from(heap), max_size=3))
        if isinstance(value, list | deque):
            value.extend(others)
        elif isinstance(value, dict):
            value.update({str(number): other for number, other in enumerate(others)})
        elif isinstance(value, Pair) and others:
            value.left, value.right = others[0], others[-1]
        elif isinstance(value, types.SimpleNamespace):
            vars(value).update({f"a{number}": other for number, other in enumerate(others)})
        if isinstance(value, Named | Row) and others:
            value.name = others[0]
    return heap


def isomorphic(one: Any, other: Any) -> bool:
    """Whether two heaps have the same kinds, values, orders, and share in the same places."""
    pairs: dict[int, Any] = {}
    waiting = [(one, other)]
    while waiting:
        left, right = waiting.pop()
        if type(left) is not type(right):
            return False
        if isinstance(left, np.ndarray):
            if not np.array_equal(left, right):
                return False
        elif not isinstance(left, list | tuple | dict | deque | set | Pair | types.SimpleNamespace | bytearray):
            if left != right and left == left:  # noqa: PLR0124 - NaN
                return False
            continue
        if id(left) in pairs:
            if pairs[id(left)] is not right:
                return False
            continue
        pairs[id(left)] = right
        parts = [_inside(left), _inside(right)]
        if len(parts[0]) != len(parts[1]):
            return False
        waiting += zip(*parts, strict=True)
    return len({id(each) for each in pairs.values()}) == len(pairs)


def _inside(value: Any) -> list[Any]:
    found: list[Any] = []
    if isinstance(value, dict):
        found += [*value, *value.values()]
    elif isinstance(value, list | tuple | deque):
        found += value
    elif isinstance(value, Pair):
        found += [value.left, value.right]
    found += [*getattr(value, "__dict__", {}).values()]
    if isinstance(value, defaultdict):
        found.append(value.default_factory and value.default_factory())
    return found


@given(heaps(), st.data())
def test_any_heap_arrives_as_it_is(heap: list[Any], data: st.DataObject) -> None:
    captured = data.draw(st.sampled_from(heap))
    kept = data.draw(st.sampled_from(heap))

    def function(*args: Any, **kwargs: Any) -> Any:
        return [captured, args, kwargs]

    arrived, args, kwargs = load_call(pack(function, *heap, kept=kept).data)
    assert isomorphic([captured, tuple(heap), {"kept": kept}], arrived(*args, **kwargs))


def test_payloads_of_tools_are_one_piece() -> None:
    index = pickle.loads(dump_call(print, (BIG,)))
    assert (index["version"], index["main"]) == (2, None)

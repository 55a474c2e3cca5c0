"""The payload: what arrives is what was sent, by name or by value; what can't be sent is named."""

import copy
import functools
import pickle
import socket
import subprocess
import sys
import threading
import types
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kinetic_ray as kinetic
from kinetic_ray.errors import ConfigError, PayloadError
from kinetic_ray.payload import Payload, dump_call, load_call, pack_call, run_script
from kinetic_ray.payload.pickling import plain
from tests.unit import payloads

ROOT = Path(__file__).parents[2]


def pack(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Payload:
    return pack_call(function, args, kwargs, by_value=lambda name: name == "__main__")


def there_and_back(*args: Any, **kwargs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    _, args, kwargs = load_call(pack(print, *args, **kwargs).data)
    return args, kwargs


# What arrives is what was sent.

keys = st.one_of(st.text(), st.integers(), st.booleans(), st.none(), st.binary(), st.tuples(st.integers(), st.text()))
leaves = st.one_of(
    keys,
    st.floats(allow_nan=False),
    st.complex_numbers(allow_nan=False),
    st.builds(payloads.Point, st.integers(), st.integers()),
)
values = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner),
        st.lists(inner).map(tuple),
        st.dictionaries(keys, inner),
        st.dictionaries(keys, inner).map(OrderedDict),
        st.dictionaries(keys, inner).map(lambda d: defaultdict(list, d)),
        st.lists(inner).map(deque),
        st.frozensets(keys),
        st.sets(keys),
    ),
    max_leaves=20,
)


def same(left: Any, right: Any) -> bool:
    """Equal, and of the same kinds all the way down: 1, 1.0 and True are not the same."""
    if type(left) is not type(right):
        return False
    if isinstance(left, dict):
        return same([*left.items()], [*right.items()])
    if isinstance(left, list | tuple | deque):
        return len(left) == len(right) and all(map(same, left, right))
    return bool(left == right)


@given(st.lists(values, max_size=4), st.dictionaries(st.text("abc", min_size=1), values, max_size=3))
def test_any_arguments_arrive_as_they_are(args: list[Any], kwargs: dict[str, Any]) -> None:
    arrived_args, arrived_kwargs = there_and_back(*args, **kwargs)
    assert same(arrived_args, tuple(args))
    assert same(arrived_kwargs, kwargs)


def test_what_is_shared_stays_shared_across_all_arguments() -> None:
    shared = [1]
    (first, second), kwargs = there_and_back(shared, {"a": shared}, b=(shared,))
    assert first is second["a"] is kwargs["b"][0]


def test_cycles_arrive() -> None:
    ring: dict[str, Any] = {}
    ring["self"] = [ring]
    ((arrived,), _) = there_and_back(ring)
    assert arrived["self"][0] is arrived


def test_a_function_keeps_its_closure_defaults_and_recursion() -> None:
    factor, counts = 3, []

    def power(n: int, *, base: int = factor) -> int:
        counts.append(n)
        return 1 if n == 0 else base * power(n - 1)

    function, args, kwargs = load_call(pack(power, 3).data)
    assert function(*args, **kwargs) == 27
    assert counts == []  # its own copy of the list


def test_lambdas_and_partials_travel() -> None:
    function, args, kwargs = load_call(pack(functools.partial(lambda a, b: (a, b), 1), b=2).data)
    assert function(*args, **kwargs) == (1, 2)


def test_arguments_are_a_copy() -> None:
    config = {"lr": 0.1}
    data = pack(print, config).data
    config["lr"] = 0.2
    assert load_call(data)[1] == ({"lr": 0.1},)


# By name.


@pytest.mark.parametrize(
    ("function", "args", "value"),
    [
        (payloads.plain, (1,), 2),
        (payloads.decorated.__wrapped__, (1,), 11),
        (payloads.calls_decorated.__wrapped__, (1,), 111),
        (payloads.wrapped.__wrapped__, (1,), "1!"),
        (payloads.Trainer(5).train.__wrapped__, (1,), 6),
        (payloads.Trainer.static.__wrapped__, (1,), -1),
        (payloads.Trainer.make, (7,), 7),
    ],
)
def test_functions_of_modules_go_by_name_whatever_decorates_them(
    function: Callable[..., Any], args: tuple[Any, ...], value: Any
) -> None:
    payload = pack(function, *args)
    assert payloads.__name__ in payload.modules
    assert b"co_consts" not in payload.data and len(payload.data) < 600
    arrived, arrived_args, kwargs = load_call(payload.data)
    assert arrived(*arrived_args, **kwargs) == value


def test_a_decorated_function_travels_as_what_it_is() -> None:
    ((arrived,), _) = there_and_back(payloads.decorated)
    assert isinstance(arrived, kinetic.RemoteFunction)
    assert arrived.__wrapped__ is payloads.decorated.__wrapped__
    assert (arrived.calls_run, repr(arrived)) == (True, repr(payloads.decorated))
    assert copy.deepcopy(payloads.decorated) is payloads.decorated is copy.copy(payloads.decorated)
    assert plain(arrived) is arrived  # what older payloads hold


def test_referred_modules_are_told() -> None:
    def uses(x: Any) -> Any:
        return payloads.plain(x), pickle.dumps(x)

    told = pack_call(uses, (payloads.Point(1, 2),), {}, by_value=lambda name: name == __name__).modules
    assert {payloads.__name__, "pickle"} <= told


# By value.


def test_a_module_that_hosts_cannot_import_goes_by_value() -> None:
    loose = types.ModuleType("loose_module_of_this_test")
    exec("class Box:\n def __init__(self, v): self.v = v\ndef function(b): return Box(b.v * 2)", loose.__dict__)
    sys.modules[loose.__name__] = loose
    try:
        payload = pack_call(loose.function, (loose.Box(2),), {}, by_value=lambda name: name == loose.__name__)
    finally:
        del sys.modules[loose.__name__]
    function, args, kwargs = load_call(payload.data)
    assert function(*args, **kwargs).v == 4


def test_tracebacks_name_the_file_that_the_code_was_written_in() -> None:
    def fails() -> None:
        raise KeyError

    function, _, _ = load_call(pack(fails).data)
    assert function.__code__.co_filename == __file__


def test_many_threads_pack_at_once_and_none_disturbs_another() -> None:
    loose = types.ModuleType("loose_module_for_threads")
    exec("def function(x): return x", loose.__dict__)
    sys.modules[loose.__name__] = loose

    def one(number: int) -> bool:
        by_value = number % 2 == 0
        payload = pack_call(loose.function, (number,), {}, by_value=lambda name: by_value and name == loose.__name__)
        return (loose.__name__ in payload.modules) is not by_value

    try:
        with ThreadPoolExecutor(8) as pool:
            assert all(pool.map(one, range(400)))
    finally:
        del sys.modules[loose.__name__]


# What can't be sent.


def closure_over(value: Any) -> Callable[[], Any]:
    def function() -> Any:
        return value

    return function


def unconnected() -> socket.socket:
    with socket.socket() as made:
        return made


LOCK = threading.Lock()


def uses_a_global() -> Any:
    return LOCK


GLOBALLY_LOCKED = types.FunctionType(uses_a_global.__code__, {"LOCK": LOCK, "__name__": "__main__"})


@pytest.mark.parametrize(
    ("call", "path"),
    [
        (lambda: pack(print, 1, {"model": payloads.Model()}), "args[1]['model'].lock (_thread.lock)"),
        (lambda: pack(print, data=[0, (payloads.Model(),)]), "kwargs['data'][1][0].lock (_thread.lock)"),
        (lambda: pack(print, payloads.Slotted(threading.Lock())), "args[0].inner (_thread.lock)"),
        (lambda: pack(print, {threading.Lock(): 1}), "(_thread.lock)"),
        (lambda: pack(print, threading.local()), "args[0] (_thread._local)"),
        (lambda: pack(print, (x for x in [])), "args[0] (generator)"),
        (lambda: pack(print, payloads.Stubborn()), "args[0] (tests.unit.payloads.Stubborn)"),
        (lambda: pack(closure_over([threading.Lock()])), "the function's closure variable value[0] (_thread.lock)"),
        (lambda: pack(functools.partial(print, LOCK)), "the function.args[0] (_thread.lock)"),
        (lambda: pack(payloads.Trainer(threading.Lock()).train.__wrapped__, 1), "the function.__self__.base"),  # type: ignore[arg-type]
        (lambda: pack(GLOBALLY_LOCKED), "the function's global LOCK (_thread.lock)"),
        (lambda: pack(print, {"at": sys._getframe()}), "args[0]['at'] (frame)"),
        (lambda: pack(print, peers=[unconnected()]), "kwargs['peers'][0] (socket.socket)"),
        (lambda: pack(print, threading.Thread()), "_thread.lock"),
    ],
)
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_what_cannot_be_sent_is_named(call: Callable[[], Any], path: str) -> None:
    with pytest.raises(PayloadError) as caught:
        call()
    assert path in str(caught.value)
    assert "Make it inside the function" in str(caught.value)


def test_what_a_reducer_raises_is_the_reason() -> None:
    with pytest.raises(PayloadError, match="I stay here") as caught:
        pack(print, payloads.Stubborn())
    assert isinstance(caught.value.__cause__, RuntimeError)


def test_what_is_nested_without_end_is_said_so() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(PayloadError, match=r"args\[0\] \(list\) can't be sent.*nested too deeply"):
        pack(print, deep)
    while deep:  # its own destructor would recurse as deeply
        deep = deep.pop()


def test_the_culprit_in_a_cycle_is_found() -> None:
    ring: dict[str, Any] = {}
    ring["next"] = {"ring": ring, "lock": threading.Lock()}
    with pytest.raises(PayloadError, match=r"args\[0\]\['next'\]\['lock'\]"):
        pack(print, ring)


# Reading.


def test_a_newer_payload_is_refused() -> None:
    newer = pickle.dumps({"version": 99, "function": print, "args": (), "kwargs": {}, "main": None})
    with pytest.raises(ConfigError, match="99"):
        load_call(newer)
    with pytest.raises(PayloadError, match="no kinetic call"):
        load_call(pickle.dumps("something"))


def test_the_first_format_stays_readable() -> None:
    data = (ROOT / "tests" / "golden" / "payload-v1.pickle").read_bytes()
    function, args, kwargs = load_call(data)
    assert function(*args, **kwargs) == (6, payloads.Point(1, 2), 15)


def test_a_clean_process_can_read_a_payload() -> None:
    data = dump_call(payloads.calls_decorated.__wrapped__, (1,))
    code = (
        "import sys; from kinetic_ray.payload import load_call as l; f, a, k = l(sys.stdin.buffer.read()); print(f(*a))"
    )
    done = subprocess.run([sys.executable, "-c", code], input=data, capture_output=True, check=True, cwd=ROOT)
    assert done.stdout == b"111\n"


# Scripts as functions.


def test_a_script_runs_as_main(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "helper_of_this_test.py").write_text("NAME = 'helper'")
    script = "import sys, helper_of_this_test as h\nprint(__name__, sys.argv, h.NAME, __file__)\n"
    (tmp_path / "sub" / "script.py").write_text(script)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [*sys.path])
    monkeypatch.setattr("sys.argv", [*sys.argv])
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    run_script("sub/script.py", ["--lr", "1"])
    told = f"__main__ ['sub/script.py', '--lr', '1'] helper {tmp_path}/sub/script.py\n"
    assert capsys.readouterr().out == told

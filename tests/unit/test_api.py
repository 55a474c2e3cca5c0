"""The decorators: every form gives the same kind of function, bad ones are refused where they are written."""

import copy
import functools
import inspect
import pickle
import traceback
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kinetic_ray as kinetic
from kinetic_ray.api.judging import check_arguments, takes_of
from kinetic_ray.journal import JobJournal, list_entries
from kinetic_ray.store import Store, open_store
from tests.unit import payloads
from tests.waiting import wait_until

THREADS = "kinetic_ray.testing.thread_backend:ThreadBackend"


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Store:
    """A store of the test's own; jobs run in threads."""
    url = f"memory://{uuid.uuid4()}"
    monkeypatch.setenv("KINETIC_STORE", url)
    monkeypatch.setenv("KINETIC_BACKEND", THREADS)
    return open_store(url)


def double(x: int) -> int:
    """Twice as much."""
    return 2 * x


# Forms.


@pytest.mark.parametrize(
    ("function", "accelerator", "calls_run"),
    [
        (kinetic.run(double), "tpu-v5e-1", True),
        (kinetic.run()(double), "tpu-v5e-1", True),
        (kinetic.run("tpu-v6e-16")(double), "tpu-v6e-16", True),
        (kinetic.run(accelerator="v6e-16")(double), "tpu-v6e-16", True),
        (kinetic.remote(double), "cpu", False),
        (kinetic.remote()(double), "cpu", False),
        (kinetic.remote(accelerator="tpu-v6e-16", timeout="1h")(double), "tpu-v6e-16", False),
    ],
)
def test_with_and_without_parentheses(function: Any, accelerator: str, calls_run: bool) -> None:
    assert isinstance(function, kinetic.RemoteFunction)
    assert repr(function) == f"<kinetic.{'run' if calls_run else 'remote'} function double on {accelerator}>"
    assert (function.__name__, function.__doc__, function.__module__) == ("double", "Twice as much.", __name__)
    assert function.__wrapped__ is double
    assert function.local(4) == 8


@pytest.mark.parametrize("decorator", [kinetic.run, kinetic.remote])
@pytest.mark.parametrize(
    "bad", [{"acelerator": "cpu"}, {"accelerator": "tpu-v6e-17"}, {"timeout": "soon"}, {"queue": "q"}]
)
def test_options_are_checked_at_the_decorators_line(decorator: Any, bad: dict[str, Any]) -> None:
    with pytest.raises(kinetic.UsageError):
        decorator(**bad)


class Class:
    pass


async def coroutine() -> None:
    pass


def generator() -> Iterator[int]:
    yield 1


@pytest.mark.parametrize(
    ("bad", "error", "told"),
    [
        (3, TypeError, "can't be called"),
        (classmethod(double), TypeError, "write @classmethod above"),
        (staticmethod(double), TypeError, "write @staticmethod above"),
        (Class, kinetic.UsageError, "@kinetic.remote makes a gang actor of it"),
        (functools.lru_cache(double), TypeError, "lru_cache"),
        (functools.cache(double), TypeError, "lru_cache"),
        (coroutine, TypeError, "async"),
        (generator, TypeError, "generator"),
        (kinetic.remote(double), TypeError, "decorated already"),
        (kinetic.remote(Class), TypeError, "decorated already"),
    ],
)
def test_what_cannot_be_decorated(bad: Any, error: type[Exception], told: str) -> None:
    with pytest.raises(error, match=told):
        kinetic.run(accelerator="cpu")(bad)


def _class_with(name: str, method: Any) -> type:
    return type("Trainer", (), {"__qualname__": "Trainer", name: method})


async def stream() -> AsyncIterator[int]:
    yield 1


@pytest.mark.parametrize("method", [coroutine, generator, stream, staticmethod(generator), classmethod(coroutine)])
def test_methods_without_a_plain_value_are_refused_by_name(method: Any) -> None:
    with pytest.raises(TypeError, match=r"Trainer\.batches is an async or generator method.*call it _batches"):
        kinetic.remote(_class_with("batches", method))
    kinetic.remote(_class_with("_batches", method))
    kinetic.remote(type("Child", (_class_with("batches", method),), {}))  # a library's base class may have them


def test_attributes_of_the_function_are_kept_and_replace_none_of_ours() -> None:
    def function() -> None: ...

    vars(function).update(note="mine", _options="theirs", calls_run="theirs")
    decorated = kinetic.remote(function)
    assert vars(decorated)["note"] == "mine"
    assert repr(decorated) == "<kinetic.remote function function on cpu>"


def test_nameless_callables_are_fine() -> None:
    assert kinetic.remote(functools.partial(double, 4)).local() == 8
    assert "partial" in repr(kinetic.remote(functools.partial(double, 4)))


def test_a_remote_function_is_not_called_directly() -> None:
    with pytest.raises(TypeError) as caught:
        kinetic.remote(double)(3)
    ways = ["double.remote(...)", "double.run(...)", "double.run_async(...)", "double.local(...)"]
    assert [way for way in ways if way not in str(caught.value)] == []


# Options.


def test_options_override_and_none_takes_back() -> None:
    function = kinetic.remote(accelerator="cpu", hosts=3, name="a")(double)
    other = function.options(accelerator="tpu-v6e-16", hosts=None)
    assert repr(other) == "<kinetic.remote function double on tpu-v6e-16>"
    assert repr(function) == "<kinetic.remote function double on cpu>"
    with pytest.raises(kinetic.UsageError, match="contradicts"):
        function.options(accelerator="tpu-v6e-16")
    with pytest.raises(kinetic.UsageError, match="did you mean 'name'"):
        function.options(nam="b")  # type: ignore[call-arg]


def test_containers_are_copied_at_decoration(store: Store) -> None:
    env, tags = {"A": "1"}, ["t"]
    function = kinetic.remote(env_vars=env, tags=tags)(double)
    env["B"] = "2"
    tags.append("u")
    spec = function.run_async(1).spec
    assert (spec.env_names, spec.tags) == (("A",), ("t",))


# Calls.


def test_a_run_function_blocks_shows_stages_and_returns_the_value(
    store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    assert kinetic.run(accelerator="cpu")(double)(21) == 42
    assert "succeeded" in capsys.readouterr().err


def test_run_and_run_async_and_await_agree(store: Store) -> None:
    function = kinetic.remote(double)
    job = function.run_async(x=3)
    assert (function.run(3), job.result(), job.func_name) == (6, 6, "double")


def test_gather_gives_every_rank(store: Store) -> None:
    function = kinetic.remote(accelerator="tpu-v6e-16", num_slices=2, gather="all", runtime="plain")(double)
    assert function.run(2) == [4] * 8
    assert function.options(gather="leader").run(2) == 4


@pytest.mark.slow
def test_many_threads_submit_at_once(store: Store) -> None:
    function = kinetic.remote(double)
    with ThreadPoolExecutor(16) as pool:
        jobs = [*pool.map(function.run_async, range(64))]
        assert [*pool.map(lambda job: job.result(timeout=60), jobs)] == [2 * x for x in range(64)]
    assert len({job.job_id for job in jobs}) == len(kinetic.list_jobs()) == 64


def test_methods_take_their_instance_along(store: Store) -> None:
    trainer = payloads.Trainer(100)
    assert trainer.train(5) == 105
    assert payloads.Trainer.train(trainer, 6) == 106
    assert payloads.Trainer.static(7) == -7
    assert trainer.train.run_async(8).result() == 108
    assert trainer.train.local(9) == 109


def test_the_users_exception_comes_back_as_itself(store: Store) -> None:
    @kinetic.run(accelerator="cpu")
    def fails() -> None:
        raise payloads.OddError(3, detail="x")

    with pytest.raises(payloads.OddError) as caught:
        fails()
    assert (caught.value.code, caught.value.detail) == (3, "x")
    (note,) = caught.value.__notes__
    for told in ("Raised in job-", "rank 0", "phase call", "in fails", "kinetic jobs status job-"):
        assert told in note


def test_a_call_is_described_whole(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN_OF_TEST", "s3cret")
    function = kinetic.remote(
        accelerator="tpu-v6e-8", chips_per_host=4, num_slices=2, timeout="1h", capacity_timeout=60, runtime="plain",
        env_vars={"A": "1"}, capture_env_vars=["TOKEN_*", "NOT_SET"], output_dir="runs", name="n", tags=["t"],
    )(double)  # fmt: skip
    job = function.run_async(1)
    spec = job.spec
    assert (spec.accelerator, spec.chips_per_host, spec.num_slices, spec.hosts) == ("tpu-v6e-8", 4, 2, 1)
    assert (spec.timeout, spec.capacity_timeout, spec.runtime, spec.gather) == (3600.0, 60.0, "plain", "leader")
    assert (spec.env_names, spec.name, spec.tags) == (("A", "TOKEN_OF_TEST"), "n", ("t",))
    assert spec.output_dir is not None
    assert spec.output_dir.startswith("/")
    assert spec.output_dir.endswith("/runs")
    assert "s3cret" not in str(spec.to_dict())
    assert spec.bundle is not None
    assert "." in spec.bundle.sys_path


@pytest.mark.parametrize(
    ("given", "hosts", "cpus"), [({}, 1, 1.0), ({"hosts": 3}, 3, 1.0), ({"accelerator": "cpu-2"}, 1, 2.0)]
)
def test_gangs_of_cpu_hosts(store: Store, given: Any, hosts: int, cpus: float) -> None:
    spec = kinetic.remote(**given)(double).run_async(1).spec
    assert (spec.hosts, spec.cpus, spec.runtime) == (hosts, cpus, "plain")


def test_values_of_variables_are_gone_once_the_job_has_ended(store: Store) -> None:
    job = kinetic.remote(env_vars={"A": "s3cret"})(double).run_async(1)
    job.result()
    wait_until(
        lambda: not any(b"s3cret" in (store.find(key) or b"") for key in store.walk("jobs")),
        10,
        "the values to be gone",
    )


# Arguments, and where a call may be made.


def with_seed(function: Callable[..., int]) -> Callable[..., int]:
    @functools.wraps(function)
    def wrapper(*args: int) -> int:
        return function(*args, seed=1)

    return wrapper


@with_seed
def seeded(x: int, *, seed: int) -> int:
    return x + seed


class Adder:
    def __call__(self, x: int, *, y: int = 0) -> int:
        return x + y


@pytest.mark.parametrize("how", ["run", "run_async", "__call__"])
@pytest.mark.parametrize(
    ("function", "args", "kwargs", "told"),
    [
        (lambda: 1, (3,), {}, r"<lambda>\(\): too many positional arguments"),
        (double, (), {}, r"double\(\): missing a required argument: 'x'"),
        (double, (1,), {"x": 1}, r"double\(\): multiple values for argument 'x'"),
        (double, (1,), {"y": 1}, r"double\(\): got an unexpected keyword argument 'y'"),
        (functools.partial(double, 1), (2,), {}, "too many positional arguments"),
        (Adder(), (1, 2), {}, "too many positional arguments"),
        (payloads.Trainer(1).train.__wrapped__, (1, 2, 3, 4), {}, "too many positional arguments"),
    ],
)
def test_arguments_that_do_not_fit_are_refused_at_the_callers_line(
    store: Store, how: str, function: Any, args: Any, kwargs: Any, told: str
) -> None:
    with pytest.raises(TypeError, match=told) as caught:
        getattr(kinetic.run(accelerator="cpu")(function), how)(*args, **kwargs)
    assert [entry.path.name for entry in caught.traceback] == ["test_api.py"]
    assert caught.value.__cause__ is None
    assert store.walk("") == ["format.json"]


@pytest.mark.parametrize(
    ("function", "args", "value"),
    [(max, (1, 2), 2), (seeded, (1,), 2), (Adder(), (3,), 3), (lambda *a, **k: len(a), (1, 2), 2)],
)
def test_arguments_that_fit_or_cannot_be_judged_are_let_through(
    store: Store, function: Any, args: Any, value: object
) -> None:
    assert kinetic.run(accelerator="cpu")(function)(*args) == value


@pytest.mark.parametrize("how", ["run", "local", "__call__"])
def test_no_argument_name_is_taken(store: Store, how: str) -> None:
    call = getattr(kinetic.run(accelerator="cpu")(lambda **names: sorted(names)), how)
    assert call(self=1, args=2, kwargs=3, name=4) == ["args", "kwargs", "name", "self"]


def by_place(a: int, b: int, c: int = 0, /) -> None: ...
def by_both(a: int, b: int = 0) -> None: ...
def by_name(a: int, *, k: int) -> None: ...
def by_any_name(a: int, *, k: int = 0, **others: int) -> None: ...
def by_many(a: int, *rest: int) -> None: ...


@given(
    st.sampled_from([by_place, by_both, by_name, by_any_name, by_many, payloads.Trainer, max]),
    st.lists(st.just(1), max_size=5),
    st.dictionaries(st.sampled_from("abk"), st.just(1)),
)
def test_arguments_are_judged_as_python_would(function: Any, args: list[int], kwargs: dict[str, int]) -> None:
    def fits(judge: Callable[[], object]) -> bool:
        try:
            judge()
        except TypeError:
            return False
        return True

    told = fits(lambda: check_arguments("f", takes_of(function), tuple(args), kwargs))
    signature = None if function is max else inspect.signature(function)
    assert told == (signature is None or fits(lambda: signature.bind(*args, **kwargs)))


@pytest.mark.parametrize("how", ["run", "run_async"])
def test_a_job_starts_no_jobs(store: Store, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    function = kinetic.run(accelerator="cpu")(double)
    monkeypatch.setenv("KINETIC_JOB_ID", "job-0000000000e008000000000000")
    with pytest.raises(kinetic.UsageError, match=r"inside of a job.*double\.local.*__main__.*without --accelerator"):
        getattr(function, how)(3)
    assert function(3) == function.local(3) == 6  # inline, as a part of the job
    assert store.walk("") == ["format.json"]


# Refused calls leave nothing behind.


def locked() -> Callable[[], object]:
    import threading

    lock = threading.Lock()
    return lambda: lock


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda: kinetic.remote(locked()).run_async(), kinetic.PayloadError),
        (lambda: kinetic.remote(double).run_async(x for x in ()), kinetic.PayloadError),
        (
            lambda: kinetic.remote(backend="tests.unit.backends:RefusingBackend")(double).run_async(1),
            kinetic.UsageError,
        ),
        (lambda: kinetic.remote(backend="no.such:Backend")(double).run_async(1), kinetic.ConfigError),
        (lambda: kinetic.remote(backend="local")(double).run_async(1), kinetic.ConfigError),  # a memory:// store
        (lambda: kinetic.remote(backend="nowhere")(double).run_async(1), kinetic.ConfigError),
        (lambda: kinetic.remote(backend="local", image="me/img")(double).run_async(1), kinetic.UsageError),
    ],
)
def test_a_refused_call_creates_nothing(store: Store, call: Callable[[], object], error: type[Exception]) -> None:
    with pytest.raises(error):
        call()
    assert store.walk("") == ["format.json"]


def test_a_job_that_cannot_be_started_is_recorded_and_says_how_to_go_on(store: Store) -> None:
    function = kinetic.remote(backend="tests.unit.backends:BrokenBackend")(double)
    with pytest.raises(kinetic.SubmissionError, match=r"is recorded in memory.*the head is dead.*kinetic jobs") as e:
        function.run_async(1)
    (entry,) = list_entries(store)
    assert entry.job_id in str(e.value)
    assert JobJournal(store, entry.job_id).spec().func_name == "double"
    assert kinetic.attach(entry.job_id).result() == 2  # under a backend that works


@pytest.mark.parametrize("how", ["__call__", "run_async"])
@pytest.mark.parametrize(("backend", "made"), [("InterruptedCheck", False), ("InterruptedSubmit", True)])
def test_ctrl_c_before_the_waiting_says_what_there_is(
    store: Store, capsys: pytest.CaptureFixture[str], how: str, backend: str, made: bool
) -> None:
    function = kinetic.run(accelerator="cpu", backend=f"tests.unit.backends:{backend}")(double)
    with pytest.raises(KeyboardInterrupt) as caught:
        getattr(function, how)(1)
    assert [entry.path.name for entry in caught.traceback] == ["test_api.py"]
    told = capsys.readouterr().err.strip().splitlines()
    ids = [entry.job_id for entry in list_entries(store)]
    assert len(ids) == made
    if made:
        assert told[0] == f"{ids[0]} is recorded, but nothing runs it yet."
        ways = zip(["result", "cleanup"], told[1:], strict=True)
        assert all(f"kinetic jobs {command} {ids[0]}" in line for command, line in ways)
    else:
        assert told == ["double: interrupted before its job was recorded; nothing was created"]


def test_what_cannot_be_sent_is_said_without_the_picklers_own_traceback(store: Store) -> None:
    with pytest.raises(kinetic.PayloadError) as caught:
        kinetic.remote(locked()).run_async()
    text = "".join(traceback.format_exception(caught.value))
    assert "direct cause" not in text
    assert "kinetic_ray/" not in text


@pytest.mark.parametrize("bad", [{"acelerator": "cpu"}, {"accelerator": "tpu-v6e-17"}, {"timeout": "soon"}])
def test_a_refused_option_points_to_the_decorators_line(bad: dict[str, Any]) -> None:
    for refused in (kinetic.run, kinetic.remote, kinetic.remote(double).options):
        with pytest.raises(kinetic.UsageError) as caught:
            refused(**bad)  # type: ignore[operator]
        assert [entry.path.name for entry in caught.traceback] == ["test_api.py"]


# Travelling.


def test_a_decorated_function_travels_as_what_it_is() -> None:
    travelled = pickle.loads(pickle.dumps(kinetic.remote(accelerator="cpu", hosts=2, env_vars={"A": "1"})(double)))
    assert isinstance(travelled, kinetic.RemoteFunction)
    assert (travelled.__wrapped__, travelled.calls_run, travelled._given["hosts"]) == (double, False, 2)
    assert pickle.loads(pickle.dumps(kinetic.run(double))).calls_run
    assert pickle.loads(pickle.dumps(payloads.Trainer(1))).base == 1
    assert copy.copy(payloads.decorated) is payloads.decorated
    assert copy.deepcopy([payloads.decorated])[0] is payloads.decorated

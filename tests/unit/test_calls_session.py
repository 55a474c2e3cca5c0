"""`.remote()` on the client: what is refused, what the desk is told, when code is sent again, handles of instances."""

import functools
import gc
import pickle
import threading
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from ray.exceptions import ActorDiedError

import kinetic_ray as kinetic
from kinetic_ray.calls.actors import ActorHandle, create
from kinetic_ray.calls.caller import Caller
from kinetic_ray.calls.refs import users_own
from kinetic_ray.calls.session import Session
from kinetic_ray.options import check_options
from kinetic_ray.runner.calls.packing import unpack, unpack_arguments
from kinetic_ray.runner.calls.wish import Order
from tests.unit.cluster_of_calls import Desk, Ray, connection
from tests.waiting import wait_until


class Cluster:
    """A desk, and this process's session with it."""

    def __init__(self, home: Path) -> None:
        self.desk, self.ray = Desk(), Ray()
        self.session = self.joined(home)

    def joined(self, home: Path, **changes: Any) -> Session:
        return Session(connection(self.desk, home, **changes), self.ray, show=lambda _: None)

    def caller(self, function: Callable[..., Any], **options: Any) -> Caller:
        return Caller(function, check_options(options), function.__name__, lambda: self.session)

    def orders(self) -> list[Order]:
        return [Order.from_bytes(call[0]) for call in self.desk.call.calls]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path)
    yield cluster
    cluster.session.close()


def double(x: int) -> int:
    return 2 * x


def test_the_desk_is_told_all_of_a_call(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN_OF_TEST", "s")
    cluster.session = cluster.joined(Path("/unused"), ancestors=("job-a", "call-b"))
    given: dict[str, Any] = {
        "accelerator": "tpu-v6e-8", "chips_per_host": 4, "num_slices": 2, "gather": "all", "timeout": "1m",
        "priority": 3, "capacity_timeout": 9, "env_vars": {"A": "1"}, "capture_env_vars": ["TOKEN_*"],
        "runtime": "plain",
    }  # fmt: skip
    cluster.caller(double, **given).call((3,), {})
    (order,), wish = cluster.orders(), cluster.orders()[0].wish
    assert (wish.accelerator, wish.chips_per_host, wish.num_slices, wish.hosts) == ("tpu-v6e-8", 4, 2, 2)
    assert (wish.runtime, wish.env_vars) == ("plain", {"A": "1", "TOKEN_OF_TEST": "s"})
    assert (order.gather, order.timeout, order.capacity_timeout, order.priority) == ("all", 60.0, 9.0, 3)
    assert (order.name, order.client, order.ancestors) == ("double", "01000000", ("job-a", "call-b"))
    assert (order.kind, wish.ranks) == ("function", 4)
    ((_, code, packed),) = cluster.desk.call.calls
    assert unpack_arguments(packed) == ((3,), {})
    assert unpack(code[0].done.result())(4) == 8
    assert wish.bundle
    assert "." in wish.sys_path


@pytest.mark.parametrize(
    ("given", "hosts", "cpus"), [({}, 1, 1.0), ({"hosts": 3}, 3, 1.0), ({"accelerator": "cpu-2"}, 1, 2.0)]
)
def test_gangs_of_cpu_hosts(cluster: Cluster, given: Any, hosts: int, cpus: float) -> None:
    cluster.caller(double, **given).call((1,), {})
    wish = cluster.orders()[0].wish
    assert (wish.accelerator, wish.num_slices, wish.hosts, wish.cpus) == ("cpu", 0, hosts, cpus)


def test_the_same_code_is_sent_once_and_other_code_again(cluster: Cluster) -> None:
    captured = {"n": 1}

    def f() -> int:
        return captured["n"]

    caller = cluster.caller(f)
    caller.call((), {})
    caller.call((), {})
    sent = len(cluster.ray.stored)
    first, second = cluster.desk.call.calls
    assert first[0] is second[0]  # bytes made once
    captured["n"] = 2
    caller.call((), {})
    assert len(cluster.ray.stored) == sent + 1  # the function, not the archive
    values = [unpack(call[1][0].done.result())() for call in cluster.desk.call.calls]
    assert values == [1, 1, 2]
    assert len({order.function for order in cluster.orders()}) == 2
    assert len({order.wish.key for order in cluster.orders()}) == 1


def test_variables_are_captured_at_each_call(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    caller = cluster.caller(double, capture_env_vars=["MODE_OF_TEST"])
    for value in ("a", "b"):
        monkeypatch.setenv("MODE_OF_TEST", value)
        caller.call((1,), {})
    assert [order.wish.env_vars for order in cluster.orders()] == [{"MODE_OF_TEST": "a"}, {"MODE_OF_TEST": "b"}]


@pytest.mark.parametrize(
    ("given", "error", "told"),
    [
        ({"output_dir": "runs"}, kinetic.UsageError, r"double\.remote\(\): output_dir=.*run_async.*output_dir=None"),
        ({"backend": "my.module:Mine"}, kinetic.UsageError, r"backend='my.module:Mine'.*run_async"),
        ({"image": "me/img"}, kinetic.UsageError, r"image='me/img'.*local_ignore_image=True"),
        ({"accelerator": "tpu-v6e-8", "num_slices": 7}, kinetic.UsageError, "seven never fit"),
        ({"env_vars": {"BIG": "x" * 2**18}}, kinetic.UsageError, "'BIG': 262149 bytes"),
    ],
)
def test_what_a_call_cannot_have_is_refused_by_name(
    cluster: Cluster, given: Any, error: type[Exception], told: str
) -> None:
    caller = cluster.caller(double, **given)
    for _ in range(2):  # every time
        with pytest.raises(error, match=told):
            caller.call((1,), {})
    assert cluster.desk.call.calls == []


def test_whether_it_ever_fits_is_asked_once(cluster: Cluster, tmp_path: Path) -> None:
    for _ in range(2):
        for accelerator in ("cpu", "tpu-v6e-8"):
            cluster.caller(double, accelerator=accelerator).call((1,), {})
    assert (tmp_path / "checks").read_text().split() == ["cpu", "tpu-v6e-8"]


@pytest.mark.parametrize("later", ["failure", "max_restarts", "volumes", "success", "queue", "hang_timeout"])
def test_options_of_later_versions_are_refused_at_decoration(later: str) -> None:
    with pytest.raises(kinetic.UsageError, match=f"{later}=.*not available yet"):
        kinetic.remote(**{later: 3})


def test_arguments_that_cannot_be_sent_are_named(cluster: Cluster) -> None:
    with pytest.raises(kinetic.PayloadError, match=r"double: args\[0\]"):
        cluster.caller(double).call(((x for x in ()),), {})
    assert cluster.desk.call.calls == []


def test_arguments_that_do_not_fit_are_refused_before_any_cluster_is_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KINETIC_BACKEND", "no.such:Backend")
    for remote, told in (
        (kinetic.remote(double), r"double\(\): missing"),
        (kinetic.remote(Counter), r"Counter\(\): mis"),
    ):
        with pytest.raises(TypeError, match=told) as caught:
            remote.remote()
        assert [entry.path.name for entry in caught.traceback] == ["test_calls_session.py"]


@pytest.mark.parametrize(
    "backend", ["kinetic_ray.testing.thread_backend:ThreadBackend", "tests.unit.backends:RefusingBackend"]
)
def test_backends_without_a_cluster_of_rays_are_refused(
    monkeypatch: pytest.MonkeyPatch, kinetic_home: Path, backend: str
) -> None:
    monkeypatch.setenv("KINETIC_BACKEND", backend)
    with pytest.raises(kinetic.UsageError, match=r"run_async"):
        kinetic.remote(double).remote(1)


LOCK = threading.Lock()


@pytest.mark.parametrize(
    ("call", "error", "told"),
    [
        (
            lambda: kinetic.put({"a": [LOCK]}),
            kinetic.PayloadError,
            r"kinetic\.put\(\): args\[0\]\['a'\]\[0\] \(_thread\.lock\)",
        ),
        (lambda: kinetic.get("a ref"), kinetic.UsageError, r"get\(\): this process is in no cluster"),
        (lambda: kinetic.wait(["a ref"]), kinetic.UsageError, r"wait\(\): this process is in no cluster"),
    ],
)
def test_outside_of_a_cluster_nothing_starts_one_of_rays_own(
    monkeypatch: pytest.MonkeyPatch, call: Any, error: type[Exception], told: str
) -> None:
    import ray

    monkeypatch.setenv("KINETIC_BACKEND", "no.such:Backend")
    with pytest.raises(error, match=told) as caught:
        call()
    assert [entry.path.name for entry in caught.traceback][-1] == "test_calls_session.py"
    assert kinetic.get([]) == []
    assert not ray.is_initialized()


# Instances.


class Counter:
    def __init__(self, start: int) -> None:
        self.value = start

    def add(self, n: int, *, twice: bool = False) -> int:
        return self.value + n

    @staticmethod
    def parse(text: str) -> int:
        return int(text)

    @classmethod
    def named(cls, *, twice: bool = False) -> str:
        return cls.__name__

    def _private(self) -> None: ...

    def _numbers(self) -> Iterator[int]:
        yield self.value

    async def _later(self) -> int:
        return self.value


def made(cluster: Cluster, **options: Any) -> ActorHandle[Counter]:
    return create(cluster.caller(Counter, **options), Counter, (10,), {})


def test_an_instance_is_made_and_its_methods_are_called(cluster: Cluster) -> None:
    counter = made(cluster, accelerator="tpu-v6e-8", chips_per_host=4, runtime="plain", timeout=60)
    counter.add.remote(1, twice=True)
    counter.add.options(gather="all", timeout="2s").remote(2)
    counter.add.options(timeout=5).options(gather="leader").remote(3)
    creation, *methods = cluster.orders()
    assert (creation.kind, creation.name, creation.actor[:4]) == ("create", "Counter", "act-")
    assert {(one.kind, one.name, one.method, one.actor, one.wish.key) for one in methods} == {
        ("method", "Counter.add", "add", creation.actor, creation.wish.key)
    }
    assert [(one.gather, one.timeout) for one in methods] == [("leader", 60.0), ("all", 2.0), ("leader", 5.0)]
    assert [unpack_arguments(call[2]) for call in cluster.desk.call.calls[:2]] == [((10,), {}), ((1,), {"twice": True})]
    assert unpack(cluster.desk.call.calls[0][1][0].done.result()) is Counter


def test_static_methods_and_those_of_the_class_are_called_as_others(cluster: Cluster) -> None:
    counter = made(cluster)
    counter.parse.remote("1")
    counter.named.remote(twice=True)
    assert [order.method for order in cluster.orders()[1:]] == ["parse", "named"]


@pytest.mark.parametrize(
    ("call", "error", "told"),
    [
        (lambda c: c.add.remote(), TypeError, r"Counter\.add\(\): missing a required argument: 'n'"),
        (lambda c: c.add(1), TypeError, r"Counter\.add is a remote method.*\.remote\(\.\.\.\)"),
        (lambda c: c.sub, AttributeError, "'Counter' has no method 'sub'"),
        (lambda c: c.parse.remote(), TypeError, r"Counter\.parse\(\): missing a required argument: 'text'"),
        (lambda c: c.named.remote(1), TypeError, r"Counter\.named\(\): too many positional arguments"),
        (lambda c: c.value, AttributeError, "value"),
        (lambda c: c._numbers, AttributeError, "has no method '_numbers' that can be called from elsewhere"),
        (lambda c: c._later, AttributeError, "has no method '_later' that can be called from elsewhere"),
        (lambda c: c.add.options(gather="some"), kinetic.UsageError, "gather='some'"),
        (lambda c: c.add.options(timeout="soon"), kinetic.UsageError, "timeout='soon'"),
        (lambda c: kinetic.kill(Counter), kinetic.UsageError, "expected the handle"),
    ],
)
def test_what_a_handle_refuses(cluster: Cluster, call: Any, error: type[Exception], told: str) -> None:
    with pytest.raises(error, match=told):
        call(made(cluster))
    assert len(cluster.orders()) == 1


def test_a_handle_that_has_travelled_calls_the_same_instance(cluster: Cluster) -> None:
    counter = made(cluster)
    other: ActorHandle[Counter] = ActorHandle(
        pickle.loads(pickle.dumps(counter))._facts, session=lambda: cluster.session
    )
    assert other == counter
    assert hash(other) == hash(counter)
    assert "Counter on cpu: act-" in repr(other)
    assert dir(other) == ["_private", "add", "named", "parse"]
    other.add.remote(1)
    creation, method = cluster.orders()
    assert method.actor == creation.actor


@pytest.mark.parametrize("travels", [True, False])
def test_an_instance_that_nobody_can_call_any_more_is_ended(cluster: Cluster, travels: bool) -> None:
    counter = made(cluster)
    last = weakref.ref(counter)
    method = counter.add
    if travels:
        pickle.dumps(counter)
    actor = cluster.orders()[0].actor
    del counter
    gc.collect()
    assert last() is not None  # the method holds it
    method.remote(1)
    del method
    gc.collect()
    assert last() is None
    cluster.session._tidy()
    assert cluster.desk.killed == []  # its call isn't done
    for ref in cluster.desk.refs:
        ref.done.set_result(1)
    cluster.session._tidy()
    assert cluster.desk.killed == ([] if travels else [actor])


def test_an_instance_of_a_cluster_that_this_process_has_left_is_over_at_once(cluster: Cluster) -> None:
    counter = made(cluster)
    counter.add.remote(1)
    cluster.session.connection.ended.set()
    joins: list[None] = []
    cluster.session, left = cluster.joined(Path("/unused")), cluster.session
    counter._session = lambda: (joins.append(None), cluster.session)[1]
    with pytest.raises(ActorDiedError, match=r"Counter: it has ended with the cluster.*Counter\.remote\(\.\.\.\)"):
        counter.add.remote(1)
    kinetic.kill(counter)
    assert (joins, cluster.desk.killed, len(cluster.orders())) == ([], [], 2)
    left.close()


def test_kill_ends_it(cluster: Cluster) -> None:
    counter = made(cluster)
    kinetic.kill(counter)
    assert cluster.desk.killed == [cluster.orders()[0].actor]


def test_a_class_is_not_instantiated_directly_nor_inherited_from() -> None:
    remote = kinetic.remote(accelerator="cpu", hosts=2)(Counter)
    assert isinstance(remote, kinetic.RemoteClass)
    with pytest.raises(TypeError, match=r"Counter\.remote\(\.\.\.\).*Counter\.local"):
        remote(1)
    with pytest.raises(TypeError, match=r"inherit from the plain class \(Counter.__wrapped__\)"):
        exec("class Sub(remote): ...", {"remote": remote})
    assert remote.local(3).add(1) == 4
    assert repr(remote.options(accelerator="tpu-v6e-8", hosts=None)) == "<kinetic.remote class Counter on tpu-v6e-8>"
    assert (remote.__name__, remote.__module__) == ("Counter", __name__)
    assert repr(pickle.loads(pickle.dumps(remote))) == repr(remote)


# The session.


def test_gangs_that_are_recalled_are_told_to_every_line(cluster: Cluster) -> None:
    caller = cluster.caller(double)
    caller.call((1,), {})
    wait_until(lambda: cluster.desk.listening, 10, "the session to listen")
    cluster.desk.tell(recalled=["g1", "g2"])
    wait_until(lambda: len(cluster.desk.listening) == 2, 10, "the session to listen again")


def test_leaving_says_goodbye(cluster: Cluster) -> None:
    cluster.caller(double).call((1,), {})
    cluster.session.close()
    assert cluster.desk.left.is_set()


def test_an_instance_keeps_the_number_of_its_calls_however_many_there_are(cluster: Cluster) -> None:
    caller = cluster.caller(Counter)
    counters = [create(caller, Counter, (10,), {}) for _ in range(130)]
    for _ in range(2):
        for counter in counters:
            counter.add.remote(1)
    places = [call[1][2] for call in cluster.desk.call.calls if Order.from_bytes(call[0]).kind == "method"]
    assert places == [0] * 130 + [1] * 130


def test_the_lines_of_functions_that_were_used_longest_ago_go(cluster: Cluster) -> None:
    kept = made(cluster)
    callers = [cluster.caller(double, env_vars={"N": str(n)}) for n in range(140)]
    lines = cluster.session._lines
    for caller in callers:
        caller.call((1,), {})
        callers[0].call((1,), {})  # so it is in use all the time
    names = {order.wish.env_vars["N"]: order.wish.key for order in cluster.orders() if order.kind == "function"}
    assert len(lines) == 128 + 1
    assert kept._facts.order.actor in lines
    assert [n for n, name in names.items() if name in lines] == ["0", *(str(n) for n in range(13, 140))]


def test_the_line_of_an_instance_goes_with_it(cluster: Cluster) -> None:
    counter, other = made(cluster), made(cluster)
    kinetic.kill(counter)
    assert [*cluster.session._lines] == [other._facts.order.actor]


def test_many_versions_of_a_large_closure_do_not_fill_the_object_store(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    cluster.session = Session(cluster.session.connection, cluster.ray, show=lambda _: None, most_bytes=3 << 20)
    sent: list[weakref.ref[Any]] = []
    last = b""

    def size() -> int:
        return len(last)

    caller = cluster.caller(size)
    for n in range(8):
        last = bytes([n]) * (1 << 20)
        caller.call((), {})
        sent.append(weakref.ref(cluster.desk.call.calls.pop()[1][0]))
        del cluster.ray.stored[:]
    gc.collect()
    assert 1 <= sum(each() is not None for each in sent) <= 3
    assert sent[-1]() is not None
    cluster.session.close()


# Errors.


class Dual(Exception):
    """As Ray wraps an error."""

    def __init__(self, cause: BaseException, traceback_str: str = "") -> None:
        super().__init__("wrapped")
        self.cause, self.traceback_str = cause, traceback_str


def test_the_users_own_error_is_found_under_what_ray_wraps_it_in() -> None:
    told = ValueError("mine")
    told.add_note("Raised in double: rank 0")
    assert users_own(Dual(told, "remote")) is told
    assert told.__notes__ == ["Raised in double: rank 0"]
    plain = KeyError("plain")
    assert users_own(Dual(Dual(plain, "inner"), "outer")) is plain
    assert plain.__notes__ == ["\nRaised in a Ray task:\ninner"]
    alone = Dual(None)  # type: ignore[arg-type]
    assert users_own(alone) is alone


def test_partials_and_lambdas_have_names(cluster: Cluster) -> None:
    function = kinetic.remote(functools.partial(double, 4))
    assert "partial" in repr(function)

"""Warm children of call hosts, without Ray: what they keep, how they end, who may use them."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from kinetic_ray.bundle.archive import pack
from kinetic_ray.bundle.tree import file_entry
from kinetic_ray.errors import JobFailed
from kinetic_ray.runner.calls.failures import CallFailure
from kinetic_ray.runner.calls.packing import opened, pack_arguments
from tests.integration.host import programs, served
from tests.integration.host.gangs import alive
from tests.integration.host.hosts import Hosts, by_name
from tests.waiting import wait_until

MakeHosts = Callable[..., Hosts]


@pytest.fixture
def hosts_of() -> Iterator[MakeHosts]:
    """Makes hosts that end with the test."""
    made: list[Hosts] = []

    def make(count: int = 1, chips: int = 0) -> Hosts:
        made.append(Hosts(count, chips))
        return made[-1]

    yield make
    for hosts in made:
        hosts.stop()


@pytest.fixture
def host(hosts_of: MakeHosts) -> Hosts:
    """One host, open for a gang."""
    hosts = hosts_of()
    hosts.open()
    return hosts


def failure_of(call: Callable[..., Any], *args: Any, **order: Any) -> CallFailure:
    with pytest.raises(CallFailure) as caught:
        call(*args, **order)
    return caught.value


def test_calls_share_one_process_and_its_state(host: Hosts) -> None:
    assert host.run(served.remember, "a") == ["a"]
    assert host.run(served.remember, "b") == ["a", "b"]
    assert host.run(os.getpid) == host.run(os.getpid)
    assert served.NAMES == []


def test_functions_by_value_are_rebuilt_once(host: Hosts) -> None:
    count = [0]

    def step() -> int:
        count[0] += 1
        return count[0]

    assert [host.run(_by_value(step)) for _ in range(3)] == [1, 2, 3]


def _by_value(function: Any) -> Any:
    """As a script's function: cloudpickle takes what `__main__` says it is by value."""
    function.__module__ = "__main__"
    return function


def test_arrays_among_the_arguments_can_be_written_to(host: Hosts) -> None:
    def write(*arrays: Any) -> list[float]:
        for array in arrays:
            array[0] = 7
        return [float(array[0]) for array in arrays]

    arrays = [np.zeros(size // 8) for size in (800, 60 << 10, 64 << 10, 100 << 10, 4 << 20)]
    assert host.run(_by_value(write), *arrays) == [7.0] * 5
    assert [float(array[0]) for array in arrays] == [0.0] * 5


def test_values_of_all_kinds_come_back(host: Hosts) -> None:
    array = np.arange(300_000.0)
    for value in (None, 5, 2**90, "text", b"x" * 3_000_000, [1, {"a": (2,)}]):
        assert host.run(programs.give, value) == value
    back = host.run(programs.give, {"array": array, "small": np.float32(1)})
    assert (back["array"] == array).all() and back["small"] == 1


def test_hundreds_of_arrays_travel_together(host: Hosts) -> None:
    arrays = [np.full(10_000, float(number)) for number in range(300)]
    back = host.run(programs.give, arrays)
    assert all((one == other).all() for one, other in zip(back, arrays, strict=True))


def test_arrays_are_the_childs_own(host: Hosts) -> None:
    for size in (10, 20_000, 400_000):
        array = np.zeros(size)
        assert host.run(served.write_to, array) == 42.0
        assert array[0] == 0.0


def test_instances_live_as_long_as_their_process(host: Hosts) -> None:
    for actor, start in (("act-1", 10), ("act-2", 20)):
        assert host.run(served.Counter, start, kind="create", actor=actor) is None
    assert [host.method("act-1", "add"), host.method("act-2", "add", 5), host.method("act-1", "add")] == [11, 25, 12]
    failure = failure_of(host.method, "act-1", "fail")
    assert failure.is_users and failure.actor == "" and isinstance(failure.for_user(), programs.KeywordOnly)
    assert host.method("act-1", "add") == 13
    died = failure_of(host.method, "act-1", "die")
    assert (died.reason, died.exit_code, died.actor) == ("ProcessDied", -9, "act-1")
    assert failure_of(host.method, "act-1", "add").actor == "act-1"
    assert failure_of(host.method, "act-2", "add").actor == "act-2"


def test_an_exception_leaves_the_process_alive(host: Hosts) -> None:
    before = host.run(os.getpid)
    failure = failure_of(host.run, programs.raise_keyword_only)
    assert (failure.reason, failure.rank, failure.exit_code, failure.gang) == ("UserError", 0, None, "call-1")
    assert failure.message == "KeywordOnly: code 7"
    raised = failure.for_user()
    assert isinstance(raised, programs.KeywordOnly) and raised.code == 7 and isinstance(raised.__cause__, KeyError)
    assert "programs.py" in failure.traceback and "kinetic_ray" not in failure.traceback
    assert host.run(os.getpid) == before


def test_a_value_that_cannot_be_pickled_is_told_with_its_repr(host: Hosts) -> None:
    failure = failure_of(host.run, programs.unpicklable)
    assert failure.reason == "ResultError"
    assert "returned a generator that can't be pickled" in failure.message and "<genexpr>" in failure.message
    assert type(failure.for_user()) is JobFailed


def test_an_exception_leaves_behind_what_cannot_be_pickled(host: Hosts) -> None:
    def fail() -> None:
        import threading

        error = ValueError("so there")
        error.lock = threading.Lock()  # type: ignore[attr-defined]
        raise error

    error = failure_of(host.run, _by_value(fail)).for_user()
    assert (type(error), str(error)) == (ValueError, "so there")
    assert error.__notes__[0] == "left on the host: lock (a lock)"


def test_an_exception_whose_class_cannot_be_pickled_is_told_in_words(host: Hosts) -> None:
    failure = failure_of(host.run, programs.raise_kind, "sealed")
    error = failure.for_user()
    assert type(error) is JobFailed and "Sealed: sealed" in str(error)
    assert repr(error.__cause__) == "KeyError('root')"


def test_functions_that_cannot_be_imported_are_setup_errors_and_may_work_later(host: Hosts) -> None:
    from types import ModuleType

    module = ModuleType("nowhere_to_be_found")
    exec("def f(): return 1", module.__dict__)
    sys.modules[module.__name__] = module
    try:
        failure = failure_of(host.run, module.f)
    finally:
        del sys.modules[module.__name__]
    assert failure.reason == "SetupError" and "nowhere_to_be_found" in failure.message
    assert host.run(programs.give, 1) == 1


@pytest.mark.parametrize(
    ("how", "reason", "code", "words"),
    [
        ("leave", "ProcessDied", 3, "exited with code 3 before the function returned"),
        ("kill", "ProcessDied", -9, "was killed by SIGKILL before the function returned"),
        ("crash", "ProcessDied", -signal.SIGSEGV, "was killed by SIGSEGV"),
        ("hang up", "ProcessDied", -9, "closed its connection"),
        ("talk", "ProcessDied", -9, "could not understand it"),
        ("exit", "UserError", None, "SystemExit: 3"),
    ],
)
def test_each_end_has_its_reason_and_the_next_call_works(
    host: Hosts, how: str, reason: str, code: int | None, words: str
) -> None:
    failure = failure_of(host.run, served.end, how)
    assert (failure.reason, failure.exit_code) == (reason, code)
    assert words in failure.message
    if how != "crash":  # whose own words fill the tail
        assert f"about to {how}" in failure.log_tail
    assert failure.where == "end on cpu" and failure.rank == 0
    assert host.run(programs.give, "again") == "again"


@pytest.mark.parametrize(("how", "code"), [("return", 0), ("raise", 1), ("exit", 3)])
def test_a_fork_never_answers_for_the_call(host: Hosts, how: str, code: int) -> None:
    assert host.run(served.fork_and_come_back, how) == ("the call", code)
    assert [host.run(programs.give, number) for number in range(3)] == [0, 1, 2]


def test_a_clean_exit_is_a_return(host: Hosts) -> None:
    assert host.run(programs.leave, 0) is None
    assert host.run(programs.give, 1) == 1


def test_a_call_that_takes_too_long_ends(host: Hosts) -> None:
    failure = failure_of(host.run, programs.wait_forever, timeout=0.3)
    assert (failure.reason, failure.exit_code) == ("DeadlineExceeded", -9)
    assert "timeout=0.3 s" in failure.message
    assert host.run(programs.give, 1, timeout=60.0) == 1


def test_a_call_can_be_ended_with_all_that_it_started(host: Hosts) -> None:
    left = host.run(served.fork_and_wait)
    [running] = host.start(programs.wait_forever)
    child = host.open()[0]["pid"]
    assert not running.done()
    host.agents[0].end("call-1", "Preempted", "its slice was taken away")
    failure = failure_of(running.result, 30)
    assert (failure.reason, failure.message) == ("Preempted", "its slice was taken away")
    assert not alive(child) and not alive(left)
    assert host.open()[0]["warm"] is False
    assert host.run(programs.give, 1) == 1


def test_one_that_dies_between_calls_is_replaced(host: Hosts) -> None:
    pid = host.run(os.getpid)
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not alive(pid), what="the child's end")
    wait_until(lambda: _runs(host), what="a call in a new child")
    assert host.run(os.getpid) != pid


def _runs(host: Hosts) -> bool:
    try:
        return bool(host.run(programs.give, 1) == 1)
    except CallFailure:  # the agent hears of the end a moment later
        return False


def test_a_lost_zygote_takes_its_child_along_and_is_replaced(host: Hosts) -> None:
    [running] = host.start(programs.wait_forever)
    child = host.open()[0]["pid"]
    zygote = psutil.Process(child).ppid()
    os.kill(zygote, signal.SIGKILL)
    failure = failure_of(running.result, 30)
    assert failure.reason == "ProcessDied" and "ended with its zygote" in failure.message
    wait_until(lambda: not alive(child), what="the child's end")
    wait_until(lambda: _runs(host), what="a call in a new child")


def test_calls_wait_for_their_turn_and_for_their_function(host: Hosts) -> None:
    many = [host.start(served.remember, str(number))[0] for number in range(20)]
    assert sorted(len(opened(each.result(60))) for each in many) == list(range(1, 21))
    head = host.head("later", name="give")
    early = host.pool.submit(host.agents[0].call, head, pack_arguments((5,), {}, by_name))
    from kinetic_ray.runner.calls.packing import pack_function

    host.agents[0].learn("later", pack_function(programs.give, by_name)[0])
    assert early.result(60) == 5


def test_an_equal_wish_finds_the_warm_child_also_for_another_client(host: Hosts) -> None:
    host.run(served.remember, "kept")
    first = host.run(served.where)
    assert (first["KINETIC_JOB_ID"], first["KINETIC_ANCESTORS"], first["job_id"]) == ("call-1", "call-1", "call-1")
    host.agents[0].retire("call-1")
    host.gang, host.client = "call-2", "client-2"
    assert host.open() == [{"pid": first["pid"], "warm": True}]
    second = host.run(served.where, ancestors=("job-1", "call-0"))
    assert (second["KINETIC_JOB_ID"], second["KINETIC_ANCESTORS"]) == ("call-2", "job-1 call-0 call-2")
    assert second["job_id"] == "call-2"
    assert host.run(served.remember, "more") == ["kept", "more"]
    host.agents[0].end("call-1")  # which has left long ago
    assert host.run(os.getpid) == first["pid"]


def test_other_options_find_a_fresh_child(host: Hosts) -> None:
    host.run(served.remember, "old")
    [opened_anew] = host.open(env_vars={"MY_FLAG": "on"})
    assert opened_anew["warm"] is False
    assert host.run(served.remember, "new") == ["new"]
    assert host.run(os.getenv, "MY_FLAG") == "on"


def test_an_instances_process_is_nobody_elses(host: Hosts) -> None:
    host.run(served.Counter, 1, kind="create", actor="act-1")
    host.gang = "call-2"
    assert host.open()[0]["warm"] is False


def test_calls_that_come_too_late_are_passed_on(host: Hosts) -> None:
    assert host.run(programs.give, 1) == 1
    head = host.head(host.teach(programs.give), name="give")
    host.agents[0].retire("call-1")
    assert host.agents[0].call(head, pack_arguments((2,), {}, by_name).light()) == "forwarded"
    [(order, packed)] = host.forwarded
    assert order.name == "give" and opened(packed) == ((2,), {})
    host.client = "somebody else"
    host.open()
    assert host.agents[0].call(head, pack_arguments((3,), {}, by_name)) == "forwarded"


def test_a_retired_gang_may_finish(host: Hosts) -> None:
    reading, writing = os.pipe()
    os.set_inheritable(reading, True)
    [running] = host.start(programs.give, "x" * 100_000)
    host.agents[0].retire("call-1")
    assert running.done() or not host.forwarded
    assert opened(running.result(30)) in ("x" * 100_000, "forwarded")
    os.close(reading)
    os.close(writing)


def test_a_rank_of_a_gang_is_never_passed_on(hosts_of: MakeHosts) -> None:
    hosts = hosts_of(2)
    head = hosts.head("digest", name="give")
    failure = failure_of(hosts.agents[0].call, head, pack_arguments((), {}, by_name))
    assert failure.reason == "Cancelled" and "is not open on this host any more" in failure.message


def test_an_answer_to_another_call_is_none_to_this_one(host: Hosts) -> None:
    assert host.run(served.answer_twice) == "early"
    failure = failure_of(host.run, os.getpid)
    assert failure.reason == "ProcessDied" and "an answer to another call" in failure.message
    assert host.run(programs.give, 1) == 1


def test_lines_arrive_with_client_and_rank(host: Hosts, capfd: pytest.CaptureFixture[str]) -> None:
    host.run(served.shout, 3)
    assert "no end\non my way" in failure_of(host.run, programs.leave_at_once, 1).log_tail
    wait_until(lambda: len(host.lines) >= 6, what="all lines")
    assert host.lines[:4] == [("client-1", 0, text) for text in ("line 0", "line 1", "line 2", "to stderr")]
    assert host.texts()[4:] == ["no end", "on my way"]  # half a line is not continued by another function's
    assert "line 2" in capfd.readouterr().out


def test_lines_bear_the_name_of_the_call_that_printed_them(host: Hosts) -> None:
    for number in range(30):
        host.run(served.shout, 1, name=f"call {number % 3}")
    texts = ("line 0", "to stderr", "no end")
    wait_until(lambda: len(host.named) >= 90, what="all lines")
    assert host.named == [(f"call {number % 3}", text) for number in range(30) for text in texts]


def test_half_a_line_is_shown_at_its_call_s_end_and_never_joined_to_the_next(host: Hosts) -> None:
    for number in range(20):
        host.run(served.write, f"half {number}")
        wait_until(lambda n=number: host.texts()[n:] == [f"half {n}"], what="the half line")
    host.run(served.write, "50 %\r100 %")
    host.run(served.write, "whole\n")
    wait_until(lambda: len(host.lines) >= 22, what="all lines")
    assert host.texts() == [*(f"half {number}" for number in range(20)), "50 %\r100 %", "whole"]


def test_all_lines_of_a_flood_arrive_in_order(host: Hosts) -> None:
    host.run(served.flood, 60_000)
    host.agents[0].flush("client-1", 60.0)
    assert host.texts() == [f"line {number}" for number in range(60_000)]


def test_a_program_prints_no_faster_than_its_lines_are_taken(host: Hosts) -> None:
    host.changed.acquire()  # which it takes to hear
    [running] = host.start(served.flood, 300_000)
    with pytest.raises(TimeoutError):
        running.result(1.0)
    host.changed.release()
    running.result(90)
    host.agents[0].flush("client-1", 60.0)
    assert len(host.texts()) == 300_000 and host.texts()[-1] == "line 299999"


def test_what_a_killed_child_has_printed_is_its_own_caller_s(host: Hosts) -> None:
    """Also where its lines are taken only when the next one, for another process, is there."""
    host.run(os.getpid)  # its set-up is no part of this
    with host.changed:
        failure = failure_of(host.run, served.end, "kill", name="dies", client="client-1")
        host.client = "client-2"
        host.open()
        running = host.start(served.write, "of the next\n", client="client-2")
        assert "about to kill" in failure.log_tail
    for each in running:
        each.result(60)
    for client in ("client-1", "client-2"):
        host.agents[0].flush(client, 60.0)
    assert sorted(host.lines) == [("client-1", 0, "about to kill"), ("client-2", 0, "of the next")]


def test_exit_handlers_run_at_a_clean_end(host: Hosts, tmp_path: Path) -> None:
    host.run(served.note_my_exit, str(tmp_path / "note"))
    pid = host.run(os.getpid)
    host.agents[0].end("call-1")
    assert (tmp_path / "note").read_text() == "left"
    assert not alive(pid)


def archive_of(folder: Path, name: str) -> bytes:
    file = folder / "sibling_module.py"
    file.write_text(f"NAME = {name!r}\n")
    return pack([file_entry(file, file.name)])


def test_changed_code_is_never_mixed_with_old_code(hosts_of: MakeHosts, tmp_path: Path) -> None:
    hosts = hosts_of()
    for version in ("one", "two", "three"):
        hosts.open(archive_of(tmp_path, version), bundle=version * 8, sys_path=["."])
        assert hosts.run(served.use_sibling) == version
    hosts.open(bundle="two" * 8)  # remembered
    assert hosts.run(served.use_sibling) == "two"
    failure = failure_of(hosts.open, bundle="never seen")
    assert failure.reason == "SetupError" and "is not on this host" in failure.message
    hosts.open(bundle="")
    assert "sibling_module" in failure_of(hosts.run, served.use_sibling).message


def test_what_cannot_start_says_why(hosts_of: MakeHosts) -> None:
    hosts = hosts_of()
    assert "unknown runtime 'fortran'" in failure_of(hosts.open, runtime="fortran").message
    hosts.open(runtime="plain", python="2.7.18")
    failure = failure_of(hosts.run, programs.give, 1)
    assert failure.reason == "SetupError" and "made with Python 2.7.18" in failure.message


def test_four_ranks_share_one_gang_for_many_calls(hosts_of: MakeHosts) -> None:
    hosts = hosts_of(4, 2)
    hosts.open()
    assert hosts.run(programs.all_reduce) == [(8, 28.0)] * 4
    pids = hosts.run(os.getpid)
    assert hosts.run(programs.all_reduce) == [(8, 28.0)] * 4
    assert hosts.run(os.getpid) == pids and len(set(pids)) == 4
    assert [each["warm"] for each in hosts.open()] == [False] * 4  # another coordinator, so another gang
    assert hosts.run(programs.all_reduce) == [(8, 28.0)] * 4
    list(hosts.pool.map(lambda agent: agent.end("call-1"), hosts.agents))
    assert not any(map(alive, pids))


def test_a_killed_rank_is_not_replaced_alone(hosts_of: MakeHosts) -> None:
    hosts = hosts_of(2, 1)
    hosts.open()
    futures = hosts.start(programs.die_on, 1)
    failure = failure_of(futures[1].result, 90)
    assert (failure.reason, failure.rank, failure.exit_code) == ("ProcessDied", 1, -9)
    hosts.agents[0].end("call-1", "PeerLost", "rank 1 is gone")
    peer = failure_of(futures[0].result, 90)
    assert peer.reason == "PeerLost", peer.words()
    assert failure_of(hosts.run, os.getpid).reason in ("Cancelled", "ProcessDied")
    hosts.open()
    assert hosts.run(programs.all_reduce) == [(2, 1.0)] * 2


def test_dropped_values_need_not_be_picklable(host: Hosts) -> None:
    from kinetic_ray.runner.calls.heads import call_head
    from kinetic_ray.runner.calls.wish import Order

    digest = host.teach(programs.unpicklable)
    order = Order(host.wish, digest, "unpicklable", host.client)
    head = call_head(gang=host.gang, client=host.client, order=order, keeps=False)
    assert host.agents[0].call(head, pack_arguments((), {}, by_name)) is None


def test_nothing_outlives_its_agent(tmp_path: Path) -> None:
    script = tmp_path / "agent.py"
    script.write_text(
        "import os, sys\n"
        "from tests.integration.host.hosts import Hosts\n"
        "from tests.integration.host import served\n"
        "hosts = Hosts()\n"
        "hosts.open()\n"
        "print(os.getpid(), hosts.run(os.getpid), hosts.run(served.fork_and_wait), flush=True)\n"
        "os._exit(1)\n"
    )
    folder = Path(__file__).resolve().parents[3]
    env = {**os.environ, "PYTHONPATH": str(folder)}
    done = subprocess.run([sys.executable, str(script)], env=env, check=False, capture_output=True, timeout=120)
    _, child, grandchild = map(int, done.stdout.split())
    wait_until(lambda: not alive(child) and not alive(grandchild), what="the end of all that the agent had")

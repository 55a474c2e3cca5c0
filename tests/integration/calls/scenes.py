"""What processes do with the desk: each scene is run by `python -m tests.integration.calls.scenes NAME ARGS`."""

import json
import os
import re
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import ActorDiedError, RayActorError

from kinetic_ray.errors import JobError, JobFailed, JobTimeout
from kinetic_ray.runner.broker import find_broker
from tests.integration.calls.calling import CPU, FOUR_CPUS, PYTHON, SLICE, SMALL, Caller, Wish
from tests.waiting import wait_until

# What is called.


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def pid() -> int:
    return os.getpid()


def add(one: int, two: int) -> int:
    say(f"adding {one} and {two}")
    return one + two


def ranks() -> tuple[int, int, int]:
    import kinetic_ray

    context = kinetic_ray.context()
    return context.rank, context.world_size, os.getpid()


def fail(rank: int, how: str) -> int:
    """One rank fails, the others wait for it, or not."""
    import kinetic_ray

    if kinetic_ray.context().rank == rank:
        match how:
            case "raise" | "raise alone":
                raise KeyError(f"rank {rank}")
            case "exit":
                os._exit(7)
            case "kill":
                os.kill(os.getpid(), signal.SIGKILL)
    if how != "raise alone":
        hang()
    return os.getpid()


def hang() -> None:
    while True:
        signal.pause()


def leave_mark(folder: str, name: str) -> str:
    """Runs once for each name, or its mark tells."""
    with (Path(folder) / name).open("a") as file:
        file.write("x")
    return os.environ.get("TPU_NAME", "")


def hang_with_mark(folder: str) -> None:
    import kinetic_ray

    (Path(folder) / str(kinetic_ray.context().rank)).write_text(str(os.getpid()))
    hang()


def marks_in(folder: str | Path) -> list[int]:
    """Processes that have left their marks there; one that is there is not yet written."""
    return [int(text) for mark in Path(folder).glob("?") if (text := mark.read_text())]


def save_when_told(folder: str) -> str:
    import kinetic_ray

    told = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: told.set())
    (Path(folder) / str(kinetic_ray.context().rank)).touch()
    told.wait()
    return "saved"


def wait_for_mark(folder: str, name: str) -> str:
    wait_until((Path(folder) / name).exists, 90.0, name)
    return name


def global_devices() -> int:
    import jax

    return int(jax.device_count())


def last(seconds: float, mark: str = "") -> float:
    if mark:
        Path(mark).touch()
    threading.Event().wait(seconds)
    return seconds


class Counter:
    def __init__(self, start: int) -> None:
        self.value = start

    def add(self, more: int) -> int:
        self.value += more
        return self.value

    def end(self) -> None:
        os._exit(5)

    def wait(self) -> None:
        hang()

    def save(self, folder: str) -> str:
        return save_when_told(folder)


# Scenes.


def one_rank(me: Caller) -> None:
    first = me.run(pid)
    assert me.run(pid) == first
    assert me.run(add, 1, 2) == 3
    me.fails(lambda: me.run(fail, 0, "raise"), KeyError, "rank 0")
    assert me.run(pid) == first
    me.fails(lambda: me.run(fail, 0, "exit"), JobFailed, "fail on cpu.*exited with code 7")
    assert me.run(pid) != first
    lines = ray.get(me.desk.listen.remote(me.client, 30.0), timeout=60)["lines"]
    assert ["add", 0, "host 0", "adding 1 and 2"] in lines


def four_ranks(me: Caller) -> None:
    first = me.run(ranks, wish=SLICE, gather="all")
    assert [(rank, size) for rank, size, _ in first] == [(rank, 4) for rank in range(4)]
    assert me.run(ranks, wish=SLICE) == first[0]
    me.fails(lambda: me.run(fail, 2, "raise alone", wish=SLICE), KeyError, "rank 2")
    assert me.run(ranks, wish=SLICE, gather="all") == first  # all came home, so they are warm
    me.fails(lambda: me.run(fail, 2, "raise", wish=SLICE), KeyError, "rank 2")
    second = me.run(ranks, wish=SLICE, gather="all")
    assert not {one[2] for one in first} & {one[2] for one in second}
    for how, words in (("exit", "rank 1.*exited with code 7.*ranks 0, 2-3"), ("kill", "rank 1.*SIGKILL")):
        me.fails(lambda how=how: me.run(fail, 1, how, wish=SLICE), JobFailed, words)  # type: ignore[misc]
        assert me.run(ranks, wish=SLICE)[:2] == (0, 4)


def four_ranks_on_cpus(me: Caller) -> None:
    first = me.run(ranks, wish=FOUR_CPUS, gather="all")
    wait_until(lambda: me.phases() == ["resting"], 30, "the CPUs to be given back")
    assert me.run(ranks, wish=FOUR_CPUS, gather="all") == first


def jax_gang(me: Caller) -> None:
    wish = Wish(**{**SLICE.to_dict(), "runtime": "jax"})
    assert me.run(global_devices, wish=wish, gather="all") == [16] * 4
    assert me.run(global_devices, wish=wish, gather="all") == [16] * 4
    me.fails(lambda: me.run(fail, 3, "kill", wish=wish), JobFailed, "rank 3.*SIGKILL")
    assert me.run(global_devices, wish=wish) == 16


def two_slices_five_calls(me: Caller, folder: str) -> None:
    calls = [me.call(leave_mark, folder, str(number), wish=SMALL) for number in range(5)]
    waits = me.call(wait_for_mark, folder, "go", wish=SMALL)  # takes one of the two
    more = [me.call(leave_mark, folder, f"more-{number}", wish=SMALL) for number in range(5)]
    names = ray.get([*calls, *more], timeout=100)
    assert set(names) <= {"tpu-v6e-4-0", "tpu-v6e-4-1"}
    Path(folder, "go").write_text("")
    assert ray.get(waits, timeout=60) == "go"
    assert all(mark.read_text() == "x" for mark in Path(folder).iterdir() if mark.name != "go")


def arguments_are_waited_for_without_a_gang(me: Caller, folder: str) -> None:
    late = [me.call(wait_for_mark, folder, "go")]
    waiting = [me.call(add, 1, ref, wish=SMALL) for ref in (late[0], late[0], late[0])]
    assert me.run(add, 3, 4, wish=SMALL) == 7  # the slices are free while those wait
    Path(folder, "go").write_text("")
    assert ray.get(late, timeout=60) == ["go"]
    for ref in waiting:
        me.fails(lambda ref=ref: ray.get(ref, timeout=60), TypeError, "unsupported operand")  # type: ignore[misc]
    broken = me.call(fail, 0, "raise alone")
    me.fails(lambda: me.run(add, 1, broken), KeyError, "rank 0")


def what_never_fits(me: Caller) -> None:
    many = Wish(**{**SMALL.to_dict(), "num_slices": 9})
    me.fails(lambda: me.run(pid, wish=many), JobFailed, "tpu-v6e-4")
    me.fails(lambda: me.run(pid, wish=Wish(cpus=1000.0, python=PYTHON)), JobFailed, "1000 CPUs")


def capacity_timeout(me: Caller, folder: str) -> None:
    holders = [me.call(wait_for_mark, folder, "go", wish=SMALL) for _ in range(2)]
    wait_until(lambda: me.phases() == ["busy", "busy"], 60, "both slices in use")
    me.fails(lambda: me.run(pid, wish=SMALL, capacity_timeout=0.2), JobFailed, "capacity_timeout=0.2 s")
    me.fails(lambda: me.run(hang, timeout=0.5), JobError, "timeout=0.5")
    Path(folder, "go").write_text("")
    assert ray.get(holders, timeout=60) == ["go", "go"]


def lent(me: Caller) -> None:
    me.run(pid)
    direct = me.borrow(pid)
    first = ray.get(direct(), timeout=60)
    assert me.run(pid) in (first, ray.get(direct(), timeout=60))  # the desk takes it back, a late call is passed on
    wait_until(lambda: me.phases() == ["resting"], 30, "the CPUs to be given back")
    assert [ray.get(direct(), timeout=60) for _ in range(3)] == [first] * 3  # also one of which only the name is sent
    recalled = ray.get(me.desk.listen.remote(me.client, 30.0), timeout=60)["recalled"]
    assert recalled


def instances(me: Caller) -> None:
    actor = {"actor": "act-1", "kind": "create"}
    method = {"actor": "act-1", "kind": "method"}
    made = me.call(Counter, 10, **actor)
    counts = [me.call(Counter, 1, method="add", **method) for _ in range(5)]
    ray.get(made, timeout=60)
    assert sorted(ray.get(counts, timeout=60)) == [11, 12, 13, 14, 15]
    me.fails(lambda: me.run(Counter, "x", method="add", **method), TypeError, "")
    assert me.run(Counter, 1, method="add", **method) == 16
    me.fails(lambda: me.run(Counter, method="end", **method), ActorDiedError, "exited with code 5")
    me.fails(lambda: me.run(Counter, 1, method="add", **method), ActorDiedError, "exited with code 5")
    me.run(Counter, 1, actor="act-3", kind="create")
    me.fails(lambda: me.run(Counter, method="wait", actor="act-3", kind="method", timeout=0.5), JobTimeout, "0.5 s")
    me.fails(lambda: me.run(Counter, 1, method="add", actor="act-3", kind="method"), ActorDiedError, "longer than")
    me.run(Counter, 1, actor="act-2", kind="create", wish=SLICE)
    assert me.run(Counter, 1, method="add", actor="act-2", kind="method", gather="all", wish=SLICE) == [2] * 4
    ray.get(me.desk.kill_actor.remote("act-2"), timeout=60)
    gone = {"method": "add", "actor": "act-2", "kind": "method", "wish": SLICE}
    me.fails(lambda: me.run(Counter, 1, **gone), RayActorError, "kinetic.kill")
    assert me.run(ranks, wish=SLICE)[:2] == (0, 4)  # its slice is free again


def cancelled(me: Caller, folder: str) -> None:
    ref = me.call(hang_with_mark, folder)
    pid_file = Path(folder, "0")
    wait_until(lambda: pid_file.exists() and pid_file.read_text(), 60, "the call")
    ray.cancel(ref)
    me.fails(lambda: ray.get(ref, timeout=60), Exception, "")
    wait_until(lambda: not Path("/proc", pid_file.read_text()).exists(), 30, "the end of its process")
    assert me.run(add, 1, 1) == 2


def keep_calling(me: Caller, folder: str) -> None:
    """Until there is a file `enough`; then says how many calls there were, each of which ran once."""
    number = 0
    running: list[Any] = []
    while not Path(folder, "enough").exists():
        running = [ref for ref in running if ref not in ray.wait(running, num_returns=len(running), timeout=0)[0]]
        while len(running) < 4:
            running.append(me.call(leave_mark, folder, f"mark-{number}", wish=SMALL))
            number += 1
        ray.wait(running, num_returns=1, timeout=5)
    ray.get(running, timeout=100)
    marks = list(Path(folder).glob("mark-*"))
    assert len(marks) == number and all(mark.read_text() == "x" for mark in marks)


def call_until_killed(me: Caller, folder: str) -> None:
    """Calls that run, wait, or go straight to a host, and an instance: all of it must go with this process."""
    straight = Path(folder, "straight")
    straight.mkdir()
    me.run(pid, wish=SMALL)
    me.borrow(hang_with_mark, wish=SMALL)(str(straight))
    wait_until(lambda: marks_in(straight), 60, "the direct call")
    recalled, beside = Path(folder, "recalled"), Path(folder, "beside")
    for place in (recalled, beside):
        place.mkdir()
    me.run(pid)
    me.borrow(hang_with_mark)(str(recalled))
    wait_until(lambda: marks_in(recalled), 60, "the direct call")
    me.call(hang_with_mark, str(beside))  # for which the desk would have the lent gang back
    wait_until(lambda: marks_in(beside), 60, "the call beside it")
    me.run(Counter, 1, actor=f"act-{me.client}", kind="create")
    me.call(hang_with_mark, folder, wish=SLICE)
    for _ in range(3):
        me.call(hang_with_mark, folder, wish=SLICE)
    wait_until(lambda: len(marks_in(folder)) == 4, 90, "all ranks")
    say("calling")
    hang()


def nothing_is_left(me: Caller) -> None:
    """Of those that were killed."""
    wait_until(lambda: me.snapshot()["calls"] == [], 30, "the end of their calls")
    held = lambda: [one for one in me.snapshot()["gangs"] if one["phase"] in ("busy", "asking")]  # noqa: E731
    wait_until(lambda: not held(), 30, "their leases to be given back")
    assert me.run(ranks, wish=SLICE)[:2] == (0, 4)


def desk_killed(me: Caller, folder: str) -> None:
    running = me.call(hang_with_mark, folder, wish=SLICE)
    wait_until(lambda: len(marks_in(folder)) == 4, 90, "all ranks")
    pids = marks_in(folder)
    ray.kill(me.desk, no_restart=False)
    me.fails(lambda: ray.get(running, timeout=60), RayActorError, "")
    wait_until(lambda: not any(Path("/proc", str(one)).exists() for one in pids), 30, "the end of its children")
    deadline = time.monotonic() + 60
    while True:
        try:
            assert me.run(ranks, wish=SLICE)[:2] == (0, 4)
            return
        except RayActorError:
            assert time.monotonic() < deadline


def broker_killed(me: Caller, folder: str) -> None:
    """What was lent by it stays lent, what waits is served."""
    holds = me.call(wait_for_mark, folder, "go", wish=SLICE)
    wait_until(lambda: "busy" in me.phases(), 90, "the call")
    waits = [me.call(leave_mark, folder, f"slice-{number}", wish=SLICE) for number in range(2)]
    broker = find_broker(os.environ["KINETIC_SUPERVISOR"])
    ray.kill(broker, no_restart=False)
    assert me.run(leave_mark, folder, "small", wish=SMALL).startswith("tpu-v6e-4-")
    assert ray.wait(waits, timeout=1.0)[0] == []
    Path(folder, "go").write_text("")
    assert ray.get([holds, *waits], timeout=100) == ["go", "tpu-v6e-16-0", "tpu-v6e-16-0"]
    assert Path(folder, "slice-0").read_text() == Path(folder, "slice-1").read_text() == "xxxx"


def lose_a_host(me: Caller, folder: str) -> None:
    """Somebody takes the slice away while it runs."""
    running = me.call(hang_with_mark, folder, wish=SLICE)
    wait_until(lambda: len(list(Path(folder).iterdir())) == 4, 90, "all ranks")
    say("running")
    exc = me.fails(lambda: ray.get(running, timeout=100), JobFailed, "hang_with_mark on tpu-v6e-16-0.*rank ")
    say(json.dumps([getattr(exc, "reason", ""), str(exc)]))
    assert me.run(ranks, wish=SLICE)[:2] == (0, 4)


def use_the_grace(me: Caller, folder: str, kind: str) -> None:
    """The slice goes with notice while a call runs there that ends because of it."""
    actor: dict[str, Any] = {"actor": "act-9", "wish": SLICE}
    where, number = "tpu-v6e-16-0", 4
    if kind == "direct":
        where, number = me.run(leave_mark, tempfile.mkdtemp(dir=folder), "x", wish=SMALL), 2  # with that folder
        saving = me.borrow(save_when_told, SMALL)(folder)
    elif kind == "function":
        saving = me.call(save_when_told, folder, wish=SLICE)
    else:
        me.run(Counter, 1, kind="create", **actor)
        saving = me.call(Counter, folder, method="save", kind="method", **actor)
    wait_until(lambda: len(list(Path(folder).iterdir())) == number, 90, "all ranks")
    say(where)
    assert ray.get(saving, timeout=50) == "saved"
    if kind == "instance":
        again = {"method": "add", "kind": "method", **actor}
        me.fails(lambda: me.run(Counter, 1, **again), ActorDiedError, "its host was being preempted")
    assert me.run(ranks, wish=SLICE)[:2] == (0, 4)


def what_it_waits_for(me: Caller, folder: str) -> None:
    me.call(hang_with_mark, folder, wish=SLICE)
    wait_until(lambda: len(list(Path(folder).iterdir())) == 4, 90, "all ranks")
    waits = me.call(ranks, wish=SLICE)
    told: list[str] = []

    def hears_of_it() -> bool:
        lines = ray.get(me.desk.listen.remote(me.client, 5.0), timeout=90)["lines"]
        told.extend(text for name, *_, text in lines if not name)
        return any("ranks" in text for text in told)

    wait_until(hears_of_it, 60, "a word on the call that waits")
    ray.cancel(waits)
    why = r"kinetic: ranks waits for 1 [^;]*tpu-v6e-16.*; held by call-\S+ \(hang_with_mark\)"
    assert re.match(why, told[-1]), told


def edits(me: Caller) -> None:
    """The same process with other code each time: one place, and no waiting for its own older self."""
    seen = set()
    for number in range(5):
        bundle = Wish(**{**CPU.to_dict(), "main": f"{number}.py"})
        seen.add(me.run(pid, wish=bundle))
    assert len(seen) == 5
    assert len(me.phases()) == 1


def more_kinds_of_gangs_than_places(me: Caller, folder: str) -> None:
    """Those that rest lose their places to others and come back, again and again."""
    pairs = Wish(hosts=2, cpus=0.5, python=PYTHON)
    kinds = [Wish(**{**base.to_dict(), "env_vars": {"KIND": str(n)}}) for n in range(5) for base in (CPU, pairs)]
    for number in range(4):
        calls = {me.call(leave_mark, folder, f"{number}-{n}", wish=kind): n for n, kind in enumerate(kinds)}
        assert ray.get(list(calls), timeout=100) == [""] * len(kinds)
        for n, kind in enumerate(kinds):
            assert Path(folder, f"{number}-{n}").read_text() == "x" * kind.ranks


def nested(me: Caller) -> None:
    """All CPUs are held by calls that wait for what they have called themselves."""
    whole = Wish(python=PYTHON)
    for _ in range(int(ray.cluster_resources()["CPU"])):
        me.call(hang, wish=whole)
    wait_until(lambda: len(me.phases()) == me.phases().count("busy") > 1, 60, "all CPUs in use")
    deep = me.call(hang, wish=whole, ancestors=("call-a",))
    assert me.run(pid, wish=whole, ancestors=("call-a", "call-b"))
    ray.cancel(deep)


def one_call_of_nine_seconds(me: Caller, folder: str) -> None:
    ref = me.call(last, 9.0, str(Path(folder, "begun")))
    wait_until(Path(folder, "begun").exists, 100, "the call")
    say("calling")
    assert ray.get(ref, timeout=100) == 9.0


if __name__ == "__main__":
    scene, *words = sys.argv[1:]
    globals()[scene](Caller(), *words)

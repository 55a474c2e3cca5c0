"""What a preemption takes, and what is told of it: tables. Which processes are on a host, and how it is held up."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinetic_ray.backends.local import guard, residents
from kinetic_ray.backends.local.preempt import GRACE_S, RETURN_AFTER_S, Preemption, Shape, losses, read
from kinetic_ray.errors import UsageError
from tests.waiting import wait_until

SLICES = {
    "tpu-v6e-16-0": Shape(4, "up"),
    "tpu-v6e-8-0": Shape(1, "starting"),
    "tpu-v6e-16-1": Shape(4, "lost"),
    "tpu-v6e-16-2": Shape(4, "going"),
}


@pytest.mark.parametrize(
    ("request_", "wanted"),
    [
        ({"target": "tpu-v6e-16-0"}, Preemption("tpu-v6e-16-0", None, GRACE_S, False, RETURN_AFTER_S)),
        ({"target": "tpu-v6e-16-0.0"}, Preemption("tpu-v6e-16-0", 0)),
        ({"target": "tpu-v6e-16-0.3", "grace": 0}, Preemption("tpu-v6e-16-0", 3, 0.0)),
        ({"target": "tpu-v6e-8-0", "grace": None, "return_after": 60}, Preemption("tpu-v6e-8-0", return_after=60.0)),
        ({"target": "tpu-v6e-8-0.0", "silent": True}, Preemption("tpu-v6e-8-0", 0, silent=True)),
    ],
)
def test_a_request_is_read(request_: dict[str, Any], wanted: Preemption) -> None:
    assert read(request_, SLICES) == wanted


@pytest.mark.parametrize(
    ("request_", "says"),
    [
        ({"target": "tpu-v6e-16"}, r"no slice or host 'tpu-v6e-16': there are tpu-v6e-16-0 \(its hosts are"),
        (
            {"target": "tpu-v6e-16-0.4"},
            r"tpu-v6e-16-0.0 to tpu-v6e-16-0.3\), tpu-v6e-8-0 \(its host is tpu-v6e-8-0.0\)",
        ),
        ({"target": "tpu-v6e-16-0."}, "no slice or host"),
        ({"target": "tpu-v6e-16-0.x"}, "no slice or host"),
        ({"target": "tpu-v6e-16-0.-1"}, "no slice or host"),
        ({"target": "tpu-v6e-16-0.²"}, "no slice or host"),
        ({"target": "tpu-v6e-16-9.0"}, "no slice or host"),
        ({"target": ""}, "no slice or host ''"),
        ({}, "no slice or host"),
        ({"target": "tpu-v6e-16-1"}, "tpu-v6e-16-1 is lost already"),
        ({"target": "tpu-v6e-16-2.1"}, "tpu-v6e-16-2 is going already"),
        ({"target": "tpu-v6e-16-0", "grace": -1}, "grace=-1: expected seconds"),
        ({"target": "tpu-v6e-16-0", "grace": True}, "grace=True"),
        ({"target": "tpu-v6e-16-0", "grace": "5s"}, "grace='5s'"),
        ({"target": "tpu-v6e-16-0", "grace": float("nan")}, "grace=nan"),
        ({"target": "tpu-v6e-16-0", "return_after": 1e9}, "return_after=1000000000.0"),
        ({"target": "tpu-v6e-16-0", "grace": 5, "silent": True}, "no grace"),
    ],
)
def test_what_can_not_be_taken_is_refused_with_what_there_is(request_: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        read(request_, SLICES)


def test_without_any_slice_the_refusal_says_where_they_come_from() -> None:
    for slices in ({}, {"tpu-v6e-16-1": Shape(4, "lost")}):
        with pytest.raises(UsageError, match="'x': no slice is there now; the first job that asks for one starts it"):
            read({"target": "x"}, slices)


@pytest.mark.parametrize(
    ("hosts", "first", "reason", "told"),
    [
        ([0], None, "Preempted", [(0, "Preempted")]),
        ([0, 1], None, "Preempted", [(0, "Preempted"), (1, "Preempted")]),
        ([0, 1, 2], 2, "Preempted", [(2, "Preempted"), (0, "SliceLost"), (1, "SliceLost")]),
        ([0, 1, 2], 0, "NodeLost", [(0, "NodeLost"), (1, "SliceLost"), (2, "SliceLost")]),
    ],
)
def test_losses_name_the_cause_first(
    hosts: list[int], first: int | None, reason: str, told: list[tuple[int, str]]
) -> None:
    assert losses(hosts, first, reason) == told


@given(st.integers(1, 64), st.data())
def test_every_host_of_a_lost_slice_is_told_of_once(count: int, data: st.DataObject) -> None:
    first = data.draw(st.none() | st.integers(0, count - 1))
    told = losses(range(count), first, "Preempted")
    assert sorted(host for host, _ in told) == list(range(count))
    assert told[0] == (first or 0, "Preempted")
    assert sum(reason == "Preempted" for _, reason in told) == (count if first is None else 1)


_HOST = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
print(child.pid, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def host(tmp_path: Path) -> "Iterator[tuple[Path, subprocess.Popen[str], list[int]]]":
    """A host's folder, its guard, and all of its processes, one of which is not below the guard but prints there."""
    folder = tmp_path / "n" / "slice.0"
    folder.mkdir(parents=True)
    beside = tmp_path / "n" / "slice.00"  # another host, whose name begins alike
    beside.mkdir()
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with (
        subprocess.Popen([sys.executable, "-c", _HOST], **pipes) as root,
        (folder / "worker.out").open("w") as out,
        (beside / "worker.out").open("w") as other,
        subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, stdout=out) as forked,
        subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, stdout=other) as stranger,
    ):
        try:
            assert root.stdout is not None
            yield folder, root, [root.pid, int(root.stdout.readline()), forked.pid]
        finally:
            for process in (root, forked, stranger):
                process.kill()


def _states(pids: list[int]) -> set[str]:
    return {psutil.Process(pid).status() for pid in pids}


@pytest.mark.skipif(not guard.LINUX, reason="elsewhere there is no nursery, whose forks are beside their hosts")
def test_a_host_is_held_up_and_goes_on(host: "tuple[Path, subprocess.Popen[str], list[int]]") -> None:
    folder, root, pids = host
    assert residents.residents(folder, root.pid) == set(pids)
    assert residents.freeze(folder, root.pid) == set(pids)
    wait_until(lambda: _states(pids) == {psutil.STATUS_STOPPED}, 10, "all to be stopped")
    residents.thaw(folder, root.pid)
    wait_until(lambda: psutil.STATUS_STOPPED not in _states(pids), 10, "all to go on")


@pytest.mark.skipif(not guard.LINUX, reason="as above")
def test_a_frozen_host_can_be_killed(host: "tuple[Path, subprocess.Popen[str], list[int]]") -> None:
    folder, root, pids = host
    residents.freeze(folder, root.pid)
    residents.end(folder, root.pid)
    wait_until(lambda: not guard.parents().keys() & set(pids), 10, "all to be gone")
    assert residents.residents(folder, root.pid) == set()

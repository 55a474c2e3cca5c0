"""A rank that fills its host's memory ends alone, with all that it has started, and its failure has the figures.

How much all ranks may have is bound to a little here, so that nothing else on this machine is in danger.
"""

import os
import re
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from kinetic_ray.runner.calls.failures import CallFailure
from tests.integration.host import programs
from tests.integration.host.gangs import Gang, alive
from tests.integration.host.hosts import Hosts
from tests.waiting import wait_until

ALLOWED_MB, FILLED_MB = 500, 900
TOLD = (
    r"out of memory: it had (\d+ MB|1\.\d GB) with all its processes(, \d more here \d+ MB)?, of the 500 MB that "
    r"KINETIC_LOCAL_MEMORY_MB lets all ranks have together, so it was ended before others were: use less"
)


@pytest.fixture(autouse=True)
def bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KINETIC_LOCAL_MEMORY_MB", str(ALLOWED_MB))
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))


def fill(how: str, told: str) -> None:
    """Takes memory until somebody ends it, by itself or in a process that has left its session."""
    print("about to fill it", flush=True)  # noqa: T201
    if how == "in a child" and os.fork():
        signal.pause()
    if how == "in a child":
        os.setsid()
    Path(told).write_text(str(os.getpid()))
    pause, kept = threading.Event(), []
    for _ in range(FILLED_MB // 10):
        kept.append(b"x" * 10_000_000)
        pause.wait(0.01)
    pause.wait()


def fill_on_first(how: str, told: str, gate: str) -> str:
    if programs.rank() == 0:
        fill(how, told)
    while not Path(gate).exists():
        threading.Event().wait(0.02)
    return "went on"


@pytest.mark.parametrize("how", ["by itself", "in a child"])
def test_the_largest_rank_ends_and_the_others_go_on(how: str, gang_of: Callable[..., Gang], tmp_path: Path) -> None:
    gang = gang_of(hosts=2)
    told, gate = tmp_path / "told", tmp_path / "gate"
    first, _ = gang.start(fill_on_first, how, str(told), str(gate))
    outcome = gang.messages(0)[-1]["outcome"]
    assert (outcome["reason"], outcome["exit_code"]) == ("OutOfMemory", -signal.SIGKILL)
    assert re.match(TOLD, outcome["message"]), outcome["message"]
    assert "about to fill it" in outcome["log_tail"]
    assert not alive(int(told.read_text()))
    assert not alive(first)
    gate.touch()
    assert gang.messages(1)[-1]["outcome"]["ok"]
    assert gang.value(1) == "went on"


def test_a_call_ends_for_memory_and_the_next_one_runs(host: Hosts, tmp_path: Path) -> None:
    with pytest.raises(CallFailure) as caught:
        host.run(fill, "by itself", str(tmp_path / "told"))
    assert caught.value.reason == "OutOfMemory"
    assert re.match(TOLD, caught.value.message), caught.value.message
    host.open()
    assert host.run(programs.give, 7) == 7


def test_ranks_know_of_each_other_only_while_they_run(gang_of: Callable[..., Gang], tmp_path: Path) -> None:
    gang = gang_of()
    assert gang.run(programs.give, 7) == [7]
    wait_until(lambda: not [*tmp_path.glob("kinetic-ranks-*")], 60, "the end of their folder")

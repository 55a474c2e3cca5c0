"""What calls print, from the hosts to the terminal of who calls, on the real embedded cluster: all of it, and safe."""

import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from kinetic_ray.testing.clusters import LocalCluster
from tests.integration.calls.test_api_calls import Folder
from tests.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(400)]

FLOOD = """
import sys, time
import kinetic_ray as kinetic

@kinetic.remote
def flood(count):
    for number in range(count):
        print(f"line {number}")

if __name__ == "__main__":
    kinetic.get(flood.remote(60_000), timeout=300)
"""
SMALL_PARTS = r"""
import sys
import kinetic_ray as kinetic

@kinetic.remote
def say(text):
    print(text, end="", flush=True)

@kinetic.remote
def fails(text):
    print(text, end="", flush=True)
    raise ValueError(text)

if __name__ == "__main__":
    for number in range(5):
        kinetic.get(say.remote(f"half {number}"))
    kinetic.get(say.remote("10 %\r20 %\r\x1b]0;title\x07\x1b[2Jdone\n"))
    try:
        kinetic.get(fails.remote("\x1b]0;title\x07\x1b[2Jevil"))
    except ValueError as error:
        print("note:", *error.__notes__)
    kinetic.get(say.remote("the end"))
"""
RANKS = """
import kinetic_ray as kinetic

@kinetic.remote(accelerator="tpu-v6e-16", runtime="plain")
def count():
    for number in range(1000):
        print(f"step {number}")

if __name__ == "__main__":
    kinetic.get(count.remote(), timeout=300)
"""
UNFINISHED = """
import sys, time
from pathlib import Path
import kinetic_ray as kinetic

@kinetic.remote
def work(mark):
    for number in range(1000):
        print(f"line {number}")
    print("half", end="", flush=True)
    Path(mark).touch()
    while True:
        time.sleep(1)

if __name__ == "__main__":
    mark = Path("mark").absolute()
    ref = work.remote(str(mark))
    while not mark.exists():
        time.sleep(0.01)
"""


def test_sixty_thousand_lines_of_one_call_arrive_all_and_in_order(cluster: LocalCluster, tmp_path: Path) -> None:
    project = Folder(tmp_path, FLOOD)
    assert project.run().splitlines() == [f"(flood rank=0 host 0) line {number}" for number in range(60_000)]


def test_a_process_that_was_stopped_for_a_while_misses_nothing(cluster: LocalCluster, tmp_path: Path) -> None:
    """Somebody has pressed Ctrl-Z.

    It prints into a file: of what a stopped process was just writing into a full pipe a part may be lost, by Python
    itself (seen with one that only prints, 2 times of 60, Python 3.11.7).
    """
    project, printed = Folder(tmp_path, FLOOD), tmp_path.with_suffix(".out")
    command = [sys.executable, str(project.script)]
    with (
        printed.open("wb") as out,
        subprocess.Popen(command, cwd=project.root, stdin=subprocess.DEVNULL, stdout=out) as process,
    ):
        wait_until(lambda: b"\n" in printed.read_bytes(), 200, "the first line")
        process.send_signal(signal.SIGSTOP)
        wait_until(lambda: psutil.Process(process.pid).status() == psutil.STATUS_STOPPED, 30, "it to stop")
        process.send_signal(signal.SIGCONT)
        assert process.wait(300) == 0
    lines = printed.read_text().splitlines()
    assert lines == [f"(flood rank=0 host 0) line {number}" for number in range(60_000)]


def test_lines_of_ranks_are_never_folded(cluster: LocalCluster, tmp_path: Path) -> None:
    project = Folder(tmp_path, RANKS)
    shown = project.run().splitlines()
    assert len(shown) == 4000
    for rank in range(4):
        mine = [line.partition(") ")[2] for line in shown if f" rank={rank} " in line]
        assert mine == [f"step {number}" for number in range(1000)]


def test_a_process_that_ends_shows_what_its_calls_have_printed_by_then(cluster: LocalCluster, tmp_path: Path) -> None:
    project = Folder(tmp_path, UNFINISHED)
    shown = [line.removeprefix("(work rank=0 host 0) ") for line in project.run().splitlines()]
    assert shown == [*(f"line {number}" for number in range(1000)), "half"]


def test_processes_that_call_at_once_see_their_own_lines_only(
    cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory
) -> None:
    programs = [Folder(tmp_path_factory.mktemp(f"p{n}"), FLOOD.replace('"line', f'"line of {n}')) for n in range(2)]
    processes = [program.start() for program in programs]
    for number, process in enumerate(processes):
        out, err = process.communicate(timeout=300)
        assert process.returncode == 0, err
        assert out.splitlines() == [f"(flood rank=0 host 0) line of {number} {n}" for n in range(60_000)]


def test_half_lines_stand_for_themselves(cluster: LocalCluster, tmp_path: Path) -> None:
    project = Folder(tmp_path, SMALL_PARTS)
    shown = [line.partition(") ")[2] for line in project.run().split("\n") if line.startswith("(say")]
    # To a pipe a bar goes as it was printed: for this test, which reads text, each of its states ends a line.
    assert shown == [*(f"half {number}" for number in range(5)), "10 %", "the end"]


def test_a_terminal_gets_no_control_codes(cluster: LocalCluster, tmp_path: Path) -> None:
    project = Folder(tmp_path, SMALL_PARTS)
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, str(project.script)], cwd=project.root, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    shown = b"".join(_read_all(ours)).decode()
    assert process.wait(60) == 0
    assert "\x1b" not in shown and "\x07" not in shown, shown
    assert "(say rank=0 host 0) done\r\n" in shown and "(fails rank=0 host 0) evil\r\n" in shown
    assert "note: \r\nRaised in fails on cpu: rank 0:" in shown and "ValueError: evil" in shown


def _read_all(terminal: int) -> Iterator[bytes]:
    with os.fdopen(terminal, "rb", buffering=0) as stream:
        try:
            while data := stream.read(1 << 16):
                yield data
        except OSError:  # as Linux says the end
            return

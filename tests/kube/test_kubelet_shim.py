"""Containers without a control plane: the shim makes them, and nothing of them outlives who started it."""

import contextlib
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.waiting import wait_until

pytestmark = [pytest.mark.kube, pytest.mark.usefixtures("namespaces_can_be_made")]

ROOT = Path(__file__).parents[2]

# In the place of a kubelet: it starts one pod with one container, prints what its processes are called, and waits.
_STARTER = """
import asyncio, os, sys
from pathlib import Path
from cluster.sim.kubelet.agent import hide_mounts
from cluster.sim.kubelet.images import Image
from cluster.sim.kubelet.launches import Launch, Mount
from cluster.sim.kubelet.processes import Place, ShimProcess, StartError, shim_command

async def main(folder, shown, *argv):
    hide_mounts(folder)
    pause = await asyncio.create_subprocess_exec(*shim_command("pause", "a-pod"), stdout=asyncio.subprocess.PIPE)
    assert await pause.stdout.readline() == b"ready\\n"
    env = {"PATH": "/usr/bin:/bin", "ONLY": "this"}
    mounts = (Mount("/shown", shown), Mount("/shown-only", shown, read_only=True))
    launch = Launch(folder / "c", folder / "c.log", argv, env, mounts, "/", Image())
    try:
        process = await ShimProcess.start(launch, Place(pause.pid))
    except StartError as wrong:
        print("error", wrong, flush=True)
        return
    print("started", pause.pid, process.id.removeprefix("process://"), flush=True)
    script = "hostname; echo $ONLY $$; until test -e /started-by-argv; do sleep 0.05; done"
    inside = await process.run(("sh", "-c", script), 20)
    print("inside", inside.good, inside.said.split(), flush=True)
    how = await process.wait()
    print("ended", how.code, *launch.log.read_text().split(), flush=True)
    pause.kill()
    await pause.wait()

asyncio.run(main(Path(sys.argv[1]), Path(sys.argv[2]), *sys.argv[3:]))
"""


@pytest.fixture
def start(tmp_path: Path) -> Iterator["Start"]:
    """Starts containers; ends them with the test."""
    starts = Start(tmp_path)
    yield starts
    starts.end()


class Start:
    def __init__(self, folder: Path) -> None:
        self.shown = folder / "shown"
        self.shown.mkdir()
        self.folder = folder / "pods"
        self._all: list[subprocess.Popen[str]] = []

    def __call__(self, *argv: str) -> "subprocess.Popen[str]":
        words = [sys.executable, "-c", _STARTER, str(self.folder), str(self.shown), *argv]
        started = subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        self._all.append(started)
        return started

    def end(self) -> None:
        for one in self._all:
            one.kill()
            one.communicate()


def said(started: "subprocess.Popen[str]") -> list[str]:
    assert started.stdout is not None
    return started.stdout.readline().split()


def test_a_container_is_apart_and_ends_as_its_command_does(start: Start) -> None:
    marker = "sh", "-c", "touch /started-by-argv /shown/file; until test -e /shown/go; do sleep 0.05; done; exit 5"
    started = start(*marker)
    assert said(started)[0] == "started"
    wait_until((start.shown / "file").exists, what="the container's file")
    inside = " ".join(said(started))
    assert inside.startswith("inside True ['a-pod', 'this',"), inside
    (start.shown / "go").touch()
    assert said(started)[:2] == ["ended", "5"]
    assert not Path("/started-by-argv").exists()
    assert list(start.folder.iterdir()) == []  # nobody else sees the pods' file system


def test_read_only_mounts_are(start: Start) -> None:
    started = start("sh", "-c", "touch /started-by-argv; echo x > /shown-only/file || echo refused; sleep 1")
    said(started)
    said(started)
    assert "refused" in said(started)
    assert list(start.shown.iterdir()) == []


@pytest.mark.parametrize(
    ("program", "why"),
    [("no-such-program", "executable file not found in $PATH"), ("/etc/passwd", "permission denied")],
)
def test_what_cannot_be_started_says_why(start: Start, program: str, why: str) -> None:
    assert why in " ".join(said(start(program)))


def test_nothing_outlives_a_killed_starter(start: Start) -> None:
    started = start("sh", "-c", "touch /started-by-argv; (setsid sleep 1000 &); trap '' TERM; sleep 1000")
    assert said(started)[0] == "started"
    assert said(started)[0] == "inside"
    family = psutil.Process(started.pid).children(recursive=True)
    assert len(family) >= 4  # the pause process, the shim, the shell, its programs
    spaces = {space for one in family for space in _namespaces(one.pid)} - _namespaces("self")
    assert len(spaces) >= 3
    started.send_signal(signal.SIGKILL)
    wait_until(lambda: not any(one.is_running() for one in family), what="the end of all processes")
    left = {space for one in Path("/proc").glob("[0-9]*") for space in _namespaces(one.name)}
    assert spaces & left == set()
    assert str(start.folder) not in Path("/proc/mounts").read_text()


def _namespaces(pid: int | str) -> set[str]:
    found = set()
    for kind in ("net", "pid", "mnt"):
        with contextlib.suppress(OSError):  # it has just ended
            found.add(str(Path(f"/proc/{pid}/ns/{kind}").readlink()))
    return found

"""A job's code is what it was at the call, and its files are its own: whoever edits or writes what, and when."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import kinetic_ray as kinetic
from kinetic_ray.backends.local import backend
from tests.unit.test_reach import HOOK, write
from tests.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[3]

BLOCKER = """
import kinetic_ray as kinetic, pathlib, sys, threading
@kinetic.run(accelerator="tpu-v6e-1", runtime="plain")
def block(gate):
    while not pathlib.Path(gate).exists(): threading.Event().wait(0.05)
if __name__ == "__main__":
    print(block.run_async(sys.argv[1]).job_id)
"""
QUEUED = """
import kinetic_ray as kinetic
import helper, toolbox, work
@kinetic.run(accelerator="tpu-v6e-1", runtime="plain")
def look():
    import lib
    return helper.NAME, work.name(), lib.NAME, open("data.txt").read(), "toolbox" in open("work.py").read()
if __name__ == "__main__":
    import lib
    print(look.run_async().job_id)
"""
STRANGER = """
import kinetic_ray as kinetic, sys
@kinetic.run(accelerator="cpu", runtime="plain")
def look():
    import importlib.util
    return importlib.util.find_spec("toolbox") is None
if __name__ == "__main__":
    print(look.options(env_vars=dict(zip(["PYTHONPATH"], sys.argv[1:]))).run_async().job_id)
"""
WRITER = """
import os, pathlib, helper, kinetic_ray as kinetic
@kinetic.run(accelerator="cpu", hosts=2, gather="all", runtime="plain")
def scribble():
    rank = kinetic.context().rank
    mine = pathlib.Path("notes.txt")
    before = mine.exists()
    mine.write_text(f"rank {rank}")
    pathlib.Path("data.txt").unlink()
    pathlib.Path("helper.py").write_text("NAME = 'overwritten'")
    pathlib.Path("new", "deep").mkdir(parents=True)
    return rank, before, mine.read_text(), os.path.exists("data.txt"), helper.NAME, os.getcwd()
if __name__ == "__main__":
    print(scribble.run_async().job_id)
"""


@pytest.fixture(scope="module")
def home(test_homes: Path) -> Iterator[Path]:
    """A KINETIC_HOME whose cluster has one slice."""
    with pytest.MonkeyPatch.context() as patch:
        folder = Path(tempfile.mkdtemp(prefix="kpc", dir=test_homes))
        patch.setenv("KINETIC_HOME", str(folder))
        patch.setenv("KINETIC_LOCAL_SLICES", '{"tpu-v6e-1": 1}')
        yield folder
        backend.stop(folder, force=True)


@pytest.fixture
def here(home: Path) -> Path:
    folder = Path(tempfile.mkdtemp(prefix="here", dir=home))
    (folder / "project").mkdir()
    (folder / "project" / "pyproject.toml").touch()
    return folder


def start(command: list[str], cwd: Path, *path: Path) -> str:
    """Runs a program; the last word that it prints."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, [ROOT, *path])), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run([sys.executable, *command], cwd=cwd, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()[-1]


def runs(job: "kinetic.JobHandle[object]") -> bool:
    """Whether a job runs; one that has ended never will."""
    phase = job.phase()
    assert phase.status in ("PENDING", "RUNNING"), phase
    return phase.status == "RUNNING"


def snapshot(folder: Path) -> dict[str, tuple[int, bytes]]:
    """All that is below a folder: names, times, contents."""
    paths = sorted(folder.rglob("*"))
    return {
        path.relative_to(folder).as_posix(): (path.stat().st_mtime_ns, path.read_bytes() if path.is_file() else b"")
        for path in paths
    }


def test_edits_while_a_job_queues_are_not_seen_by_it_nor_by_another_project(here: Path) -> None:
    project, gate = here / "project", here / "gate"
    write(
        project,
        blocker=BLOCKER,
        queued=HOOK + QUEUED,
        helper="NAME = 'helper before'",
        work="import toolbox\ndef name(): return toolbox.NAME",
        src__lib__="NAME = 'lib before'",
    )
    (project / "data.txt").write_text("data before")
    shared = write(here / "shared", toolbox="NAME = 'toolbox before'")
    blocker = kinetic.attach(start(["blocker.py", str(gate)], project, shared))  # whose shell starts the cluster
    wait_until(lambda: runs(blocker), 240, "the slice to be taken")
    job = kinetic.attach(start(["queued.py"], project, shared))
    for path in (project / "helper.py", project / "src/lib/__init__.py", project / "data.txt", shared / "toolbox.py"):
        path.write_text(path.read_text().replace("before", "after"))
    write(project, work="def name(): return 'after'")
    other = write(here / "other", stranger=STRANGER)
    (other / "pyproject.toml").touch()
    stranger = kinetic.attach(start(["stranger.py"], other))
    asking = kinetic.attach(start(["stranger.py", str(shared)], other))
    gate.touch()
    assert job.result(timeout=240) == ("helper before", "toolbox before", "lib before", "data before", True)
    assert stranger.result(timeout=240)
    assert not asking.result(timeout=240)  # it names the folder, which it sees as it is then
    blocker.result(timeout=240)


def test_ranks_write_into_folders_of_their_own(here: Path) -> None:
    project = write(here / "project", writer=WRITER, helper="NAME = 'helper'")
    (project / "data.txt").write_text("data")
    before = snapshot(project)
    rows = kinetic.attach(start(["writer.py"], project)).result(timeout=240)
    assert [row[:5] for row in rows] == [(rank, False, f"rank {rank}", False, "helper") for rank in range(2)]
    folders = [Path(row[5]) for row in rows]
    assert folders[0] != folders[1]
    assert not any(folder.is_relative_to(here) for folder in folders)
    assert snapshot(project) == before

"""A process that may hardly open any more files: calls work with few, and where they can't they say why."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.test_start_styles import environment

PROGRAM = """
import os, resource, sys
import kinetic_ray as kinetic
import helper

@kinetic.remote(backend="kinetic_ray.testing.thread_backend:ThreadBackend")
def f(x):
    return helper.NAME, x

def leave(spare):
    taken = len(os.listdir("/proc/self/fd")) - 1  # the listing itself had one
    resource.setrlimit(resource.RLIMIT_NOFILE, (taken + spare, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))

if "warm" in sys.argv:
    f.run(0)
leave(int(sys.argv[1]))
try:
    value = f.run(1)
except kinetic.KineticError as error:
    sys.exit(f"refused: {error}")
print(value)
"""

TRACKED = """
import os, pathlib, resource, sys
from kinetic_ray.calls.code import CodeTracker
from kinetic_ray.calls import looks
import program

taken = len(os.listdir("/proc/self/fd")) - 1
resource.setrlimit(resource.RLIMIT_NOFILE, (taken + int(sys.argv[1]), resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
tracker = CodeTracker(program.f.__wrapped__)
digests = []
for text in ("one", "one", "two", "two", "one"):
    pathlib.Path("helper.py").write_text(f"NAME = {text!r}")
    digests.append(tracker.current().bundle_digest)
print(digests[0] == digests[1] == digests[4] != digests[2] == digests[3])
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "pyproject.toml").touch()
    (folder / "helper.py").write_text("NAME = 'helper'")
    (folder / "program.py").write_text(PROGRAM)
    (folder / "data").mkdir()
    for number in range(40):  # more than a process with few descriptors can hold on to
        (folder / "data" / f"{number}.bin").write_bytes(b"x")
    return folder


def start(project: Path, *command: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, *command],
        cwd=project,
        env=environment(project.parent),
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("begun", [[], ["warm"]])
@pytest.mark.parametrize("spare", [0, 1, 2, 3, 4])
def test_a_call_works_or_says_what_it_lacks(project: Path, spare: int, begun: list[str]) -> None:
    done = start(project, "program.py", str(spare), *begun)
    if done.returncode == 0:
        assert done.stdout == "('helper', 1)\n"
    else:  # Python's own imports say it too
        assert done.stdout == ""
        assert "Too many open files" in done.stderr


@pytest.mark.parametrize("begun", [[], ["warm"]])
@pytest.mark.parametrize("spare", [8, 16])
def test_a_handful_is_enough(project: Path, spare: int, begun: list[str]) -> None:
    done = start(project, "program.py", str(spare), *begun)
    assert (done.returncode, done.stdout) == (0, "('helper', 1)\n"), done.stderr
    assert done.stderr.count("hardly any file descriptors") == len(begun)  # the first call holds none yet


@pytest.mark.parametrize("spare", [6, 10, 20, 100])
def test_edits_are_seen_with_too_few_to_hold_on_to_all_files(project: Path, spare: int) -> None:
    (project / "program.py").write_text("import helper\ndef f():\n    return helper.NAME\nf.__wrapped__ = f\n")
    done = start(project, "-c", TRACKED, str(spare))
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr

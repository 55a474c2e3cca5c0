"""The folder of a project's code goes from one child to the next: what differs is written, and nothing else is left."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kinetic_ray.bundle.archive import pack
from kinetic_ray.bundle.tree import scan
from tests.integration.host.hosts import Hosts

pytestmark = pytest.mark.integration


@pytest.fixture
def hosts() -> Iterator[Hosts]:
    made = Hosts()
    yield made
    made.stop()


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    (folder / "pkg").mkdir(parents=True)
    for name in ("same.py", "edited.py", "gone.py", "pkg/same.txt"):
        (folder / name).write_text(f"NAME = {name!r}")
    return folder


def opened_for(hosts: Hosts, project: Path, digest: str) -> None:
    hosts.open(pack(scan(project, limit=10**9)), bundle=digest, sys_path=["."])


def look() -> tuple[dict[str, str], dict[str, tuple[int, int]]]:
    """Contents, and which files they are."""
    paths = [path for path in Path.cwd().rglob("*") if path.is_file()]
    names = {path: path.relative_to(Path.cwd()).as_posix() for path in paths}
    texts = {names[path]: path.read_text() for path in paths}
    return texts, {names[path]: (path.stat().st_ino, path.stat().st_ctime_ns) for path in paths}


def scribble() -> int:
    """Does to the folder what it can, and leaves a process behind that goes on with it."""
    Path("pkg/same.txt").write_text("scribbled")
    Path("new/deep").mkdir(parents=True)
    Path("new/deep/file").write_text("scribbled")
    going = "while :; do echo more >> pkg/more.txt; echo more > same.py; done"
    return subprocess.Popen(["sh", "-c", going], start_new_session=True).pid


def test_the_next_child_finds_its_own_code_and_no_trace_of_the_last_one(hosts: Hosts, project: Path) -> None:
    expected = {path.relative_to(project).as_posix(): path.read_text() for path in project.rglob("*") if path.is_file()}
    opened_for(hosts, project, "first")
    texts, before = hosts.run(look)
    assert texts == expected
    (project / "edited.py").write_text("NAME = 'new'")
    (project / "gone.py").unlink()
    opened_for(hosts, project, "second")
    texts, after = hosts.run(look)
    assert texts == {**{name: expected[name] for name in ("same.py", "pkg/same.txt")}, "edited.py": "NAME = 'new'"}
    kept = {"same.py", "pkg/same.txt"} if sys.platform == "linux" else set()
    assert {name for name, which in after.items() if before[name] == which} == kept
    pid = hosts.run(scribble)
    opened_for(hosts, project, "third")
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert hosts.run(look)[0] == texts


def test_code_of_another_project_and_of_none(hosts: Hosts, project: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "same.py").write_text("NAME = 'other'")
    opened_for(hosts, project, "first")
    hosts.run(look)
    opened_for(hosts, other, "second")
    assert hosts.run(look)[0] == {"same.py": "NAME = 'other'"}
    hosts.open(bundle="")
    assert hosts.run(look)[0] == {}
    opened_for(hosts, project, "third")
    assert "pkg/same.txt" in hosts.run(look)[0]

"""The check at the end of a run sees what it is there to see."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.leaks import Leaks
from tests.waiting import wait_until


@pytest.fixture
def homes() -> Path:
    return Path(tempfile.mkdtemp(prefix="krl", dir=os.environ["KINETIC_HOME"].rpartition("/")[0]))


def _named(leaks: Leaks) -> list[str]:
    """Without shared memory, of which other runs beside this one may leave some."""
    return [line for line in leaks.found() if not line.startswith("shared memory")]


def test_a_process_of_ours_is_found_until_it_ends(homes: Path) -> None:
    leaks = Leaks(homes)
    environ = {**os.environ, "KINETIC_HOME": str(homes / "one")}
    command = [sys.executable, "-c", "input()"]
    with subprocess.Popen(command, env=environ, stdin=subprocess.PIPE) as process:
        found = wait_until(lambda: _named(leaks), what="the process to be found")
        assert len(found) == 1 and found[0].startswith(f"process {process.pid}: ")
        process.communicate(b"\n")
    assert _named(leaks) == []


def test_a_runtime_folder_of_ours_is_found(homes: Path) -> None:
    leaks = Leaks(homes)
    with tempfile.TemporaryDirectory(prefix=f"kr{os.getuid()}-", dir="/tmp") as folder:
        (Path(folder) / "info.json").write_text(json.dumps({"home": str(homes / "one")}))
        assert _named(leaks) == [f"runtime folder {folder}"]
        (Path(folder) / "info.json").write_text(json.dumps({"home": "/somebody/else"}))
        assert _named(leaks) == []


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="this system has no /dev/shm")
def test_shared_memory_counts_once_nobody_has_it_open(homes: Path) -> None:
    leaks = Leaks(homes)
    with tempfile.NamedTemporaryFile(dir="/dev/shm", delete=False) as file:
        mine = f"shared memory {Path(file.name).name}"
        assert mine not in leaks.found()
    assert mine in leaks.found()
    Path(file.name).unlink()
    assert mine not in leaks.found()

"""Programs of the shape of keras-team/kinetic's examples and end-to-end tests run by a swapped import."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAMS = Path(__file__).with_name("programs")
_SWAPS = ((r"^import kinetic$", "import kinetic_ray as kinetic"), (r"^from kinetic(\.|\s)", r"from kinetic_ray\1"))


def swapped(text: str) -> str:
    """What somebody does who comes from there: other imports, nothing else."""
    for pattern, replacement in _SWAPS:
        text = re.sub(pattern, replacement, text, flags=re.MULTILINE)
    return text


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    shutil.copytree(PROGRAMS, folder, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "pyproject.toml").write_text('[project]\nname = "mine"\nversion = "0"\n')
    for path in folder.glob("*.py"):
        path.write_text(swapped(path.read_text()))
    return folder


@pytest.mark.parametrize("path", sorted(PROGRAMS.glob("*.py")), ids=lambda path: path.stem)
def test_only_the_imports_are_changed(path: Path) -> None:
    before, after = path.read_text().splitlines(), swapped(path.read_text()).splitlines()
    changed = [old for old, new in zip(before, after, strict=True) if old != new]
    assert all(re.match(r"(import|from) kinetic", line) for line in changed)
    assert bool(changed) == (path.stem != "shared")
    assert "kinetic_ray" not in path.read_text()


@pytest.mark.integration
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "name",
    [
        "async_jobs",
        "blocking_calls",
        "waiting_and_stopping",
        "resuming",
        pytest.param("slice_of_tpus", marks=pytest.mark.slow),
    ],
)
def test_a_program_runs_by_a_swapped_import(name: str, project: Path, cluster: Path, tmp_path: Path) -> None:
    if name == "slice_of_tpus":
        pytest.importorskip("jax")
    environ = {key: value for key, value in os.environ.items() if not key.startswith("WANDB_")}
    command = [sys.executable, f"{name}.py", str(tmp_path / "place")]
    done = subprocess.run(command, cwd=project, env=environ, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    assert done.stdout.splitlines()[-1] == "done"

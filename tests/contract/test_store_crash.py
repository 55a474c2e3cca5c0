"""A process that is killed at any moment leaves no partial entry in a folder store, and the next one goes on."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("seed", [20260])
def test_a_killed_writer_leaves_no_partial_entry(tmp_path: Path, seed: int) -> None:
    command = [sys.executable, "-m", "tests.contract.store_crash", str(tmp_path), str(seed)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=150, check=False)
    assert done.returncode == 0, f"seed {seed}\n{done.stdout}{done.stderr}"
    assert len(done.stdout.splitlines()) == 10

"""The benchmarks run, and clean gangs don't fail. What they measure is printed by them, never asserted here."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(900)]


def _run(*words: str) -> str:
    command = [sys.executable, "-m", *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=840, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout


def test_thirty_clean_gangs_in_one_driver_all_end_well() -> None:
    assert "spurious failures: 0 of 30" in _run("benchmarks.gangs", "--n", "30")


def test_every_benchmark_runs() -> None:
    lines = _run("benchmarks", "--rounds", "1").splitlines()
    assert lines[0].startswith("machine: ")
    for contender in ("run_async -> result", "raw Ray job", "host agents, a further gang", "four Ray actors"):
        assert any(line.split()[-1:] == ["1"] and line.strip().startswith(contender) for line in lines), lines

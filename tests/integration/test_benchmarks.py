"""The benchmarks run, and clean gangs don't fail. What they measure is printed by them, never asserted here."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from benchmarks.install import OURS, Package, compare

ROOT = Path(__file__).resolve().parents[2]
CONTENDERS = (
    *("run_async -> result", "raw Ray job", "host agents, a further gang", "four Ray actors"),
    *("kinetic, a warm call", "the script again, ray.init", "kinetic, a job that has ended", 'state="FAILED"'),
    *("kinetic, job.stream()", "kinetic jobs logs -f", "kinetic, until the job has ended", "pickle.load"),
)
pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(1800)]


def _run(*words: str) -> str:
    command = [sys.executable, "-m", *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=1740, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout


def test_thirty_clean_gangs_in_one_driver_all_end_well() -> None:
    assert "spurious failures: 0 of 30" in _run("benchmarks.gangs", "--n", "30")


def test_every_benchmark_runs() -> None:
    lines = _run("benchmarks", "--rounds", "1", "--small").splitlines()
    assert lines[0].startswith("machine: ")
    for contender in CONTENDERS:
        rows = [line for line in lines if line.strip().startswith(contender) and line.split()[-1].isdigit()]
        assert rows, (contender, lines)
    stale = next(line for line in lines if "stale answers" in line)
    assert stale.split()[2] == "0", stale


def test_what_an_install_costs_is_told_of_each_that_can_be_installed(tmp_path: Path) -> None:
    wheel = tmp_path / "small-1-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("small_thing.py", "")
        archive.writestr("small-1.dist-info/METADATA", "Metadata-Version: 2.1\nName: small\nVersion: 1\n")
        archive.writestr("small-1.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr("small-1.dist-info/RECORD", "")
    missing = Package("missing", str(tmp_path / "missing-1-py3-none-any.whl"), "missing")
    lines = compare([Package(OURS, str(wheel), "small_thing"), missing], rounds=1).splitlines()
    assert [line.split()[-1] for line in lines if line.strip().startswith(OURS)] == ["1", "1"]
    assert any(line.startswith("missing is left out, for it can't be installed here: ") for line in lines)

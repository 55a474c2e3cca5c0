"""Commands whose standard streams are closed, as cron's and daemons' are, or lead to a full disk."""

import subprocess
import sys
from pathlib import Path

import pytest

from kinetic_ray.cli.main import COMMANDS
from tests.programs_apart import ROOT

_CALLS = (
    ["accelerators"],
    ["accelerators", "--json"],
    ["jobs", "list"],
    ["config"],
    ["profile", "list"],
    ["--version"],
)


def run(call: list[str], redirected: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Runs a command by a shell that redirects its streams."""
    words = [sys.executable, "-m", "kinetic_ray", *call]
    environ = {"PYTHONPATH": str(ROOT), "KINETIC_HOME": str(folder / "home"), "PATH": "/usr/bin:/bin"}
    shell = ["sh", "-c", f'exec "$@" {redirected}', "sh", *words]
    return subprocess.run(shell, capture_output=True, text=True, cwd=folder, env=environ, timeout=300, check=False)


@pytest.mark.parametrize("call", _CALLS, ids=" ".join)
@pytest.mark.parametrize("redirected", [">&-", "2>&-", "<&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_a_closed_stream_is_as_if_nobody_looked(call: list[str], redirected: str, tmp_path: Path) -> None:
    plain = run(call, "", tmp_path)
    done = run(call, redirected, tmp_path)
    assert done.returncode == plain.returncode == 0, done.stderr
    assert "fault" not in done.stderr
    assert done.stdout == ("" if ">&-" in redirected.split() else plain.stdout)


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_every_command_needs_no_reader(command: str, tmp_path: Path) -> None:
    assert run([command, "--help"], ">&-", tmp_path).returncode == 0


def test_an_error_keeps_its_code_where_nobody_reads_it(tmp_path: Path) -> None:
    assert (
        run(["jobs", "status", "job-none"], "2>&-", tmp_path).returncode
        == run(["jobs", "status", "job-none"], "", tmp_path).returncode
    )
    assert run(["nonsense"], ">&- 2>&-", tmp_path).returncode == 2


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
@pytest.mark.parametrize("call", [_CALLS[0], _CALLS[1], ["config"]], ids=" ".join)
def test_a_full_disk_is_named_as_what_it_is(call: list[str], tmp_path: Path) -> None:
    done = run(call, ">/dev/full", tmp_path)
    assert done.returncode == 4
    assert "standard output can't be written: No space left on device" in done.stderr
    assert len(done.stderr.splitlines()) == 1

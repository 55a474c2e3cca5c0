"""`kinetic run`: as a driver in this interpreter, and the way to a job; no cluster."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kinetic_ray.cli.main import root
from kinetic_ray.core.state import JobStatus
from kinetic_ray.journal import JobJournal, list_entries
from kinetic_ray.payload import load_call
from kinetic_ray.store import open_store
from tests.screen import Screen, run_in_terminal
from tests.unit.cli_jobs import BACKEND, Recorder

DRIVER = """
import json, os, sys
import sibling
print(json.dumps([sys.argv, __name__, sibling.NAME, os.environ["KINETIC_STORE"], sys.executable]))
sys.exit(int(sys.argv[1]))
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a script, its sibling, and a store; jobs are taken and not run."""
    monkeypatch.setenv("KINETIC_STORE", str(tmp_path / "store"))
    monkeypatch.setenv("KINETIC_BACKEND", BACKEND)
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "pyproject.toml").touch()
    (folder / "script.py").write_text(DRIVER)
    (folder / "sibling.py").write_text("NAME = 'sibling'")
    monkeypatch.chdir(folder)
    return folder


def kinetic(*args: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "kinetic_ray", *args]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def invoke(*args: str) -> Result:
    return CliRunner().invoke(root, args)


@pytest.mark.parametrize("code", [0, 1, 7])
def test_a_script_without_a_flag_is_a_driver_here_and_its_exit_code_is_ours(project: Path, code: int) -> None:
    done = kinetic("run", "script.py", "--", str(code), "--lr", "0.1", "--", "x")
    assert done.returncode == code
    argv, name, sibling, store, python = json.loads(done.stdout)
    assert argv == ["script.py", str(code), "--lr", "0.1", "--", "x"]
    assert (name, sibling, store, python) == ("__main__", "sibling", os.environ["KINETIC_STORE"], sys.executable)


def test_a_driver_gets_signals_itself(project: Path) -> None:
    (project / "script.py").write_text("import os, signal; os.kill(os.getpid(), signal.SIGTERM)")
    assert kinetic("run", "script.py").returncode == -signal.SIGTERM


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (("nowhere.py",), "no such script"),
        ((".",), "folder"),
        (("script.py", "--lr", "1"), "after '--'"),
        (("script.py", "--detach"), "--accelerator"),
        (("script.py", "--tag", "a", "--num-slices", "2"), "--num-slices"),
        (("script.py", "-a", "tpu-v6e-17"), "tpu-v6e-16"),
        (("script.py", "-a", "cpu", "--timeout", "soon"), "timeout"),
        (("script.py", "-a", "tpu-v6e-16", "--hosts", "3"), "hosts"),
        (("script.py", "-a", "cpu", "--num-slices", "0"), "--num-slices"),
    ],
)
def test_what_cannot_be_right_is_refused_before_anything_is_made(
    project: Path, args: tuple[str, ...], told: str
) -> None:
    done = invoke("run", *args)
    assert (done.exit_code, told in done.stderr) == (2, True), done.stderr
    assert not (project.parent / "store").exists()


def test_a_detached_script_becomes_a_job_and_prints_its_id(project: Path) -> None:
    flags = ("--accelerator", "tpu-v6e-8", "--num-slices", "2", "--timeout", "2h", "--tag", "a", "--tag", "b")
    done = invoke("run", "script.py", *flags, "--name", "trial", "--detach", "--", "0", "--flag")
    assert done.exit_code == 0, done.stderr
    store = open_store(project.parent / "store")
    (entry,) = list_entries(store)
    assert done.stdout == f"{entry.job_id}\n"
    spec = JobJournal(store, entry.job_id).spec()
    assert (spec.accelerator, spec.num_slices, spec.timeout) == ("tpu-v6e-8", 2, 7200.0)
    assert (spec.name, spec.tags, spec.func_name) == ("trial", ("a", "b"), "script.py")
    _, args, _ = load_call(store.get_blob(spec.payload))
    assert args == ("script.py", ["0", "--flag"])


def test_a_detached_job_in_json(project: Path) -> None:
    document = json.loads(invoke("run", "script.py", "-a", "cpu", "-d", "--json", "--", "0").stdout)
    assert (document["status"], document["accelerator"]) == ("PENDING", "cpu")
    assert document["job_id"].startswith("job-")


def test_variables_are_passed_on_by_name(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    job_id = invoke("run", "script.py", "-a", "cpu", "-d", "--capture-env", "WANDB_*", "--", "0").stdout.strip()
    journal = JobJournal(open_store(project.parent / "store"), job_id)
    assert journal.env(journal.spec()) == {"WANDB_MODE": "offline"}


def test_ctrl_c_in_a_terminal_leaves_words_and_no_display(project: Path) -> None:
    command = [sys.executable, "-m", "kinetic_ray", "run", "script.py", "-a", "cpu", "--", "0"]
    code, written = run_in_terminal(command, interrupt_at="[queue]")
    screen = Screen(100)
    screen.feed(written.replace("^C", ""))
    rows = screen.text()
    (entry,) = list_entries(open_store(project.parent / "store"))
    assert code == 130
    assert [row for row in rows if "[queue]" in row] == []
    assert f"{entry.job_id} goes on without you." in rows
    assert any(f"kinetic jobs cancel {entry.job_id}" in row for row in rows)
    assert rows[-1] == "kinetic: interrupted"


def test_a_terminal_is_shown_no_markup_and_no_foreign_control_codes(project: Path) -> None:
    nasty = b"[red]x[/red] [/path]\n\x1b[2J\x1b]0;title\x07safe \x1b[31mred\x1b[0m\n"
    job = Recorder(open_store(project.parent / "store")).succeeded(func_name="[bold]f", logs={0: nasty})
    for command in (["logs", job.job_id], ["logs", "-f", job.job_id]):
        code, written = run_in_terminal([sys.executable, "-m", "kinetic_ray", "jobs", *command])
        screen = Screen(100)
        screen.feed(written)
        assert (code, screen.text()) == (0, ["[red]x[/red] [/path]", "safe red"])
        assert "\x1b[31m" in written


def test_a_table_on_a_terminal_keeps_ids_whole(project: Path) -> None:
    job = Recorder(open_store(project.parent / "store")).succeeded(name="[red]n", logs={})
    code, written = run_in_terminal([sys.executable, "-m", "kinetic_ray", "jobs", "list"], columns=70)
    assert code == 0
    assert job.job_id in written
    assert "SUCCEEDED" in written


@pytest.mark.parametrize("no_color", ["1", ""])
def test_no_color_is_respected(project: Path, no_color: str) -> None:
    Recorder(open_store(project.parent / "store")).succeeded(logs={0: b"\x1b[31mred\x1b[0m\n"})
    env = {**os.environ, "NO_COLOR": no_color, "TERM": "xterm-256color"}
    for words in (("list",), ("logs", "latest")):
        _, written = run_in_terminal([sys.executable, "-m", "kinetic_ray", "jobs", *words], env=env)
        assert ("\x1b[3" in written) == (not no_color)
    assert JobStatus.SUCCEEDED in run_in_terminal([sys.executable, "-m", "kinetic_ray", "jobs", "list"], env=env)[1]

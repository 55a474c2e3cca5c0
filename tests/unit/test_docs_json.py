"""docs/cli.md shows of every JSON document just the keys that the command gives, and lines as they are printed."""

import io
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from kinetic_ray.cli.main import root
from kinetic_ray.core.state import Event, EventKind, JobState, JobStatus, Progress, RankPhase, RankState, Stage
from kinetic_ray.log_writer import LogWriter
from kinetic_ray.store import open_store
from kinetic_ray.ui import LiveReporter, Subject
from tests.unit.cli_jobs import BACKEND, Recorder

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "cli.md").read_text(encoding="utf-8")
SECTION = PAGE.partition("\n## JSON\n")[2].partition("\n## ")[0]
WORD = re.compile(r"`([a-z_]+)`")
#: Values of these are the user's, or one for each of something: their keys are no promise.
FREE = ("metrics", "env", "value")


def _cells() -> dict[str, str]:
    """For each command of the table the words about its document."""
    table = SECTION.partition("\nA job:\n")[0]
    rows = [line.strip("|").split(" | ", 1) for line in table.splitlines() if line.startswith("| `")]
    return {command: told for label, told in rows for command in re.findall(r"`([a-z][a-z -]+)`", label)}


def keys_told(label: str) -> set[str]:
    """The keys that the page tells of a command's document."""
    return set(WORD.findall(_cells()[label]))


def _job_keys() -> set[str]:
    """Of the table of a job."""
    return set(WORD.findall(SECTION.partition("\nA job:\n")[2]))


def _keys(document: Any) -> Iterator[str]:
    if isinstance(document, list):
        for each in document:
            yield from _keys(each)
    elif isinstance(document, dict):
        for key, value in document.items():
            yield key
            if key not in FREE:
                yield from _keys(value)


class Command:
    """Runs commands over a store with a job of every kind."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.record = Recorder(open_store(folder / "store"))
        self.record.succeeded(1)
        self.record.failed(2)
        running = self.record.running(3)
        report = {"step": 5, "total": 10, "metrics": {"loss": 0.5}}
        self.running = running.job_id
        self.record.drivers[self.running].append(Event(EventKind.PROGRESSED, 1.7e9, report))
        self.done = self.record.succeeded(4).job_id

    def document(self, *args: str) -> Any:
        return json.loads(CliRunner().invoke(root, [*args, "--json"]).stdout)

    def __call__(self, *args: str) -> set[str]:
        return set(_keys(self.document(*args)))

    def jobs(self, *commands: str) -> set[str]:
        return {key for words in commands for key in self("jobs", *words.split())}

    def project(self) -> str:
        (self.folder / "pyproject.toml").touch()
        (self.folder / "train.py").write_text("print(1)\n")
        (self.folder / ".env").write_text("A=1\n")
        return str(self.folder / "train.py")

    def ship(self) -> set[str]:
        """Of a project that a job was sent before."""
        project = self.project()
        CliRunner().invoke(root, ["run", project, "--accelerator", "cpu", "--detach"])
        return self("ship", project)

    def secret(self) -> set[str]:
        CliRunner().invoke(root, ["secret", "set", "hf"], input="token\n")
        return self("secret", "list")


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    for name, value in (("HOME", tmp_path / "home"), ("STORE", tmp_path / "store"), ("BACKEND", BACKEND)):
        monkeypatch.setenv(f"KINETIC_{name}", str(value))
    return Command(tmp_path)


def _profiles(command: Command, *words: str) -> set[str]:
    command("profile", "create", "mine", "--store", "runs")
    return command("profile", *words)


MADE: dict[str, Callable[[Command], set[str]]] = {
    "jobs list": lambda of: set(of.document("jobs", "list")),
    "jobs logs": lambda of: of.jobs("logs latest"),
    "jobs result": lambda of: of.jobs("result latest", f"result latest --output {of.folder / 'value.pkl'}"),
    "jobs cancel": lambda of: of.jobs(f"cancel {of.running}"),
    "jobs cleanup": lambda of: of.jobs(f"cleanup {of.done}"),
    "accelerators": lambda of: of("accelerators"),
    "local stop": lambda of: of("local", "stop"),
    "config": lambda of: of("config"),
    "profile create": lambda of: of("profile", "create", "mine", "--store", "runs"),
    "profile show": lambda of: _profiles(of, "show"),
    "profile use": lambda of: _profiles(of, "use", "mine"),
    "profile list": lambda of: set(of.document("profile", "list")),
    "profile unset": lambda of: _profiles(of, "unset") | {"removed"},
    "profile remove": lambda of: _profiles(of, "remove", "mine"),
    "secret list": lambda of: of.secret(),
    "ship": lambda of: of.ship(),
    "doctor": lambda of: of("doctor"),
}
#: Of these only a cluster knows the document: see the tests of the command line on one.
WITH_A_CLUSTER = {"run", "local status", "local status --env", "local preempt"}


def test_every_command_that_has_a_document_is_looked_at() -> None:
    assert set(_cells()) == {*MADE, *WITH_A_CLUSTER, "jobs status"}


@pytest.mark.parametrize("label", MADE)
def test_the_page_shows_the_keys_that_a_command_gives_and_no_other(command: Command, label: str) -> None:
    assert keys_told(label) == MADE[label](command)


def test_the_page_shows_the_keys_of_a_job_and_no_other(command: Command) -> None:
    listed = set(_keys(command.document("jobs", "list")["jobs"]))
    assert command.jobs("status latest") | listed == _job_keys()
    assert _job_keys() - listed == {"outputs"}


def test_the_error_that_the_page_shows_is_the_one_that_is_given(command: Command) -> None:
    [block] = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
    shown = json.loads(block)["error"]
    done = CliRunner().invoke(root, ["jobs", "status", "x", "--json"])
    given = json.loads(done.stderr)["error"]
    assert set(shown) == set(given)
    assert (shown["type"], shown["exit_code"]) == (given["type"], done.exit_code)
    assert given["message"].startswith(shown["message"].removesuffix("..."))


def test_the_lines_on_a_terminal_are_those_that_the_page_shows() -> None:
    [block] = re.findall(r"```text\n(queue > .*?)```", PAGE, re.DOTALL)
    stages, bar = block.splitlines()
    out, now = io.StringIO(), [0.0]
    subject = Subject("job-01k8nhaksafgvq5i24sqlu9460", "train.py", "tpu-v6e-16")
    reporter = LiveReporter(subject, LogWriter(out), out, color=False, clock=lambda: now[0])
    ranks = tuple(RankState(rank, phase=RankPhase.CALL) for rank in range(4))
    for at, step in ((10.0, 13), (20.0, 84), (22.0, 84)):  # 71 steps in ten seconds
        now[0] = at
        progress = Progress(step, 200, {"loss": 0.31}, at if step < 84 else 20.0)
        reporter.show(JobState(JobStatus.RUNNING, Stage.RUN, ranks=ranks, progress=progress))
    *_, drawn, last = re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", out.getvalue()).replace("\r", "\n").strip("\n").split("\n")
    assert drawn.startswith(stages.removesuffix("..."))
    assert last == bar

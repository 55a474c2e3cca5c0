"""The root command: what it loads, its help, its exit codes, the shell's completion."""

import json
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from kinetic_ray import errors
from kinetic_ray.cli.exits import MEANINGS, ExitCode, Refusal, code_of, describe
from kinetic_ray.cli.main import COMMANDS, root
from kinetic_ray.core.state import JobStatus
from kinetic_ray.store import open_store
from tests.unit.cli_jobs import Recorder

HEAVY = (
    "ray",
    "jax",
    "google",
    "kubernetes",
    "numpy",
    "fsspec",
    "rich",
    "cloudpickle",
    "psutil",
    "asyncio",
    "filelock",
)
MOST_MODULES = 180  # beyond a bare interpreter's; 130 when this was written, most of them click's and the library's


def every_command() -> list[tuple[str, ...]]:
    """All commands and groups by their words."""
    context = click.Context(root)
    found: list[tuple[str, ...]] = [()]
    for name in COMMANDS:
        command = root.get_command(context, name)
        found.append((name,))
        if isinstance(command, click.Group):
            found += [(name, sub) for sub in command.commands]
    return found


def modules_after(*args: str) -> set[str]:
    """What a run of the command line has loaded, beyond a bare interpreter."""
    script = "import sys, json; before = set(sys.modules)\n"
    script += f"sys.argv = ['kinetic', *{list(args)!r}]\n"
    script += "import contextlib, io\nfrom kinetic_ray.cli.main import main\n"
    script += "with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit): main()\n"
    script += "print(json.dumps(sorted(set(sys.modules) - before)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout))


def test_the_root_help_loads_nothing_heavy_and_no_command() -> None:
    loaded = modules_after("--help")
    assert not {name for name in loaded if name.split(".")[0] in HEAVY}
    assert not {name for name in loaded if name.startswith("kinetic_ray.cli.") and name.split(".")[2] in COMMANDS}
    assert len(loaded) <= MOST_MODULES, sorted(loaded)


@pytest.mark.parametrize("words", [words for words in every_command() if words], ids=" ".join)
def test_no_help_loads_ray_jax_or_rich(words: tuple[str, ...]) -> None:
    loaded = modules_after(*words, "--help")
    heavy = {name.split(".")[0] for name in loaded} & {"ray", "jax", "numpy", "rich", "fsspec", "cloudpickle"}
    assert heavy == set()


@pytest.mark.parametrize("words", every_command(), ids=lambda words: " ".join(words) or "root")
def test_every_command_has_help_and_every_option_a_line(words: tuple[str, ...]) -> None:
    done = CliRunner().invoke(root, [*words, "--help"], prog_name="kinetic")
    assert done.exit_code == 0
    assert done.stdout.startswith(f"Usage: {' '.join(('kinetic', *words))} ")
    command: click.Command | None = root
    for word in words:
        assert isinstance(command, click.Group)
        command = command.get_command(click.Context(command), word)
    assert command is not None
    assert command.help
    assert all(option.help for option in command.params if isinstance(option, click.Option))


def test_the_lines_of_the_root_help_are_those_of_the_commands() -> None:
    context = click.Context(root)
    for name, (_, line) in COMMANDS.items():
        command = root.get_command(context, name)
        assert command is not None
        assert command.get_short_help_str(200) == line


def test_the_root_help_lists_every_exit_code() -> None:
    text = CliRunner().invoke(root, ["--help"]).stdout
    assert all(f"{int(code):>3}  {MEANINGS[code]}" in text for code in ExitCode)


def test_python_m_is_the_same_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "kinetic_ray", "--version"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0
    assert done.stdout.startswith("kinetic, version ")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.UsageError("x"), 2),
        (errors.ConfigError("x"), 4),
        (errors.StoreError("x"), 4),
        (errors.DataError("x"), 4),
        (errors.PayloadError("x"), 4),
        (errors.SubmissionError("x"), 4),
        (errors.JobFailed("x"), 1),
        (errors.JobLost("x"), 1),
        (errors.JobCancelled("x"), 1),
        (errors.JobTimeout("x"), 1),
        (TimeoutError("x"), 124),
        (OSError(13, "denied"), 4),
        (KeyboardInterrupt(), 130),
        (click.Abort(), 130),
        (click.UsageError("x"), 2),
        (Refusal("x", ExitCode.NOT_FOUND), 3),
        (ZeroDivisionError("x"), 70),
    ],
)
def test_every_error_has_its_exit_code_and_both_forms(error: BaseException, code: int) -> None:
    assert code_of(error) == code
    document = json.loads(describe(error, as_json=True, debug=False))["error"]
    assert document["exit_code"] == code
    assert document["message"]
    text = describe(error, as_json=False, debug=False)
    assert text.startswith("kinetic: ")
    assert "Traceback" not in text
    assert len(text.splitlines()) <= 2


def test_a_job_error_names_the_job_for_programs() -> None:
    error = errors.JobFailed("it failed", job_id="job-1", reason="UserError")
    document = json.loads(describe(error, as_json=True, debug=False))["error"]
    assert (document["type"], document["job_id"], document["reason"]) == ("JobFailed", "job-1", "UserError")


def test_debug_shows_the_traceback() -> None:
    with pytest.raises(errors.ConfigError) as caught:
        raise errors.ConfigError("broken")
    assert "Traceback" in describe(caught.value, as_json=False, debug=True)
    assert "Traceback" in json.loads(describe(caught.value, as_json=True, debug=True))["error"]["traceback"]


def test_messages_carry_no_control_codes() -> None:
    assert "\x1b" not in describe(errors.JobFailed("bad \x1b[2J\x1b]0;t\x07 batch"), as_json=False, debug=False)


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (("job", "list"), "'jobs'"),
        (("frobnicate",), "There are:"),
        (("jobs", "lst"), "lst"),
        (("jobs", "list", "--sate", "RUNNING"), "--state"),
        (("jobs", "status"), "JOB"),
        (("jobs", "list", "extra"), "extra"),
        (("accelerators", "--family", "v99"), "v6e"),
    ],
)
def test_wrong_usage_is_2_with_a_hint(args: tuple[str, ...], told: str) -> None:
    done = CliRunner().invoke(root, args)
    assert (done.exit_code, done.stdout) == (2, "")
    assert told in done.stderr
    document = json.loads(CliRunner().invoke(root, [*args, "--json"]).stderr)
    assert document["error"]["exit_code"] == 2


@pytest.mark.parametrize("args", [(), ("jobs",), ("local",)])
def test_a_group_alone_shows_its_help_as_wrong_usage(args: tuple[str, ...]) -> None:
    done = CliRunner().invoke(root, args)
    assert done.exit_code == 2
    assert "Usage:" in done.stderr


def test_accelerators_are_listed_and_their_json_is_stable() -> None:
    rows = json.loads(CliRunner().invoke(root, ["accelerators", "--json"]).stdout)["accelerators"]
    v6e = next(row for row in rows if row["name"] == "tpu-v6e-16")
    assert list(v6e) == [
        *("name", "kind", "family", "chips", "topology", "hosts", "chips_per_host", "cpus", "pod_type", "ray_version"),
        *("ray_type", "gke_label", "machine_type", "gcp_name"),
    ]
    text = CliRunner().invoke(root, ["accelerators", "--family", "V4"]).stdout
    assert "v4-16" in text  # GCP's name of tpu-v4-8
    assert "v6e" not in text


def test_a_reader_that_has_seen_enough_gets_no_traceback() -> None:
    command = f"{sys.executable} -m kinetic_ray accelerators --json | head -c 10"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ('{"accelera', "")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_shell_completes_job_ids(shell: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = Recorder(open_store(tmp_path)).succeeded()
    monkeypatch.setenv("KINETIC_STORE", str(tmp_path))
    monkeypatch.setenv("_KINETIC_COMPLETE", f"{shell}_complete")
    monkeypatch.setenv("COMP_WORDS", "kinetic jobs result job-")
    monkeypatch.setenv("COMP_CWORD", "3" if shell != "fish" else "job-")
    done = subprocess.run([sys.executable, "-m", "kinetic_ray"], capture_output=True, text=True, check=False)
    assert job.job_id in done.stdout, done.stderr
    assert JobStatus.SUCCEEDED in done.stdout or shell == "bash"


def test_completion_is_silent_where_there_is_no_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KINETIC_STORE", str(tmp_path / "nowhere"))
    monkeypatch.setenv("_KINETIC_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", "kinetic jobs result x")
    monkeypatch.setenv("COMP_CWORD", "3")
    done = subprocess.run([sys.executable, "-m", "kinetic_ray"], capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.stderr) == ("", "")


PAGE = (Path(__file__).resolve().parents[2] / "docs" / "cli.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("words", [words for words in every_command() if words], ids=" ".join)
def test_the_page_of_the_command_line_shows_every_command(words: tuple[str, ...]) -> None:
    command = root.get_command(click.Context(root), words[0])
    assert (isinstance(command, click.Group) and len(words) == 1) or f"kinetic {' '.join(words)}" in PAGE


def test_the_page_of_the_command_line_lists_every_key_and_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Recorder(open_store(tmp_path)).succeeded()
    monkeypatch.setenv("KINETIC_STORE", str(tmp_path))
    job = json.loads(CliRunner().invoke(root, ["jobs", "status", "latest", "--json"]).stdout)
    keys = {*job, *job["hosts"][0]}
    for words in ("result latest", "logs latest", "cleanup latest", "list"):
        keys |= set(json.loads(CliRunner().invoke(root, ["jobs", *words.split(), "--json"]).stdout))
    accelerators = json.loads(CliRunner().invoke(root, ["accelerators", "--json"]).stdout)["accelerators"]
    assert [key for key in (*keys, *accelerators[0]) if f"`{key}`" not in PAGE] == []
    assert [code for code in ExitCode if f"| {int(code)} |" not in PAGE] == []

"""`kinetic profile`, `kinetic config`, `--profile`, and what a shell completes."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from kinetic_ray.cli.main import root
from kinetic_ray.settings import SETTINGS
from kinetic_ray.store import open_store
from tests.unit.cli_jobs import BACKEND, Recorder


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KINETIC_HOME", str(tmp_path))
    return tmp_path


def invoke(*args: str) -> Result:
    return CliRunner().invoke(root, args)


def answered(*args: str) -> Any:
    done = invoke(*args, "--json")
    assert done.exit_code == 0, done.stderr
    return json.loads(done.stdout)


def test_a_profiles_life(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(home)
    made = answered("profile", "create", "mine", "--store", "runs")
    assert (made["name"], made["current"], made["store"], made["unknown"]) == ("mine", True, str(home / "runs"), [])
    assert answered("profile", "create", "team", "--store", "memory://x", "--backend", BACKEND)["current"] is False
    assert answered("profile", "use", "team")["current"] is True
    assert answered("profile", "show")["name"] == "team"
    assert answered("profile", "show", "mine")["store"] == str(home / "runs")
    listed = answered("profile", "list")
    assert listed == answered("profile", "ls")
    assert (listed["file"], listed["current"]) == (str(home / "profiles.json"), "team")
    assert [each["name"] for each in listed["profiles"]] == ["mine", "team"]
    text = invoke("profile", "list").stdout.splitlines()
    assert [line.split()[:2] for line in text[1:]] == [["mine", "-"], ["*", "team"]]
    assert answered("profile", "unset") == {"current": None}
    assert answered("profile", "rm", "team", "-y") == {"removed": "team", "current": None}
    assert invoke("profile", "remove", "mine").exit_code == 0
    assert "no profiles in" in invoke("profile", "list").stderr


@pytest.mark.parametrize(
    ("args", "code", "told"),
    [
        (("create", "a"), 2, "give at least one of --backend, --store"),
        (("create", "a b", "--store", "x"), 2, "can't be a profile's name"),
        (("create", "a", "--sotre", "x"), 2, "--store"),
        (("create", "a", "--local-slices", "two"), 4, "it is no JSON"),
        (("create", "a", "--local-slices", '{"tpu-v6e-7": 1}'), 4, "tpu-v6e-7"),
        (("create", "a", "--backend", "locl"), 4, "--backend='locl': no such backend; did you mean 'local'?"),
        (("create", "a", "--backend", "kuberay"), 4, "not available yet"),
        (("create", "mine", "--store", "x"), 2, "--force"),
        (("use", "mien"), 4, "did you mean 'mine'?"),
        (("show", "mien"), 4, "did you mean 'mine'?"),
        (("remove", "mien"), 4, "did you mean 'mine'?"),
        (("lst",), 2, "lst"),
    ],
)
def test_what_is_refused_changes_nothing(home: Path, args: tuple[str, ...], code: int, told: str) -> None:
    answered("profile", "create", "mine", "--store", "x")
    before = (home / "profiles.json").read_bytes()
    done = invoke("profile", *args)
    assert (done.exit_code, done.stdout) == (code, "")
    assert told in done.stderr
    assert (home / "profiles.json").read_bytes() == before


def test_a_profile_of_a_cluster_says_where_its_jobs_run_now(home: Path) -> None:
    done = invoke("profile", "create", "gke", "--project", "p", "--zone", "z", "--cluster", "c", "--namespace", "n")
    assert (done.exit_code, "jobs run on this machine" in done.stderr) == (0, True)


def test_the_flag_chooses_the_profile_for_one_command(home: Path) -> None:
    job = Recorder(open_store(home / "other")).succeeded()
    answered("profile", "create", "mine", "--store", str(home / "mine"))
    answered("profile", "create", "other", "--store", str(home / "other"))
    assert [each["job_id"] for each in answered("--profile", "other", "jobs", "list")["jobs"]] == [job.job_id]
    assert invoke("--profile", "mine", "jobs", "list", "--store", str(home / "other")).exit_code == 0
    refused = invoke("--profile", "othre", "jobs", "list")
    assert (refused.exit_code, "--profile 'othre': no such profile" in refused.stderr) == (4, True)
    assert answered("--profile", "new", "profile", "create", "new", "--store", "x")["name"] == "new"


def test_the_flag_reaches_a_script_that_runs_as_a_driver(home: Path) -> None:
    answered("profile", "create", "mine", "--store", str(home / "mine"))
    answered("profile", "unset")
    script = home / "script.py"
    script.write_text("from kinetic_ray import config\nprint(config.resolve().store_url)")
    command = [sys.executable, "-m", "kinetic_ray", "--profile", "mine", "run", str(script)]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == f"{home / 'mine'}\n"


def _rows(*args: str) -> dict[str, Any]:
    return {row["name"]: row for row in answered(*args)["settings"]}


def test_every_setting_is_shown_with_its_source_and_what_it_goes_before(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answered("profile", "create", "mine", "--store", "/from-profile", "--zone", "z")
    answered("profile", "create", "other", "--store", "/other")
    monkeypatch.setenv("KINETIC_STORE", "/from-env")
    monkeypatch.setenv("KINETIC_PROFILE", "other")
    rows = _rows("--profile", "mine", "config", "--explain")
    assert list(rows) == list(SETTINGS)
    assert (rows["store"]["value"], rows["store"]["source"]) == ("/from-env", "KINETIC_STORE")
    assert rows["store"]["beaten"] == [
        {"source": "profile 'mine'", "value": "/from-profile"},
        {"source": "default", "value": str(home / "store")},
    ]
    assert (rows["zone"]["value"], rows["zone"]["source"]) == ("z", "profile 'mine'")
    assert (rows["profile"]["value"], rows["profile"]["source"]) == ("mine", "--profile")
    assert [each["value"] for each in rows["profile"]["beaten"]] == ["other", "mine"]
    assert (rows["cluster"]["value"], rows["cluster"]["source"]) == ("kinetic-cluster", "default")
    assert (rows["output_dir"]["value"], rows["output_dir"]["source"]) == (None, "default")
    shown = invoke("--profile", "mine", "config", "show", "--explain").stdout
    [store] = [line for line in shown.splitlines() if line.startswith("store")]
    assert "profile 'mine': /from-profile; default: " in store
    assert "(any shape on demand)" in shown
    assert "/from-profile" not in invoke("config").stdout


def test_a_password_in_a_url_is_not_shown(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KINETIC_STORE", "s3://me:hunter2@host/bucket")
    done = invoke("config", "--explain")
    assert "s3://***@host/bucket" in done.stdout
    assert "hunter2" not in done.stdout + invoke("config", "--json").stdout


def test_a_token_in_a_url_is_not_shown(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KINETIC_STORE", "https://host/bucket?sig=hunter2")
    done = invoke("config", "--explain")
    assert "https://host/bucket?***" in done.stdout
    assert "hunter2" not in done.stdout + invoke("config", "--json").stdout


def test_what_looks_like_a_setting_is_named(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KINETIC_STOER", "x")
    monkeypatch.setenv("KINETIC_LOG_LEVEL", "x")
    told = answered("config")["unknown"]
    assert told == [
        "KINETIC_STOER is set, but there is no such setting; did you mean KINETIC_STORE?",
        "KINETIC_LOG_LEVEL is keras-team/kinetic's, and means nothing here",
    ]
    done = invoke("config")
    assert [line for line in told if line not in done.stderr] == []


# Completion.


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("kinetic ", "profile"),
        ("kinetic conf", "config"),
        ("kinetic jobs result job-", "job-"),
        ("kinetic --profile other jobs result job-", "job-"),
        ("kinetic jobs list --state SUC", "SUCCEEDED"),
        ("kinetic run -a tpu-v6e-1", "tpu-v6e-16"),
        ("kinetic run --accelerator v6e", "tpu-v6e-16"),
        ("kinetic run -a cp", "cpu"),
        ("kinetic profile use ot", "other"),
        ("kinetic --profile ot", "other"),
        ("kinetic local preempt ", ""),
    ],
)
def test_completion_offers_values_and_imports_nothing_heavy(
    home: Path, monkeypatch: pytest.MonkeyPatch, words: str, offered: str
) -> None:
    Recorder(open_store(home / "store")).succeeded()
    Recorder(open_store(home / "other")).succeeded()
    answered("profile", "create", "other", "--store", str(home / "other"))
    answered("profile", "unset")
    monkeypatch.setenv("_KINETIC_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(len(words.split(" ")) - 1))
    command = [sys.executable, "-X", "importtime", "-m", "kinetic_ray"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert offered in done.stdout, done.stderr
    loaded = {line.split("|")[-1].strip().partition(".")[0] for line in done.stderr.splitlines()}
    assert "kinetic_ray" in loaded
    assert not {"ray", "jax", "numpy", "rich", "fsspec", "cloudpickle", "kubernetes", "google"} & loaded


def test_completion_is_silent_where_the_profiles_are_broken(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "profiles.json").write_text("{")
    monkeypatch.setenv("_KINETIC_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", "kinetic profile use x")
    monkeypatch.setenv("COMP_CWORD", "3")
    done = subprocess.run([sys.executable, "-m", "kinetic_ray"], capture_output=True, text=True)
    assert (done.stdout.strip(), done.stderr) == ("", "")

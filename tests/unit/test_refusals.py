"""What a call is refused for before anything of it is made, and what of the environment it takes."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import kinetic_ray as kinetic
from kinetic_ray import config
from kinetic_ray.config import Target
from kinetic_ray.core.env_vars import check_env_size
from kinetic_ray.core.extras import EXTRAS, install_hint
from kinetic_ray.jobs.refusals import output_dir_of
from kinetic_ray.options import check_options
from kinetic_ray.runner.zygote import import_trouble
from kinetic_ray.store import open_store

LOCAL = Target("local", "/unused", Path("/unused"))
THREADS = "kinetic_ray.testing.thread_backend:ThreadBackend"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store of the test's own, for the local backend; nothing is to appear in it."""
    monkeypatch.setenv("KINETIC_STORE", str(tmp_path / "store"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


REMOTE = ["gs://bucket/runs", "hf://buckets/me/runs", "s3://bucket", "memory://x"]


@pytest.mark.parametrize("url", REMOTE)
@pytest.mark.parametrize("source", ["output_dir=", "KINETIC_OUTPUT_DIR="])
def test_outputs_that_would_be_lost_are_refused(
    place: Path, monkeypatch: pytest.MonkeyPatch, url: str, source: str
) -> None:
    given: dict[str, Any] = {"output_dir": url}
    if source != "output_dir=":
        given = {}
        monkeypatch.setenv("KINETIC_OUTPUT_DIR", url)
    with pytest.raises(kinetic.UsageError) as caught:
        kinetic.remote(**given)(sorted).run_async([1])
    for told in (f"{source}{url!r}", "would be lost", "a local path, or leave it out"):
        assert told in str(caught.value)
    assert list(place.iterdir()) == []


@pytest.mark.parametrize(
    ("given", "env", "expected"),
    [
        (None, None, None),
        (None, "", None),
        (None, "runs", "{cwd}/runs"),
        ("runs", "elsewhere", "{cwd}/runs"),
        ("/abs/runs", "gs://bucket", "/abs/runs"),
        ("~/runs", None, "{cwd}/runs"),
        ("file:///abs/my%20runs", None, "/abs/my runs"),
        (None, "file://localhost/abs", "/abs"),
    ],
)
def test_folders_and_file_urls_are_paths(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str | None, env: str | None, expected: str | None
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    if env is not None:
        monkeypatch.setenv("KINETIC_OUTPUT_DIR", env)
    found = output_dir_of(check_options({"output_dir": given}), LOCAL)
    assert found == (expected and expected.format(cwd=tmp_path))


def test_a_file_url_of_another_machine_names_its_option() -> None:
    with pytest.raises(kinetic.ConfigError, match="output_dir='file://host/x': a file URL has three slashes"):
        output_dir_of(check_options({"output_dir": "file://host/x"}), LOCAL)


def test_a_backend_of_ones_own_may_know_other_places() -> None:
    target = Target("my.module:Backend", "/unused", Path("/unused"))
    assert output_dir_of(check_options({"output_dir": "gs://bucket/x"}), target) == "gs://bucket/x"


# Inside a job.


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"KINETIC_OUTPUT_DIR": "/mine"}, "/mine"),
        ({"KINETIC_OUTPUT_DIR": "/parents", "KINETIC_JOB_ID": "job-1"}, None),
        ({"KINETIC_JOB_ID": "job-1"}, None),
    ],
)
def test_a_job_in_a_job_does_not_inherit_its_outputs(environ: dict[str, str], expected: str | None) -> None:
    assert config.output_dir(environ) == expected


def test_a_call_inside_a_job_has_outputs_of_its_own(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For when jobs may start jobs: a child's KINETIC_OUTPUT_DIR is its own place, no setting."""
    monkeypatch.setenv("KINETIC_OUTPUT_DIR", str(place / "parents"))
    monkeypatch.setenv("KINETIC_JOB_ID", "job-0000000000e008000000000000")
    assert output_dir_of(check_options({}), LOCAL) is None
    assert output_dir_of(check_options({"output_dir": "mine"}), LOCAL) == str(place / "mine")


# What is not installed.


def test_a_runtime_that_is_not_installed_is_refused_in_one_line(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jax", None)  # as Python says that there is none
    for accelerator in ("cpu", "tpu-v6e-16"):
        with pytest.raises(kinetic.ConfigError) as caught:
            kinetic.remote(accelerator=accelerator, runtime="jax")(sorted).run_async([1])
        assert "runtime='jax'" in str(caught.value)
        assert "pip install 'kinetic-ray[jax]'" in str(caught.value)
        assert "\n" not in str(caught.value)
    assert list(place.iterdir()) == []


@pytest.mark.parametrize(("there", "runtime"), [(True, "jax"), (False, "plain")])
def test_auto_takes_what_there_is(
    place: Path, monkeypatch: pytest.MonkeyPatch, kinetic_home: Path, there: bool, runtime: str
) -> None:
    if there:
        pytest.importorskip("jax")
    else:
        monkeypatch.setitem(sys.modules, "jax", None)
    spec = kinetic.remote(accelerator="tpu-v6e-8", backend=THREADS)(sorted).run_async([1]).spec
    assert spec.runtime == runtime


def test_a_host_that_lacks_the_runtime_says_the_same() -> None:
    told = import_trouble(ModuleNotFoundError("No module named 'jax'", name="jax"))
    assert told == "ModuleNotFoundError: No module named 'jax': pip install 'kinetic-ray[jax]'"
    assert "pip" not in import_trouble(ImportError("cannot import name 'x' from 'jax'", name="jax"))
    assert "pip" not in import_trouble(ModuleNotFoundError("No module named 'mine'", name="mine"))


@pytest.mark.parametrize("captured", [True, False])
@pytest.mark.parametrize(
    ("variables", "told"),
    [
        ({"DATA_A": "x" * 2**17}, r"'DATA_A': 131080 bytes with its name, Linux allows 131072; .*argument"),
        ({f"DATA_{n:02d}": "x" * 2**16 for n in range(30)}, r"30 environment variables have \d+ bytes.*'DATA_00'"),
    ],
)
def test_variables_that_no_process_could_start_with_are_refused(
    place: Path, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], told: str, captured: bool
) -> None:
    given: dict[str, Any] = {"env_vars": variables}
    if captured:
        given = {"capture_env_vars": ["DATA_*"]}
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
    with pytest.raises(kinetic.UsageError, match=told):
        kinetic.remote(**given)(sorted).run_async([1])
    assert list(place.iterdir()) == []


def test_a_process_can_start_with_the_longest_variable_that_is_let_through() -> None:
    longest = {"DATA": "x" * (2**17 - len("DATA=") - 1)}
    check_env_size(longest)
    assert subprocess.run(["/bin/true"], env=longest).returncode == 0
    longer = {"DATA": longest["DATA"] + "x"}
    with pytest.raises(kinetic.UsageError):
        check_env_size(longer)


def test_hints_name_extras_that_exist() -> None:
    text = (Path(__file__).resolve().parents[2] / "pyproject.toml").read_text()
    block = text.partition("[project.optional-dependencies]")[2].partition("\n[")[0]
    assert set(EXTRAS.values()) <= set(re.findall(r"^(\w+) = ", block, re.MULTILINE))
    assert (install_hint("google.auth"), install_hint("numpy"), install_hint(None)) == (
        "pip install 'kinetic-ray[gcs]'",
        "",
        "",
    )


@pytest.mark.parametrize("url", ["hf://buckets/me"])
def test_stores_of_later_versions_promise_nothing(url: str) -> None:
    with pytest.raises(kinetic.ConfigError, match=r"come with a later version.*Use a folder's path"):
        open_store(url)

"""`kinetic ship`: its listing is what a call sends, and says why."""

import importlib
import io
import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from kinetic_ray.bundle import find_project
from kinetic_ray.bundle.survey import project_at, survey
from kinetic_ray.cli.main import root as command

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "cli.md").read_text(encoding="utf-8")


def write(root: Path, files: dict[str, str]) -> Path:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return root


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with something of each kind; the working folder."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(elsewhere))
    monkeypatch.setenv("KINETIC_HOME", str(tmp_path / "home"))
    root = write(
        tmp_path / "project",
        {
            "pyproject.toml": "",
            "train.py": "import work",
            "work.py": "x = 1  # a longer file than the others",
            ".env": "TOKEN=1",
            ".gitignore": "*.log\n_version.py\n",
            "run.log": "x" * 5000,
            "_version.py": "v = 1",
            "venv/pyvenv.cfg": "",
            "venv/lib/big.so": "x" * 9000,
            "__pycache__/train.pyc": "x",
        },
    )
    (root / "latest").symlink_to("work.py")
    (root / "settings").symlink_to(".env")
    monkeypatch.chdir(root)
    return root


def invoke(*args: str) -> Result:
    return CliRunner().invoke(command, ["ship", *args])


def listed(*args: str) -> Any:
    done = invoke(*args, "--json")
    assert done.exit_code == 0, done.stderr
    return json.loads(done.stdout)


def names_in(data: bytes) -> set[str]:
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        return {member.name for member in archive if not member.isdir()}


def test_what_is_listed_is_what_a_call_sends(project: Path) -> None:
    bundle = find_project(print, project / "train.py").build()
    assert bundle is not None
    found = listed("--list", "train.py")
    assert {each["name"] for each in found["sent"]} == names_in(bundle.data)
    assert found["bytes"] == sum(each["size"] for each in found["sent"])
    assert (found["files"], found["root"], found["cwd"]) == (len(found["sent"]), str(project), ".")
    assert found["why_root"] == "it holds pyproject.toml"


def test_everything_is_listed_with_size_and_reason_the_largest_first(project: Path) -> None:
    found = listed("--list")
    assert [(each["name"], each["why"]) for each in found["sent"]] == [
        ("work.py", "in the project"),
        (".gitignore", "in the project"),
        ("train.py", "in the project"),
        ("latest", "a link to work.py"),
        ("pyproject.toml", "in the project"),
        ("settings", "a link to .env, which is left out"),
    ]
    assert [tuple(each.values()) for each in found["left_out"]] == [
        ("venv/", 9000, "an environment: it holds pyvenv.cfg", "environment"),
        ("run.log", 5000, ".gitignore line 1: *.log", "gitignore"),
        (".env", 7, "its name says that it holds keys or passwords", "secret"),
        (
            "_version.py",
            5,
            ".gitignore line 2: _version.py (a program that has loaded it sends it)",
            "gitignore",
        ),
        ("__pycache__/", 1, "a cache, or made by tools", "cache"),
    ]


def test_people_see_the_same_without_caches(project: Path) -> None:
    done = invoke()
    assert (done.exit_code, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0] == f"project: {project} (it holds pyproject.toml)"
    assert f"sent: 6 files, {listed()['bytes']} B" in lines
    for row in (["9.0", "kB", "venv/"], ["7", "B", ".env"], ["38", "B", "work.py"]):
        assert [line for line in lines if line.split()[: len(row)] == row], row
    assert "and 1 more of 1 B in all: --all shows them" in lines
    assert "__pycache__/" in invoke("--all").stdout


def test_a_small_secret_among_many_large_files_is_seen(project: Path) -> None:
    write(project, {f"{number}.log": "x" * 1000 for number in range(99)} | {f"{n}.dat": "x" for n in range(99)})
    text = invoke().stdout
    assert ".env " in text
    assert "and 73 more" in text  # 31 of 104 are shown
    assert ".env " in invoke("--all").stdout
    assert "98.log" in invoke("--all").stdout


def test_the_notice_says_what_the_listing_says(project: Path, caplog: pytest.LogCaptureFixture) -> None:
    survey(project_at(project))
    assert caplog.messages == []  # a listing has it in its rows
    find_project(print, project / "train.py").build()
    [line] = caplog.messages
    assert f".env in {project}" in line


@pytest.mark.parametrize(
    ("place", "why", "sent"),
    [
        ("marked/b/x.py", "it holds .git", ["b/x.py"]),
        ("plain/b/x.py", "the folder itself: no pyproject.toml, setup.py or .git in it or above", ["x.py"]),
        ("plain/b", "the folder itself: no pyproject.toml, setup.py or .git in it or above", ["x.py"]),
        ("home/x.py", "home, the temporary folder", ["x.py"]),
        ("home", "home, the temporary folder", []),
    ],
)
def test_why_the_root_is_the_root(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, why: str, sent: list[str]
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    names = ("marked/.git/HEAD", "marked/b/x.py", "plain/b/x.py", "home/x.py", "home/y.py")
    found = survey(project_at(write(tmp_path, dict.fromkeys(names, "")) / place))
    assert found.why_root.startswith(why)
    assert [item.name for item in found.sent] == sent


def test_the_variable_that_names_the_root(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write(project, {"deep/x.py": ""}) / "deep"
    monkeypatch.setenv("KINETIC_PACKAGE_ROOT", str(project))
    assert survey(project_at(folder)).why_root == "KINETIC_PACKAGE_ROOT names it"
    assert survey(project_at(folder)).root == project


def test_modules_from_elsewhere_are_listed_with_what_imports_them(project: Path, tmp_path: Path) -> None:
    tools = write(tmp_path / "tools", {"toolbox/__init__.py": "import deeper", "deeper.py": "", "unused.py": ""})
    write(project, {"train.py": "import json, work\ndef f():\n    import toolbox"})
    environ = {**os.environ, "PYTHONPATH": str(tools)}
    command = [sys.executable, "-m", "kinetic_ray", "ship", "--list", "train.py", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environ, cwd=project)
    found = {each["name"]: each["why"] for each in json.loads(done.stdout)["sent"] if "in the" not in each["why"]}
    outside = {name: why for name, why in found.items() if not why.startswith("a link")}
    assert outside == {
        ".kinetic_outside/toolbox/__init__.py": (
            f"from {tools}, where train.py imports toolbox (once the program has loaded it)"
        ),
        ".kinetic_outside/deeper.py": (
            f"from {tools}, where {tools}/toolbox/__init__.py imports deeper (once the program has loaded it)"
        ),
    }


def test_what_is_loaded_is_sent_although_git_ignores_it(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(project, {".gitignore": "kinetic_generated.py", "kinetic_generated.py": ""})
    monkeypatch.syspath_prepend(str(project))
    importlib.import_module("kinetic_generated")
    found = survey(project_at(project))
    sys.modules.pop("kinetic_generated")
    assert [item.why for item in found.sent if item.name == "kinetic_generated.py"] == [
        "loaded, although a .gitignore names it"
    ]
    assert "kinetic_generated.py" not in {item.name for item in found.left_out}


def test_packages_that_were_installed_into_the_project_are_sent_and_named(project: Path) -> None:
    write(project, {"vendor/six.py": "", "vendor/six-1.0.dist-info/METADATA": "Version: 1.0", "other/six.py": ""})
    found = {each["name"]: each["why"] for each in listed()["sent"]}
    told = "in the project; packages were installed into vendor/"
    assert found["vendor/six.py"] == found["vendor/six-1.0.dist-info/METADATA"] == told
    assert found["other/six.py"] == "in the project"


def test_too_much_is_listed_and_answered_with_no(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KINETIC_BUNDLE_LIMIT_MB", "1")
    write(project, {"data/big.bin": "x" * 2_000_000})
    done = invoke("--list", "--json")
    found = json.loads(done.stdout)
    assert done.exit_code == 1
    assert found["sent"][0]["name"] == "data/big.bin"
    assert "data/big.bin (2.0 MB)" in found["problem"]
    assert found["problem"] in done.stderr


def test_a_place_that_is_not_there_is_refused(project: Path) -> None:
    done = invoke("--list", "trian.py")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "trian.py: no such script or folder" in done.stderr


def test_names_are_shown_without_control_codes(project: Path) -> None:
    write(project, {"evil\x1b[2J.py": ""})
    assert "\x1b" not in invoke("--all").stdout


def test_the_page_lists_every_key(project: Path) -> None:
    found = listed()
    keys = {*found, *found["sent"][0], *found["left_out"][0]}
    row = next(line for line in PAGE.splitlines() if line.startswith("| `ship` |"))
    assert [key for key in keys if f"`{key}`" not in row] == []


# What is new since the last call.


def call(script: Path) -> str:
    """A call of a function of the project; the job's id."""
    text = (
        "import kinetic_ray as kinetic\n"
        "@kinetic.remote(backend='kinetic_ray.testing.thread_backend:ThreadBackend')\n"
        "def f(): return 1\n"
        "if __name__ == '__main__':\n    job = f.run_async()\n    job.result()\n    print(job.job_id)\n"
    )
    script.write_text(text)
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run([sys.executable, script.name], cwd=script.parent, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()[-1]


def test_what_is_new_or_changed_since_the_last_call_is_told(project: Path) -> None:
    assert listed()["since"] is None
    job_id = call(project / "train.py")
    assert listed()["since"] == {"job_id": job_id, "new": [], "changed": [], "gone": []}
    assert f"as at the last call ({job_id}): nothing would be sent again" in invoke().stdout
    write(project, {"work.py": "x = 2", "pkg/added.py": "y"})
    (project / "latest").unlink()
    (project / "train.py").chmod(0o755)
    found = listed()
    assert found["since"] == {
        "job_id": job_id,
        "new": ["pkg/added.py"],
        "changed": ["train.py", "work.py"],
        "gone": ["latest"],
    }
    text = invoke().stdout
    size = sum(each["size"] for each in found["sent"] if each["name"] in ("pkg/added.py", "train.py", "work.py"))
    assert f"since the last call ({job_id}): 1 new, 2 changed, 1 gone; {size} B of new and changed files" in text
    rows = [line.split(maxsplit=3)[2:] for line in text.splitlines() if "; in the project" in line]
    assert rows == [
        ["train.py", "changed; in the project"],
        ["work.py", "changed; in the project"],
        ["pkg/added.py", "new; in the project"],
    ]


def test_another_project_of_the_store_is_no_earlier_form_of_this_one(project: Path, tmp_path: Path) -> None:
    other = write(tmp_path / "other", {"pyproject.toml": "", "a.py": "", "b.py": "", "c.py": ""})
    job_id = call(project / "train.py")
    call(other / "main.py")
    assert listed()["since"]["job_id"] == job_id
    assert json.loads(invoke(str(tmp_path / "other"), "--json").stdout)["since"]["job_id"] != job_id

"""What README and docs show works: each page's Python blocks are run, its commands exist."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "benchmarks" / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
#: How commands begin that are not run here, and why.
LEFT_OUT = {
    "python3 -m venv": "makes an environment and runs all tests in it: .ci/run does that by this very line",
    "source ": "of the environment that the line before makes",
    ".venv/bin/": "takes minutes; tests/integration/test_benchmarks.py runs the benchmarks",
    "ray ": "tests/integration/driver/test_ray_shows.py asks Ray's tools",
    "eval ": "for those",
    "kinetic local preempt": "takes hosts away from the other tests",
    "kinetic local stop": "so does this",
    "kinetic doctor": "its answer is the machine's",
    "python -m cluster.sim": "needs root, and once a quarter of an hour; tests/kube does it where it can",
    "python -m pytest tests/kube": "for that",
    "kinetic secret set database": "asks for two values, which only a terminal can give",
    "kinetic secret remove database": "of what that would have stored",
}
#: What comes before the commands of each page, and after them.
FIRST = "kinetic run train.py --accelerator cpu --hosts 2"
LAST = ["kinetic jobs result latest", "kinetic secret remove hf"]
#: The exit codes of those that end otherwise than with 0.
CODES = {
    "kinetic jobs cancel latest": (1,),  # the job has ended already
    "kinetic secret remove hf": (0, 2),  # of a page that has stored none
}
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def _blocks(page: Path, language: str) -> list[str]:
    return [code for kind, code in BLOCK.findall(page.read_text(encoding="utf-8")) if kind == language]


def _is_for_pytest(code: str) -> bool:
    return _is_conftest(code) or "\ndef test_" in code


def _is_conftest(code: str) -> bool:
    return code.startswith("pytest_plugins")


def _program(page: Path) -> list[str]:
    return [code for code in _blocks(page, "python") if not _is_for_pytest(code)]


def _tests(page: Path) -> list[str]:
    return [code for code in _blocks(page, "python") if _is_for_pytest(code)]


def _run(command: list[str], folder: Path) -> None:
    apart = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
    done = subprocess.run(
        command, cwd=folder, env=apart, capture_output=True, text=True, timeout=300, stdin=subprocess.DEVNULL
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]


def _id(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", PAGES, ids=_id)
def test_every_block_has_a_language_that_is_known_here(page: Path) -> None:
    """Under another name, or indented, a block would escape the tests."""
    fences = re.findall(r"^[ >]*(?:```|~~~).*$", page.read_text(encoding="utf-8"), re.MULTILINE)
    assert set(fences[1::2]) <= {"```"}
    assert set(fences[0::2]) <= {"```python", "```sh", "```text", "```json"}


@pytest.mark.integration
@pytest.mark.timeout(400)
@pytest.mark.parametrize("page", [page for page in PAGES if _program(page)], ids=_id)
def test_python_of_a_page_runs(page: Path, cluster: Path, tmp_path: Path) -> None:
    """The blocks of a page are one program, in their order, as a reader would paste them."""
    script = tmp_path / "page.py"
    script.write_text("\n\n".join(_program(page)), encoding="utf-8")
    _run([sys.executable, str(script)], tmp_path)


@pytest.mark.integration
@pytest.mark.timeout(400)
@pytest.mark.parametrize("page", [page for page in PAGES if _tests(page)], ids=_id)
def test_tests_of_a_page_pass(page: Path, kinetic_home: Path, tmp_path: Path) -> None:
    """A block that switches plugins on is the conftest.py; each with test functions is a file of tests beside it.

    Their clusters lie among this run's homes, so whatever these leave behind is found at its end.
    """
    for number, code in enumerate(_tests(page)):
        name = "conftest.py" if _is_conftest(code) else f"test_{number}.py"
        (tmp_path / name).write_text(code, encoding="utf-8")
    flags = ["-q", "-p", "no:cacheprovider", "--strict-markers", f"--rootdir={tmp_path}"]
    _run([sys.executable, "-m", "pytest", *flags, f"--basetemp={kinetic_home / 'pytest'}"], tmp_path)


def _lines(page: Path) -> list[str]:
    """The commands of a page, without what is said about them."""
    lines = [re.split(r"\s+# ", line)[0].strip() for code in _blocks(page, "sh") for line in code.splitlines()]
    return [line for line in lines if line]


def _is_left_out(line: str) -> bool:
    return line.startswith(tuple(LEFT_OUT))


@pytest.mark.parametrize("beginning", LEFT_OUT)
def test_what_is_left_out_is_there(beginning: str) -> None:
    assert any(line.startswith(beginning) for page in PAGES for line in _lines(page))


@pytest.mark.integration
@pytest.mark.timeout(500)
@pytest.mark.parametrize("page", [page for page in PAGES if not all(map(_is_left_out, _lines(page)))], ids=_id)
def test_commands_of_a_page_run(page: Path, cluster: Path, tmp_path: Path) -> None:
    """One after another, as a reader would type them after a first job of two ranks; nothing of them goes on."""
    (tmp_path / "train.py").write_text("import sys\nprint(*sys.argv)\n", encoding="utf-8")
    shutil.copy(tmp_path / "train.py", tmp_path / "script.py")
    apart = {"HOME": str(tmp_path), "KINETIC_STORE": "store", "KINETIC_PROFILES_FILE": "profiles.json"}
    apart["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    given = [line for line in _lines(page) if not _is_left_out(line)]
    for line in [FIRST, *given, *LAST]:
        command = ["bash", "-c", line]
        done = subprocess.run(
            command, cwd=tmp_path, env=os.environ | apart, capture_output=True, text=True, timeout=300, input="token"
        )
        assert done.returncode in CODES.get(line, (0,)), f"{line}\n{done.stdout[-2000:]}{done.stderr[-4000:]}"


def _commands() -> list[str]:
    lines = {line for page in PAGES for line in _lines(page)}
    return sorted(line for line in lines if line.startswith("kinetic ") and _is_left_out(line))


@pytest.mark.parametrize("command", _commands())
def test_commands_of_the_pages_exist(command: str) -> None:
    """The command and its flags are known: `--help` is put behind the name, and every flag stands in what it prints."""
    words = shlex.split(command)[1:]
    words = words[: words.index("--")] if "--" in words else words  # what follows is the script's own
    flags = [word.split("=")[0] for word in words if word.startswith("-")]
    names = [word for word in words if re.fullmatch(r"[a-z]+", word)]
    for count in range(len(names), 0, -1):
        help_of = [sys.executable, "-m", "kinetic_ray", *names[:count], "--help"]
        done = subprocess.run(help_of, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
        if done.returncode == 0:
            assert all(flag in done.stdout for flag in flags), done.stdout
            return
    raise AssertionError(f"`{command}`: no such command\n{done.stderr}")

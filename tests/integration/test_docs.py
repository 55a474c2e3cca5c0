"""What README and docs show works: each page's Python blocks are run, its commands exist."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted(path for path in (ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def _blocks(page: Path, language: str) -> list[str]:
    return [code for kind, code in BLOCK.findall(page.read_text(encoding="utf-8")) if kind == language]


@pytest.mark.integration
@pytest.mark.timeout(400)
@pytest.mark.parametrize("page", [page for page in PAGES if _blocks(page, "python")], ids=lambda page: page.name)
def test_python_of_a_page_runs(page: Path, cluster: Path, tmp_path: Path) -> None:
    """The blocks of a page are one program, in their order, as a reader would paste them."""
    script = tmp_path / "page.py"
    script.write_text("\n\n".join(_blocks(page, "python")), encoding="utf-8")
    command = [sys.executable, str(script)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]


def _commands() -> list[str]:
    lines = [line for page in PAGES for code in _blocks(page, "sh") for line in code.splitlines()]
    return sorted({line.split("#")[0].strip() for line in lines if line.startswith("kinetic ")})


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

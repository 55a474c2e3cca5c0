"""Builds of Go programs: progress, failures that are somebody's, and modules that can't be had."""

import subprocess
from pathlib import Path

import pytest

from cluster.sim.compiling import Compiler, FetchError, find_go

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

_HELLO = 'package main\n\nfunc main() { println("hello") }\n'


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Shared, so that Go's own library is compiled once."""
    return tmp_path_factory.mktemp("go")


@pytest.fixture
def told() -> list[str]:
    return []


@pytest.fixture
def compiler(workspace: Path, told: list[str], monkeypatch: pytest.MonkeyPatch) -> Compiler:
    go = find_go()
    if go is None:
        pytest.skip("there is no Go")
    monkeypatch.setenv("GOPROXY", "off")
    return Compiler(go, workspace, told.append)


def _module(folder: Path, code: str, more: str = "") -> Path:
    module = folder / "module"
    module.mkdir()
    module.joinpath("go.mod").write_text(f"module example.test/hello\n\ngo 1.21\n{more}")
    module.joinpath("main.go").write_text(code)
    return module


def test_a_program_is_built_and_progress_told(compiler: Compiler, told: list[str], tmp_path: Path) -> None:
    compiler.compile("hello", _module(tmp_path, _HELLO), ".", tmp_path / "hello", "-s -w")
    done = subprocess.run([tmp_path / "hello"], capture_output=True, text=True, check=True)
    assert done.stderr == "hello\n"
    assert told[0] == "hello: fetching modules"
    assert told[-1].startswith("hello: built in ")


def test_what_does_not_compile_is_told_in_the_compilers_words(compiler: Compiler, tmp_path: Path) -> None:
    module = _module(tmp_path, _HELLO.replace("println", "nothing"))
    with pytest.raises(subprocess.CalledProcessError) as failed:
        compiler.compile("hello", module, ".", tmp_path / "hello", "")
    assert "undefined: nothing" in failed.value.output
    assert not tmp_path.joinpath("hello").exists()


def test_a_module_that_cannot_be_had_is_another_error(compiler: Compiler, tmp_path: Path) -> None:
    code = 'package main\n\nimport _ "example.test/elsewhere"\n\nfunc main() {}\n'
    module = _module(tmp_path, code, "\nrequire example.test/elsewhere v1.0.0\n")
    module.joinpath("go.sum").write_text("example.test/elsewhere v1.0.0 h1:" + "A" * 43 + "=\n")
    with pytest.raises(FetchError, match="elsewhere"):
        compiler.compile("hello", module, ".", tmp_path / "hello", "")


def test_a_sum_that_is_missing_is_a_fault_of_the_module(compiler: Compiler, tmp_path: Path) -> None:
    code = 'package main\n\nimport _ "example.test/elsewhere"\n\nfunc main() {}\n'
    module = _module(tmp_path, code, "\nrequire example.test/elsewhere v1.0.0\n")
    with pytest.raises(subprocess.CalledProcessError) as failed:
        compiler.compile("hello", module, ".", tmp_path / "hello", "")
    assert "go.sum" in failed.value.output

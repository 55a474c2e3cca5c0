"""What `import kinetic_ray` promises: these names, documented, loaded when they are used."""

import inspect
import json
import pydoc
import re
import subprocess
import sys
from pathlib import Path

import pytest

import kinetic_ray as kinetic
from kinetic_ray.options import OPTIONS


@pytest.mark.parametrize("name", kinetic.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(kinetic, name) is not None
    assert name in dir(kinetic)


def test_public_names_are_sorted_and_nothing_else_is_promised() -> None:
    assert kinetic.__all__ == sorted(set(kinetic.__all__))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = kinetic.nothing


def test_only_public_names_are_listed() -> None:
    assert dir(kinetic) == kinetic.__all__


@pytest.mark.parametrize(("decorator", "accelerator"), [(kinetic.run, "tpu-v5e-1"), (kinetic.remote, "cpu")])
def test_help_shows_every_option(decorator: object, accelerator: str) -> None:
    shown = pydoc.render_doc(decorator, renderer=pydoc.plaintext)
    assert [name for name in OPTIONS if not re.search(rf"\b{name}\b: ", shown)] == []
    assert f"accelerator: 'str' = '{accelerator}'" in shown
    assert "timeout: 'float | str | None' = None" in shown


def test_run_explains_every_option() -> None:
    told = inspect.getdoc(kinetic.run) or ""
    assert [name for name in OPTIONS if not re.search(rf"\b{name}\b", told)] == []


def test_star_import_gives_exactly_them() -> None:
    names: dict[str, object] = {}
    exec("from kinetic_ray import *", names)
    assert set(names) - {"__builtins__"} == set(kinetic.__all__)


def documented() -> list[str]:
    return [
        name for name in kinetic.__all__ if inspect.isclass(getattr(kinetic, name)) or callable(getattr(kinetic, name))
    ]


@pytest.mark.parametrize("name", documented())
def test_public_names_are_documented(name: str) -> None:
    assert inspect.getdoc(getattr(kinetic, name))


@pytest.mark.parametrize("kind", [kinetic.RemoteFunction, kinetic.JobHandle])
def test_public_methods_are_documented(kind: type) -> None:
    plain = {"name", "tags", "backend", "func_name", "accelerator"}  # their names say it
    members = [name for name in vars(kind) if not name.startswith("_") and name not in plain]
    assert [name for name in members if not inspect.getdoc(getattr(kind, name)) and name != "calls_run"] == []


DECORATING = """
import sys
import kinetic_ray as kinetic
@kinetic.run(accelerator="tpu-v6e-16")
def train(): ...
print(*sorted(sys.modules))
"""


def test_decorating_a_function_loads_nothing_heavy() -> None:
    done = subprocess.run([sys.executable, "-c", DECORATING], capture_output=True, text=True, check=True)
    loaded = {name.partition(".")[0] for name in done.stdout.split()}
    heavy = {"ray", "jax", "numpy", "fsspec", "click", "rich", "cloudpickle", "pathspec", "asyncio", "psutil", "socket"}
    assert not loaded & heavy


def test_signatures_survive_decoration_for_type_checkers() -> None:
    """Each `type: ignore` in there is an error that has to be found: unused ones fail."""
    checked = Path(__file__).with_name("typed_calls.py")
    command = [sys.executable, "-m", "mypy", "--strict", str(checked)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=checked.parents[2])
    assert done.returncode == 0, done.stdout


def test_pyright_sees_the_same(tmp_path: Path) -> None:
    pytest.importorskip("pyright", reason="pip install 'kinetic-ray[dev]'")
    checked = Path(__file__).with_name("typed_calls.py")
    settings = {
        "include": [str(checked)],
        "pythonVersion": f"{sys.version_info.major}.{sys.version_info.minor}",
        "extraPaths": [str(checked.parents[2])],
        "reportUnnecessaryTypeIgnoreComment": "error",
    }
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    command = [sys.executable, "-m", "pyright", "--project", str(tmp_path), "--pythonpath", sys.executable]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr

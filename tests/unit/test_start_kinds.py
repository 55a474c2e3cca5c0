"""Whatever kind of function a program calls, and wherever it was written, a far host runs it as it stands."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.test_start_styles import FILES, environment, start, value_elsewhere

HEAD = "import functools, inspect, helper, kinetic_ray as kinetic\n"

KINDS = {
    "method of a class of the script": (
        """
class Base:
    scale = 1
    def train(self, x): return ("base", x, self.scale)
class Trainer(Base):
    def __init__(self): self.seen = []
    @kinetic.run(accelerator="cpu")
    def step(self, x): return x + 1
    @kinetic.remote
    def train(self, x):
        self.seen.append(x)
        return super().train(x), self.step(x), self.seen, helper.NAME, type(self) is Trainer
Trainer.scale = 5
TRAINER = Trainer()
""",
        "TRAINER.train.run_async(4)",
        "(('base', 4, 5), 5, [4], 'helper of the root', True)",
    ),
    "callable instance": (
        """
class Call:
    def __init__(self, by): self.by = by
    def __call__(self, x): return x * self.by, helper.NAME
""",
        "kinetic.remote(Call(3)).run_async(4)",
        "(12, 'helper of the root')",
    ),
    "partial of a decorated function": (
        """
def loudly(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs): return f"{function(*args, **kwargs)}!"
    return wrapper
@loudly
def train(x, y): return x, y, helper.NAME
""",
        "kinetic.remote(functools.partial(train, 4)).run_async(y=5)",
        "\"(4, 5, 'helper of the root')!\"",
    ),
    "class in a class": (
        """
class Outer:
    class Inner:
        def __init__(self, x): self.x = x
@kinetic.remote
def train(x): return type(x).__qualname__, type(x) is Outer.Inner, x.x
""",
        "train.run_async(Outer.Inner(4))",
        "('Outer.Inner', True, 4)",
    ),
    "lambda and closure": (
        """
def make(k):
    seen = []
    def train(x, again):
        seen.append(x)
        return (lambda y: y * k)(x), again is seen, inspect.getsource(train).strip().startswith("def train")
    return kinetic.remote(train), seen
TRAIN, SEEN = make(3)
""",
        "TRAIN.run_async(4, SEEN)",
        "(12, True, True)",
    ),
}

NOTEBOOK = """
import linecache, sys
from types import ModuleType
main = ModuleType("__main__")  # as IPython's kernel: no file
sys.modules["__main__"] = main
sys.path.insert(0, "")
for number, cell in enumerate({cells!r}):
    name = f"<ipython-input-{{number}}>"
    linecache.cache[name] = (len(cell), None, cell.splitlines(True), name)
    exec(compile(cell, name, "exec"), main.__dict__)
"""

PYTEST = """
class TestIt:
    def test_it(self):
        class Local:
            def __init__(self, x): self.x = x
        {run}
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "here" / "project"
    for name in ("pyproject.toml", "helper.py", "data.txt"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(FILES[name])
    return folder


@pytest.mark.parametrize("kind", KINDS)
def test_kinds_of_functions_of_a_script(tmp_path: Path, project: Path, kind: str) -> None:
    text, run, value = KINDS[kind]
    (project / "train.py").write_text(f"{HEAD}{text}\nif __name__ == '__main__':\n    {run}\n")
    start(["train.py"], project, environment(tmp_path))
    assert value_elsewhere(tmp_path, project) == value


@pytest.mark.parametrize("kind", KINDS)
def test_kinds_of_functions_of_a_notebook(tmp_path: Path, project: Path, kind: str) -> None:
    text, run, value = KINDS[kind]
    (project / "notebooks").mkdir()
    cells = ["import sys; sys.path.insert(0, '..')\n" + HEAD, text, run + "\n"]
    (tmp_path / "kernel.py").write_text(NOTEBOOK.format(cells=cells))
    start([str(tmp_path / "kernel.py")], project / "notebooks", environment(tmp_path))
    assert value_elsewhere(tmp_path, project) == value


def test_a_program_that_comes_by_standard_input(tmp_path: Path, project: Path) -> None:
    text = f"{HEAD}@kinetic.remote\ndef train(x): return x, helper.NAME, open('data.txt').read()\ntrain.run_async(4)\n"
    subprocess.run([sys.executable, "-"], input=text, text=True, cwd=project, env=environment(tmp_path), check=True)
    assert value_elsewhere(tmp_path, project) == "(4, 'helper of the root', 'data of the root')"


@pytest.mark.parametrize("mode", ["prepend", "importlib"])
@pytest.mark.parametrize(
    ("run", "value"),
    [
        ("train.run_async(4)", "(4, 'helper of the root')"),
        ("kinetic.remote(lambda made: (made.x, helper.NAME)).run_async(Local(4))", "(4, 'helper of the root')"),
    ],
)
def test_functions_of_a_test_file(tmp_path: Path, project: Path, mode: str, run: str, value: str) -> None:
    text = f"{HEAD}@kinetic.remote\ndef train(x): return x, helper.NAME\n"
    (project / "test_it.py").write_text(text + PYTEST.format(run=run))
    command = ["-m", "pytest", "-q", "-p", "no:cacheprovider", f"--import-mode={mode}", "test_it.py"]
    env = environment(tmp_path, PYTHONPATH=str(project))
    start(command, project, env)
    assert value_elsewhere(tmp_path, project) == value

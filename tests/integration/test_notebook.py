"""A notebook: a real Jupyter kernel that runs cells, on the embedded cluster that the integration tests share."""

import os
import re
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from jupyter_client.manager import KernelManager

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[2]
#: A net for a kernel that hangs, not a bound: cells wait for jobs, jobs for a cluster that may have to start.
_DEADLINE = 300
_CODES = re.compile(r"\x1b\[[0-9;]*m")


class Cell:
    """What a cell has shown."""

    def __init__(self) -> None:
        self.out = ""
        self.err = ""
        self.value = ""
        self.error = ""
        self.kinds: set[str] = set()

    def hear(self, message: dict[str, Any]) -> None:
        kind, content = message["msg_type"], message["content"]
        self.kinds.add(kind)
        if kind == "stream" and content["name"] == "stdout":
            self.out += content["text"]
        elif kind == "stream":
            self.err += content["text"]
        elif kind == "execute_result":
            self.value = content["data"]["text/plain"]
        elif kind == "error":
            self.error = _CODES.sub("", "\n".join(content["traceback"]))


class Notebook:
    """A kernel, cell after cell."""

    def __init__(self, manager: Any, client: Any) -> None:
        self.manager = manager
        self._client = client

    def run(self, code: str, seen: Callable[[Cell], object] = lambda cell: None) -> Cell:
        """Runs a cell to its end; `seen` is asked after each thing that it shows."""
        cell = Cell()

        def hear(message: dict[str, Any]) -> None:
            cell.hear(message)
            seen(cell)

        self._client.execute_interactive(code, timeout=_DEADLINE, output_hook=hear, allow_stdin=False)
        return cell


@pytest.fixture(scope="module")
def folder(shared_home: Path) -> Path:
    """Where the notebook lies; nothing of Jupyter's is written elsewhere."""
    return Path(tempfile.mkdtemp(prefix="nb", dir=shared_home))


@pytest.fixture(scope="module")
def notebook(folder: Path, shared_home: Path) -> Iterator[Notebook]:
    (folder / "pyproject.toml").touch()
    env = {**os.environ, "KINETIC_HOME": str(shared_home), "PYTHONPATH": str(ROOT)}
    env |= {name: str(folder / ".jupyter") for name in ("IPYTHONDIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR")}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JUPYTER_RUNTIME_DIR", str(folder / ".jupyter"))
        made = folder / "k"
        manager = KernelManager(transport="ipc", ip=str(made), connection_file=f"{made}.json")
        manager.start_kernel(cwd=str(folder), env=env)
        client = manager.blocking_client()
        client.start_channels()
        try:
            client.wait_for_ready(timeout=_DEADLINE)
            notebook = Notebook(manager, client)
            notebook.run(SETUP)
            yield notebook
        finally:
            client.stop_channels()
            manager.shutdown_kernel(now=True)


SETUP = """
import kinetic_ray as kinetic

SCALE = 10

class Point:
    def __init__(self, x):
        self.x = x

def helper(x):
    return Point(x * SCALE)

@kinetic.remote
def train(x):
    print("training", x)
    return helper(x)
"""


def test_what_cells_define_is_called_and_comes_back_as_its_own(notebook: Notebook) -> None:
    cell = notebook.run("p = train.run(3)\nprint('got', p.x, isinstance(p, Point))")
    assert cell.error == ""
    assert "training 3\n" in cell.out
    assert cell.out.endswith("got 30 True\n")


def test_progress_is_lines_that_a_notebook_can_show(notebook: Notebook) -> None:
    cell = notebook.run("train.run(1)")
    assert not {"clear_output", "display_data", "update_display_data"} & cell.kinds
    assert "\x1b" not in cell.out + cell.err
    assert "\r" not in cell.out + cell.err
    lines = cell.err.splitlines()
    assert all(line.startswith("kinetic: ") for line in lines)
    assert lines[-1] == "kinetic: train: succeeded"


def test_a_cell_that_is_run_again_with_an_edit_counts(notebook: Notebook) -> None:
    notebook.run("SCALE = 100")
    assert notebook.run("train.run(3).x").value == "300"
    notebook.run("def helper(x):\n    return Point(-x)")
    assert notebook.run("train.run(3).x, kinetic.get(train.remote(4)).x").value == "(-3, -4)"
    notebook.run(SETUP)
    assert notebook.run("kinetic.get(train.remote(4)).x, train.run(3).x").value == "(40, 30)"


def test_a_job_and_a_ref_are_awaited_at_the_top_of_a_cell(notebook: Notebook) -> None:
    """The kernel's own loop runs the cell: blocking calls work inside of it as well."""
    cell = notebook.run(
        "job = train.run_async(5)\n"
        "first = await job\n"
        "second = await train.remote(6)\n"
        "first.x, second.x, job.result().x, train.run(7).x"
    )
    assert (cell.error, cell.value) == ("", "(50, 60, 50, 70)")


def test_magics(notebook: Notebook, folder: Path) -> None:
    timed = notebook.run("%%time\ntrain.run(2).x")
    assert (timed.error, timed.value) == ("", "20")
    assert "Wall time" in timed.out
    (folder / "beside.py").write_text("NAME = 'beside'")
    (folder / "script.py").write_text(
        "import beside, kinetic_ray as kinetic\n"
        "class Answer:\n    def __init__(self, text): self.text = text\n"
        "@kinetic.remote\ndef read(): return Answer(beside.NAME + open('data.txt').read())\n"
        "if __name__ == '__main__':\n    answer = read.run()\n"
        "    print('ran', answer.text, isinstance(answer, Answer))\n"
    )
    (folder / "data.txt").write_text(" data")
    ran = notebook.run("%run script.py")
    assert ran.error == ""
    assert "ran beside data True\n" in ran.out
    assert notebook.run("read.run().text").value == "'beside data'"


@pytest.mark.parametrize("call", ["fails.run(1)", "kinetic.get(fails.remote(1))", "await fails.run_async(1)"])
def test_an_error_shows_the_lines_of_its_cell(notebook: Notebook, call: str) -> None:
    notebook.run("@kinetic.remote\ndef fails(x):\n    y = x + 1\n    raise KeyError(y)  # the very line")
    cell = notebook.run(
        f"try:\n    {call}\nexcept KeyError as error:\n    print(error.args, error.__notes__)\n    raise"
    )
    assert "KeyError: 2" in cell.error
    assert "raise KeyError(y)  # the very line" in cell.out
    assert cell.error.count("kinetic_ray/") <= 2  # our own frames stay out of it


def test_a_cell_that_is_interrupted_leaves_its_job_alone(notebook: Notebook, folder: Path) -> None:
    gate, told = folder / "gate", []

    def interrupt(cell: Cell) -> None:
        if "waiting for the gate" in cell.out and not told:
            told.append(cell)
            notebook.manager.interrupt_kernel()

    notebook.run(
        "import pathlib, threading\n"
        "@kinetic.remote\n"
        "def gated(path):\n"
        "    print('waiting for the gate')\n"
        "    while not pathlib.Path(path).exists(): threading.Event().wait(0.05)\n"
        "    return 'through'"
    )
    cell = notebook.run(f"gated.run({str(gate)!r})", interrupt)
    assert "KeyboardInterrupt" in cell.error
    [job] = set(re.findall(r"job-[0-9a-v]{26}", cell.err))
    gate.touch()
    assert notebook.run(f"kinetic.attach({job!r}).result()").value == "'through'"

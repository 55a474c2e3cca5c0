"""What a host shows of code that travelled by value: the lines that run, whatever became of the file since."""

import inspect
import linecache
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType
from typing import Any

import pytest

from kinetic_ray.payload import load_call, pack_call
from kinetic_ray.payload.sources import LIMIT, Sources
from kinetic_ray.runner.calls.packing import pack_function, unpack
from tests.programs_apart import run_python

SCRIPT = """
import sys
from pathlib import Path
def fail(x):
    raise KeyError(x)  # the line that ran
def train(x):
    import inspect, traceback
    try:
        fail(x)
    except KeyError:
        return traceback.format_exc(), inspect.getsource(fail), inspect.getsource(train)
if __name__ == "__main__":
    from kinetic_ray.payload import dump_call
    Path(sys.argv[1]).write_bytes(dump_call(train, (7,)))
"""
HOST = """
import sys
from pathlib import Path
from kinetic_ray.payload import load_call
from kinetic_ray.runner.settling import pose_as_main
function, args, kwargs = load_call(Path(sys.argv[1]).read_bytes())
pose_as_main(function)
print(repr(function(*args, **kwargs)))
"""


def edit(script: Path) -> None:
    script.write_text("# two new lines\n# on top\n" + SCRIPT.replace("the line that ran", "edited"))


@pytest.mark.parametrize("change", [lambda script: None, edit, Path.unlink])
def test_a_host_shows_the_script_as_it_ran(tmp_path: Path, change: Callable[[Path], Any]) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    run_python("train.py", "call", cwd=tmp_path)
    change(script)
    trace, fail, train = eval(run_python("-c", HOST, "call", cwd=tmp_path))
    assert "raise KeyError(x)  # the line that ran" in trace
    assert f'File "{script}", line 5, in fail' in trace
    assert fail == "def fail(x):\n    raise KeyError(x)  # the line that ran\n"
    assert train.startswith("def train(x):\n")


CELL = "<ipython-input-1-abc>"


@pytest.fixture
def cell() -> Iterator[dict[str, Any]]:
    """A cell of a notebook, as IPython runs it: its text is only in linecache."""
    text = "def cell_function(x):\n    return x  # in a cell\n"
    names: dict[str, Any] = {"__name__": "__main__"}
    linecache.cache[CELL] = (len(text), None, text.splitlines(keepends=True), CELL)
    exec(compile(text, CELL, "exec"), names)
    yield names
    linecache.cache.pop(CELL, None)


@pytest.mark.parametrize("way", ["durable", "call"])
def test_a_host_shows_a_notebooks_cell(cell: dict[str, Any], way: str) -> None:
    function, here = cell["cell_function"], lambda name: name == "__main__"
    if way == "durable":
        data = pack_call(function, (1,), {}, by_value=here).data
        linecache.cache.pop(CELL)
        arrived, _, _ = load_call(data)
    else:
        packed, _ = pack_function(function, here)
        linecache.cache.pop(CELL)
        arrived = unpack(packed)
    assert inspect.getsource(arrived) == "def cell_function(x):\n    return x  # in a cell\n"


def test_a_text_travels_once_and_only_where_code_does() -> None:
    def one() -> str:
        return two() + "a text that stands here once"

    def two() -> str:
        return "other"

    text = Path(__file__).read_bytes()
    data = pack_call(one, (two,), {}, by_value=lambda name: name == __name__).data
    assert data.count(b"def test_a_text_travels_once") == text.count(b"def test_a_text_travels_once")
    assert b"def format_exc" not in pack_call(print, (), {}, by_value=lambda name: name == __name__).data


def code_of(file: object, text: str = "x = 1") -> CodeType:
    return compile(text, str(file), "exec")


def test_what_every_host_has_and_what_is_too_large_stays_here(tmp_path: Path) -> None:
    large, small = tmp_path / "large.py", tmp_path / "small.py"
    large.write_text("# x\n" * LIMIT)
    small.write_text("x = 1\n")
    sources = Sources()
    found = [sources.of(code_of(path)) for path in (large, small, tmp_path / "none.py")]
    assert found == [None, "x = 1\n", None]
    assert sources.of(code_of(small)) is sources.of(code_of(small, "y = 2"))
    for file in (inspect.getfile(pytest), inspect.getfile(inspect), inspect.getfile(Sources), "<string>", ""):
        assert sources.of(code_of(file)) is None


def test_a_function_stays_the_same_bytes_whatever_becomes_of_its_file(tmp_path: Path) -> None:
    file = tmp_path / "edited.py"
    names: dict[str, Any] = {"__name__": "__main__"}

    def define(text: str) -> bytes:
        file.write_text(text)
        linecache.checkcache(str(file))
        exec(compile(text, str(file), "exec"), names)
        return pack()

    def pack() -> bytes:
        return bytes(pack_function(names["function"], lambda name: name == "__main__")[0].data)

    first = define("def function():\n    return 1\n")
    file.write_text("# edited, but not loaded again\n")
    linecache.checkcache(str(file))  # as whatever prints a traceback does
    assert pack() == first
    assert b"loaded again as this" in define("def function():\n    return 2  # loaded again as this\n")


def test_lines_are_as_python_counts_them(tmp_path: Path) -> None:
    """A form feed or a separator in a string ends no line."""
    names: dict[str, Any] = {"__name__": "__main__"}
    file = tmp_path / "odd.py"
    file.write_text('SIGN = "\\x0c\x0c\u2028"\ndef after():\n    return 1\n')
    exec(compile(file.read_text(), str(file), "exec"), names)
    data = pack_call(names["after"], (), {}, by_value=lambda name: name == "__main__").data
    file.unlink()
    linecache.clearcache()
    arrived, _, _ = load_call(data)
    assert inspect.getsource(arrived) == "def after():\n    return 1\n"

"""Values and errors of a script's own classes, read by the script when it is run again: they are its classes again."""

import pickle
import sys
from collections import namedtuple
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from kinetic_ray.payload.homes import layout_of
from kinetic_ray.payload.pickling import ValuePickler
from kinetic_ray.runner.calls.packing import pack_value
from tests.programs_apart import run_python

CLASSES = """
import pickle, sys
from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

class Base(Exception):
    pass
class Torn(Base):
    def __init__(self, row, *, why=None):
        super().__init__(f"row {row}")
        self.row = row
        self.why = why
@dataclass
class Point:
    x: int
    y: int = 0
    def far(self): return Far(self.x)
@dataclass(frozen=True, slots=True)
class Far:
    x: int
class Kind(Enum):
    A = 1
    B = "b"
class Pair(NamedTuple):
    left: int
    right: int
class Outer:
    class Inner:
        pass
T = TypeVar("T")
class Box(Generic[T]):
    def __init__(self, held): self.held = held
class Shape(ABC):
    @abstractmethod
    def area(self): ...
class Square(Shape):
    count = 0
    def area(self): return 1
class Meta(type):
    pass
class Made(metaclass=Meta):
    pass
def maker(): return Point(5)
"""

MAKE = """
def make():
    Square.count += 1
    try:
        raise KeyError("root")
    except KeyError as cause:
        error = Torn(7, why=Point(1))
        error.__cause__ = cause
    return {
        "list": [Point(1, 2), Far(3)], "kind": (Kind.A, Kind.B), "pair": Pair(1, 2), "inner": Outer.Inner(),
        "box": Box(Point(4)), "square": Square(), "made": Made(), "class": Point, "maker": maker,
    }, error

if sys.argv[1:] == ["send"]:
    from kinetic_ray.payload import dump_call
    Path("call").write_bytes(dump_call(make))
"""

HOST = """
from pathlib import Path
from kinetic_ray.payload import load_call
from kinetic_ray.runner.capture import dump_exception, dump_value
from kinetic_ray.runner.settling import pose_as_main
function, args, kwargs = load_call(Path("call").read_bytes())
pose_as_main(function)
value, error = function()
Path("value").write_bytes(b"".join(dump_value(value).chunks()))
Path("error").write_bytes(dump_exception(error))
"""

READ = """
    value = pickle.loads(Path("value").read_bytes())
    error = pickle.loads(Path("error").read_bytes())
"""

SAME = """
    assert [type(each) for each in value["list"]] == [Point, Far], value
    assert value["list"] == [Point(1, 2), Far(3)]
    assert value["list"][0].far() == Far(1)
    assert value["kind"] == (Kind.A, Kind.B)
    assert type(value["pair"]) is Pair and value["pair"] == (1, 2)
    assert type(value["inner"]) is Outer.Inner
    assert type(value["box"]) is Box and value["box"].held == Point(4)
    assert isinstance(value["square"], Shape) and type(value["square"]) is Square and Square.count == 0
    assert type(value["made"]) is Made
    assert value["class"] is Point
    assert value["maker"]() == Point(5)
    try:
        raise error
    except Base as caught:
        assert type(caught) is Torn and caught.row == 7 and caught.why == Point(1), caught
        assert type(caught.__cause__) is KeyError
    print("read")
"""


def run(folder: Path, text: str, *args: str) -> str:
    (folder / "program.py").write_text(text)
    return run_python("program.py", *args, cwd=folder)


@pytest.fixture
def answered(tmp_path: Path) -> Path:
    """A folder with a value and an error of a script's classes, as a host wrote them."""
    run(tmp_path, CLASSES + MAKE, "send")
    run(tmp_path, HOST)
    return tmp_path


@pytest.mark.parametrize("edit", [("return 1", "return 2"), ("def maker", "def another(): ...\ndef maker")])
def test_a_script_knows_its_own_classes_again(answered: Path, edit: tuple[str, str]) -> None:
    program = CLASSES + MAKE + "if sys.argv[1:] == ['read']:" + READ + SAME
    assert run(answered, program, "read") == "read\n"
    assert run(answered, program.replace(*edit), "read") == "read\n"


CHANGED = """
    assert type(value["list"][0]).__name__ == "Point" and type(value["list"][0]) is not Point
    assert (value["list"][0].x, value["list"][0].y) == (1, 2)
    assert value["list"][0].far().x == 1
    assert type(value["list"][1]) is Far
    assert type(value["kind"][0]) is not Kind and value["kind"][0].value == 1
    assert type(error).__name__ == "Torn" and type(error) is not Torn and error.row == 7
    assert isinstance(error, Base)
    print("read")
"""


def test_classes_whose_instances_no_longer_fit_come_as_they_were(answered: Path) -> None:
    program = CLASSES + MAKE + "if sys.argv[1:] == ['read']:" + READ + CHANGED
    program = program.replace("y: int = 0", "y: int = 0\n    z: int = 0").replace("    A = 1", "    A = 2")
    program = program.replace("def __init__(self, row, *, why=None)", "def __init__(self, row, column, *, why=None)")
    assert run(answered, program, "read") == "read\n"


def test_another_program_gets_the_classes_with_the_value(answered: Path) -> None:
    program = "import pickle\nfrom pathlib import Path\nif True:" + READ + "    print(value['list'][0], repr(error))\n"
    assert run(answered, program) == "Point(x=1, y=2) Torn('row 7')\n"


@pytest.mark.parametrize("pack", [ValuePickler().dumps, lambda value: bytes(pack_value(value).data)])
def test_a_class_that_is_read_where_it_was_made_stays_as_it_is_now(pack: Callable[[object], bytes]) -> None:
    """cloudpickle would fill the very class with what it was when it was sent."""
    Here.setting = "first"
    vars(sys.modules[Here.__module__]).pop("Here", None)
    data = pack(Here())
    sys.modules[Here.__module__].Here = Here  # type: ignore[attr-defined]
    Here.setting = "changed"
    back = pickle.loads(data)
    assert type(back) is Here
    assert Here.setting == "changed"


class Here:
    setting = "first"


Here.__module__ = "a_module_that_no_host_has"
sys.modules[Here.__module__] = ModuleType(Here.__module__)


def test_classes_made_in_functions_travel_whole() -> None:
    class Local:
        def __init__(self) -> None:
            self.x = 1

    assert pickle.loads(ValuePickler().dumps([Local()]))[0].x == 1


class Shy:
    def __repr__(self) -> str:
        raise RuntimeError("not me")


def test_classes_that_can_not_be_described_travel_as_before() -> None:
    kind = Enum("kind", {"ONE": Shy()})  # type: ignore[misc]
    kind.__module__, kind.__qualname__ = "__main__", "kind"
    back = pickle.loads(ValuePickler().dumps(kind))
    assert [type(member.value) for member in back] == [Shy]


class _Colour(Enum):
    RED = 1


@pytest.mark.parametrize(
    ("one", "other", "fits"),
    [
        (type("A", (), {}), type("A", (), {"method": print}), True),
        (type("A", (), {"__init__": lambda self, x: None}), type("A", (), {"__init__": lambda self, x: 1}), True),
        (type("A", (), {"__init__": lambda self, x: None}), type("A", (), {"__init__": lambda self, y: None}), False),
        (type("A", (), {"__init__": lambda *args: None}), type("A", (), {"__init__": lambda **args: None}), False),
        (type("A", (ValueError,), {}), type("A", (KeyError,), {}), False),
        (type("A", (), {"__slots__": ("a",)}), type("A", (), {"__slots__": ("a", "b")}), False),
        (type("A", (), {"__slots__": "a"}), type("A", (), {"__slots__": ("a",)}), True),
        (namedtuple("A", "x y"), namedtuple("A", "x z"), False),  # type: ignore[list-item]
        (Enum("A", "x y"), Enum("A", "x z"), False),
        (Enum("A", {"x": 1}), Enum("A", {"x": 2}), False),
        (Enum("A", {"x": 1}), Enum("A", {"x": 1}), True),
        (_Colour, Enum("_Colour", "RED"), True),
    ],
)
def test_what_makes_a_class_another_one(one: Any, other: Any, fits: bool) -> None:
    assert (layout_of(one) == layout_of(other)) is fits

"""Things that calls are made of, in a module that can be imported: what goes by name in tests of payloads."""

import functools
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import kinetic_ray as kinetic


class Point(NamedTuple):
    x: int
    y: int


@dataclass
class Model:
    name: str = "m"
    lock: Any = field(default_factory=threading.Lock)


class Slotted:
    __slots__ = ("inner", "name")

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.name = "s"


class Stubborn:
    def __reduce__(self) -> Any:
        raise RuntimeError("I stay here")


def plain(x: int) -> int:
    return x + 1


@kinetic.run(accelerator="cpu")
def decorated(x: int) -> int:
    return x + 10


@kinetic.remote
def calls_decorated(x: int) -> int:
    return decorated.local(x) + 100


def shouting(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> str:
        return f"{function(*args, **kwargs)}!"

    return wrapper


@kinetic.run(accelerator="cpu")
@shouting
def wrapped(x: int) -> int:
    return x


class Trainer:
    def __init__(self, base: int) -> None:
        self.base = base

    @kinetic.run(accelerator="cpu")
    def train(self, x: int) -> int:
        return self.base + x

    @staticmethod
    @kinetic.run(accelerator="cpu")
    def static(x: int) -> int:
        return -x

    @classmethod
    def make(cls, x: int) -> int:
        return cls(x).base


def of_the_golden_file(numbers: list[int], point: Point, *, function: Callable[[int], int]) -> tuple[int, Point, int]:
    return sum(numbers), point, function(5)


class OddError(Exception):
    """Its constructor takes other arguments than those it keeps."""

    def __init__(self, code: int, *, detail: str) -> None:
        super().__init__(f"code {code}: {detail}")
        self.code = code
        self.detail = detail

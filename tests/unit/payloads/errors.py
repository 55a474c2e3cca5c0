"""Exceptions of every awkward kind, in a module that can be imported."""

import threading
from dataclasses import dataclass
from typing import Any


class KeywordOnly(Exception):
    def __init__(self, *, code: int) -> None:
        super().__init__(f"code {code}")
        self.code = code


class TwoArguments(Exception):
    def __init__(self, left: int, right: int) -> None:
        super().__init__(f"{left} and {right}")
        self.right = right


class HoldsLock(ValueError):
    def __init__(self, step: int = 1) -> None:
        super().__init__(f"locked at {step}")
        self.step = step
        self.lock = threading.Lock()


class LockAsArgument(Exception):
    """Its message is what its arguments look like."""


class Slotted(Exception):
    __slots__ = ("code", "part")

    def __init__(self, code: int) -> None:
        super().__init__("s")
        self.code = code


@dataclass(frozen=True, kw_only=True)
class Frozen(Exception):
    code: int
    place: str = "here"


@dataclass(frozen=True, slots=True)
class FrozenSlotted(Exception):
    code: int


class ForeignNew(Exception):
    def __new__(cls, code: int, *, detail: str) -> "ForeignNew":
        made = super().__new__(cls, code)
        made.detail = detail
        return made

    def __init__(self, code: int, *, detail: str) -> None:
        super().__init__(f"code {code}")

    detail: str


class NoFile(FileNotFoundError):
    def __init__(self, name: str) -> None:
        super().__init__(2, "no such thing", name)


class NotThere(ModuleNotFoundError):
    def __init__(self, module: str) -> None:
        super().__init__(f"no {module}", name=module, path="/lib")


class SaysHow(Exception):
    """Its own reducer drops what it wants to drop."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.cache = [code] * 3

    def __reduce__(self) -> Any:
        return _said, (self.args[0],)


def _said(code: int) -> SaysHow:
    made = SaysHow.__new__(SaysHow, code)
    made.cache = []
    return made


class Interrupts(Exception):
    def __reduce__(self) -> Any:
        return _interrupt, (str(self),)


def _interrupt(words: str) -> BaseException:
    raise KeyboardInterrupt(words)


class Leaves(Exception):
    """The interpreter is to end where it is made again."""

    def __new__(cls, *args: object) -> "Leaves":
        if args and args[0] == "again":
            raise SystemExit(5)
        made = super().__new__(cls, *args)
        made.args = ("again",)
        return made

    def __init__(self, *_args: object) -> None:
        pass


class Batch(ExceptionGroup[Exception]):
    """A group without `derive`, and with more arguments than a group has."""

    def __new__(cls, step: int, errors: list[Exception]) -> "Batch":
        made = super().__new__(cls, f"step {step}", errors)
        made.step = step
        return made

    step: int


def sealed() -> BaseException:
    """An error whose class can't travel."""
    lock = threading.Lock()

    class Sealed(ValueError):
        def __str__(self) -> str:
            with lock:
                return "sealed"

    return Sealed()


def raised(error: BaseException, cause: BaseException | None = None) -> BaseException:
    """An error with a traceback, and a cause if there is one."""
    try:
        raise error from cause
    except BaseException as caught:  # noqa: BLE001
        return caught

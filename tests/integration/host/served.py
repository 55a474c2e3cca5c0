"""What the warm children of these tests run; most of it goes by value, some by name."""

import os
import signal
import sys
from typing import Any

from tests.integration.host import programs

NAMES: list[str] = []


def remember(name: str) -> list[str]:
    """State of a module that children import."""
    NAMES.append(name)
    return NAMES


class Counter:
    def __init__(self, start: int) -> None:
        self.value = start

    def add(self, amount: int = 1) -> int:
        self.value += amount
        return self.value

    def fail(self) -> None:
        raise programs.KeywordOnly(code=self.value)

    def die(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


def end(how: str) -> None:
    """Ends its process, or at least tries to."""
    print(f"about to {how}")  # noqa: T201
    if how == "exit":
        sys.exit(3)
    if how == "leave":
        os._exit(3)
    if how == "crash":
        import ctypes

        ctypes.string_at(0)
    if how == "hang up":
        os.closerange(3, 256)
        signal.pause()
    if how == "talk":
        programs.talk_to_the_agent("hello agent")
    os.kill(os.getpid(), signal.SIGKILL)


def fork_and_come_back(how: str) -> tuple[str, int]:
    """Both come back from here, the fork first."""
    pid = os.fork()
    if pid == 0:
        if how == "raise":
            raise ValueError("of the fork")
        if how == "exit":
            sys.exit(3)
        return "the fork", os.getpid()
    return "the call", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def where() -> dict[str, Any]:
    from kinetic_ray.runner import session

    names = ("KINETIC_JOB_ID", "KINETIC_ANCESTORS", "KINETIC_RANK", "KINETIC_WORLD_SIZE")
    return {name: os.environ[name] for name in names} | {"job_id": session.context().job_id, "pid": os.getpid()}


def shout(lines: int) -> None:
    for number in range(lines):
        print(f"line {number}")  # noqa: T201
    os.write(2, b"to stderr\n")
    sys.stdout.write("no end")


def write(text: str) -> None:
    sys.stdout.write(text)


def flood(lines: int) -> None:
    for number in range(lines):
        print(f"line {number}")  # noqa: T201


def answer_twice() -> str:
    """Something in its process answers for the call, and then the call does."""
    import gc
    import pickle

    from kinetic_ray.runner.calls.frames import Frame
    from kinetic_ray.runner.calls.serving import Server
    from kinetic_ray.runner.calls.words import SIMPLE, Kind

    (server,) = (each for each in gc.get_objects() if isinstance(each, Server))
    number = next(each for each in gc.get_objects() if isinstance(each, Frame) and each.kind == Kind.CALL).number
    server._link.send(Kind.VALUE, [SIMPLE, pickle.dumps("early", 5)], number)
    return "late"


def fork_and_wait() -> int:
    """Leaves a process of its own behind."""
    pid = os.fork()
    if pid == 0:
        os.setsid()
        signal.pause()
    return pid


def note_my_exit(path: str) -> None:
    import atexit
    from pathlib import Path

    atexit.register(Path(path).write_text, "left")


def use_sibling() -> str:
    import sibling_module  # in the bundle only

    return str(sibling_module.NAME)


def write_to(array: Any) -> float:
    array[0] = 42.0
    return float(array.sum())

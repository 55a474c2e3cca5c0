"""Ways for a gang of two ranks to end; each rank writes down every time that it runs."""

import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any


def run_and(how: str, folder: str) -> Any:
    """Both ranks run; the second one ends in some way, while the first waits, unless it is the other way round."""
    from kinetic_ray.runner.session import context

    rank = context().rank
    with Path(folder, f"runs-{rank}").open("a") as runs:
        runs.write("x")
    print(f"rank {rank} is about to: {how}", flush=True)  # noqa: T201
    if how == "give what can't be pickled":
        _wait_for(Path(folder, f"runs-{1 - rank}"))
    if how in ("give what can't be pickled", "leave a fork") or (rank == 0 and how in _AFTER_THE_FIRST):
        return _return(how, folder)
    if rank == 0:
        _wait_for_ever()
    _wait_for(Path(folder, "returned" if how in _AFTER_THE_FIRST else "runs-0"))
    return WAYS[how](folder)


def call_and(how: str, folder: str) -> Any:
    """The same for a call of one host."""
    with Path(folder, "runs-0").open("a") as runs:
        runs.write("x")
    print(f"rank 0 is about to: {how}", flush=True)  # noqa: T201
    return _return(how, folder) if how in ("return", "give what can't be pickled") else WAYS[how](folder)


def _return(how: str, folder: str) -> Any:
    import atexit

    if how == "leave a fork":
        _fork(folder)
    if how in _AFTER_THE_FIRST:  # its value is stored by then
        atexit.register(Path(folder, "returned").touch)
    return threading.Lock() if how == "give what can't be pickled" else 7


def _raise(_: str) -> None:
    raise KeyError("bad batch")


def _fork(folder: str) -> None:
    """A process that stays, and holds whatever this one has open."""
    told = Path(folder, f"fork-{os.getpid()}")
    if os.fork() == 0:
        os.setsid()
        told.write_text(str(os.getpid()))
        _wait_for_ever()
    _wait_for(told)


def _fork_and_leave(folder: str) -> None:
    _fork(folder)
    os._exit(0)


def _close_and_leave(_: str) -> None:
    os.closerange(0, 3)
    os._exit(5)


def _fill(_: str) -> None:
    pause, kept = threading.Event(), []
    for _number in range(140):
        kept.append(b"x" * 10_000_000)
        pause.wait(0.005)
    pause.wait()


def _wait_for(file: Path) -> None:
    pause = threading.Event()
    while not (file.exists() and (file.stat().st_size or file.name == "returned")):
        pause.wait(0.02)


def _wait_for_ever(_: str = "") -> None:
    threading.Event().wait()


def _kill(signum: int) -> Any:
    return lambda _: os.kill(os.getpid(), signum)


_AFTER_THE_FIRST = ("raise late", "leave late", "stop late")
WAYS: dict[str, Any] = {
    "raise": _raise,
    "raise late": _raise,
    "exit 3": lambda _: sys.exit(3),
    "leave 0": lambda _: os._exit(0),
    "leave late": lambda _: os._exit(0),
    "SIGKILL": _kill(signal.SIGKILL),
    "SIGSEGV": _kill(signal.SIGSEGV),
    "stop late": _kill(signal.SIGSTOP),
    "close its output": _close_and_leave,
    "fork and leave 0": _fork_and_leave,
    "fill memory": _fill,
    "wait": _wait_for_ever,
}

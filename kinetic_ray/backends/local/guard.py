"""Holds one Ray node together: when one of its processes or the supervisor ends, all that the node started ends.

It takes the place of the process that started the node (by exec, so the node keeps its parent), and weighs a few MB
where that one weighs a hundred. It runs by its path with `-I -S`: standard library only, nothing of this package.
"""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

LINUX = sys.platform == "linux"
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_FOREVER = str(2**31 - 1)


#: What ends a node: SIGTERM lets it say goodbye to its cluster, SIGINT is for when that ends as well.
ENDING = (signal.SIGTERM, signal.SIGINT)


class Stopped(Exception):
    """An ending signal came: from the supervisor, or from the kernel because the supervisor died."""


def die_with_parent(parent: int, signum: int) -> None:
    """Has the kernel send `signum` to this process when its parent ends; other systems poll (:func:`watch`)."""
    if LINUX:
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signum, 0, 0, 0)
    if os.getppid() != parent:
        raise SystemExit(f"process {parent}, which started this one, has ended already")


def adopt_orphans() -> None:
    """Makes this process the parent of whatever below it loses its own, so that nothing escapes a clean-up."""
    if LINUX:
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def parents() -> dict[int, int]:
    """The parent of every living process of the machine; those that only wait to be collected are left out."""
    if LINUX:
        return dict(_from_proc())
    listing = subprocess.run(["ps", "-axo", "pid=,ppid=,stat="], capture_output=True, text=True, check=True).stdout
    rows = [line.split() for line in listing.splitlines()]
    return {int(row[0]): int(row[1]) for row in rows if not row[2].startswith("Z")}


def _from_proc() -> Iterator[tuple[int, int]]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):  # it ended while we looked
                state, parent = (entry / "stat").read_bytes().rpartition(b")")[2].split()[:2]
                if state not in (b"Z", b"X"):
                    yield int(entry.name), int(parent)


def descendants(*roots: int) -> set[int]:
    """Every living process below `roots`."""
    tree, found = parents(), set(roots)
    while more := {pid for pid, parent in tree.items() if parent in found and pid not in found}:
        found |= more
    return found.difference(roots)


def end(pid: int) -> None:
    """SIGKILL, where there is still something to kill."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def end_descendants(root: int, timeout: float = 10.0) -> set[int]:
    """Kills everything below `root`, over and over, because what is being killed may still fork.

    Returns:
        What is left after `timeout` seconds: a process in an uninterruptible system call, or nothing.
    """
    deadline = time.monotonic() + timeout
    while left := descendants(root):
        for pid in left:
            end(pid)
        _collect()
        if time.monotonic() > deadline:
            break
        time.sleep(0.01)
    _collect()
    return left


def _collect() -> set[int]:
    """Collects the children that have ended."""
    ended = set()
    with contextlib.suppress(ChildProcessError):
        while (pid := os.waitpid(-1, os.WNOHANG)[0]) != 0:
            ended.add(pid)
    return ended


def watch(pids: Sequence[int], grace: float) -> int:
    """Waits until one of this process's children `pids` ends or a signal comes, then ends all there is below.

    Args:
        pids: The node's processes, the one first that should be told to stop before it is killed.
        grace: Seconds that it has for that after SIGTERM.

    Returns:
        The exit code: 0 after a signal, 1 after a death.
    """
    code = 0
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)  # blocked since before the exec
        _say(f"process {_first_death(set(pids))} of the node has ended")
        code = 1
    except Stopped as stopped:
        on_ending(signal.SIG_IGN)
        if stopped.args == (signal.SIGTERM,):
            _ask(pids[0], grace)
    on_ending(signal.SIG_IGN)
    left = end_descendants(os.getpid())
    if left:
        _say(f"could not be killed: {sorted(left)}")
    return code


def _first_death(pids: set[int]) -> int:
    parent, pid = os.getppid(), 0
    while pid not in pids:
        if LINUX:
            pid, _status = os.wait()  # orphans come up as well, and are collected so
        elif os.getppid() != parent:
            raise Stopped(signal.SIGTERM)
        else:
            time.sleep(0.2)
            pid = next(iter(_collect() & pids), 0)
    return pid


def _ask(pid: int, grace: float) -> None:
    deadline = time.monotonic() + grace
    with contextlib.suppress(ProcessLookupError):
        if grace > 0:
            os.kill(pid, signal.SIGTERM)
    while time.monotonic() < deadline and pid not in _collect():
        time.sleep(0.01)


def rest() -> None:
    """Does nothing until the parent ends: stands where Ray wants an agent that a simulated host can do without."""
    parent = os.getppid()
    die_with_parent(parent, signal.SIGKILL)
    if LINUX:
        with contextlib.suppress(FileNotFoundError):
            os.execvp("sleep", ["sleep", _FOREVER])
    while os.getppid() == parent:
        time.sleep(1)


def main(argv: Sequence[str]) -> int:
    """`rest`, or `watch GRACE PID...`."""
    if argv[0] == "rest":
        rest()
        return 0
    return watch([int(pid) for pid in argv[2:]], float(argv[1]))


def _say(line: str) -> None:
    sys.stderr.write(line + "\n")  # the node's log


def on_ending(handler: Callable[[int, object], None] | signal.Handlers) -> None:
    """Handles the signals that end a node."""
    for signum in ENDING:
        signal.signal(signum, handler)


def stop(signum: int, _frame: object) -> None:
    """A handler that breaks off whatever is being done."""
    raise Stopped(signum)


if __name__ == "__main__":
    on_ending(stop)
    sys.exit(main(sys.argv[1:]))

"""The processes on a simulated host, for who takes it away or holds it up: the node's, and what the nursery forked."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from kinetic_ray.backends.local import guard

_ROUNDS = 100


def residents(folder: Path, root: int) -> set[int]:
    """All living processes of a host.

    Args:
        folder: The host's Ray folder.
        root: Its guard.
    """
    tree = guard.parents()
    roots = {root} & tree.keys() | {pid for pid in tree if _prints_into(pid, folder)}
    return roots | guard.descendants(*roots)


def _prints_into(pid: int, folder: Path) -> bool:
    """A zygote from the nursery is not below its host, but has the standard output of the agent that it serves."""
    if not guard.LINUX:
        return False  # no nursery there
    try:
        return Path(f"/proc/{pid}/fd/1").readlink().is_relative_to(folder)
    except OSError:  # it has ended, or is another user's
        return False


def freeze(folder: Path, root: int) -> set[int]:
    """Stops a host's processes where they are: to others it stops answering. Gives those that are stopped."""
    stopped: set[int] = set()
    for _ in range(_ROUNDS):  # what isn't stopped yet may still fork
        fresh = residents(folder, root) - stopped
        if not fresh:
            break
        for pid in fresh:
            _send(pid, signal.SIGSTOP)
        stopped |= fresh
    return stopped


def thaw(folder: Path, root: int) -> None:
    """Lets a frozen host go on."""
    for pid in residents(folder, root):
        _send(pid, signal.SIGCONT)


def end(folder: Path, root: int) -> None:
    """Kills all that is on a host, the frozen too; its guard last, whose end is noticed at once."""
    for pid in residents(folder, root) - {root}:
        guard.end(pid)
    guard.end(root)


def _send(pid: int, signum: signal.Signals) -> None:
    try:
        os.kill(pid, signum)
    except (ProcessLookupError, PermissionError):  # it has ended, and may be somebody else's by now
        return

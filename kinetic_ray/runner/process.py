"""What the kernel promises about processes: who dies with whom, who adopts orphans, who descends from whom.

The paths for macOS, here and where `sys.platform` is asked, are written after its manual pages and untested.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
from pathlib import Path

import psutil

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
#: Of -1000 to 1000: ahead of all that hasn't asked for it itself. See proc_pid_oom_score_adj(5).
_FIRST_TO_GO = 500


def die_with_parent(signum: signal.Signals) -> None:
    """Asks for `signum` when the thread that started this process ends. Linux only; elsewhere the caller polls."""
    _prctl(PR_SET_PDEATHSIG, signum)


def adopt_orphans() -> None:
    """Makes this process the parent of its descendants' orphans, daemons with a session of their own too.

    Linux only: on macOS orphans go to launchd, and a rank's process group is all that can be killed.
    """
    _prctl(PR_SET_CHILD_SUBREAPER, 1)


def take_after(pid: int) -> None:
    """Gives this process what it would have inherited from another one of its user. Linux only.

    Niceness and the kernel's eagerness to kill for memory only ever rise, which needs no privilege.

    Raises:
        OSError: The other process has ended.
        ValueError: Its limits are above this one's.
    """
    import resource  # Windows has none

    for limit in {getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_")}:
        resource.setrlimit(limit, resource.prlimit(pid, limit))
    niceness = os.getpriority(os.PRIO_PROCESS, pid)
    if niceness > os.getpriority(os.PRIO_PROCESS, 0):
        os.setpriority(os.PRIO_PROCESS, 0, niceness)
    score, own = Path(f"/proc/{pid}/oom_score_adj"), Path("/proc/self/oom_score_adj")
    if int(score.read_text()) > int(own.read_text()):
        own.write_text(score.read_text())


def thread_count() -> int:
    """Threads of this process as the kernel counts them; Python sees only its own."""
    tasks = Path("/proc/self/task")
    return len(list(tasks.iterdir())) if tasks.is_dir() else psutil.Process().num_threads()


def fork_is_safe() -> bool:
    """Whether a forked child may go on running Python: one thread, and no macOS (its frameworks forbid it)."""
    return sys.platform == "linux" and thread_count() == 1


def be_first_to_go() -> None:
    """Has the kernel end this process, and what it starts, before others when memory runs out."""
    told = Path("/proc/self/oom_score_adj")
    with contextlib.suppress(OSError, ValueError):  # no Linux, or one that doesn't allow it
        told.write_text(str(max(int(told.read_text()), _FIRST_TO_GO)))


def leave_no_cores() -> None:
    """A crash of this process, or of what it starts, writes no core file: one of gigabytes would lie in a job's folder.

    Only the soft limit goes: code that wants a core file raises it to the hard one again.
    """
    import resource  # Windows has none

    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))


def kill_descendants() -> None:
    """SIGKILLs everything below this process."""
    for process in psutil.Process().children(recursive=True):
        try:
            alive = process.status() != psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:  # it ended while we looked
            continue
        if alive:
            kill_quietly(process.pid)


def is_running(pid: int) -> bool:
    """Whether a process has not ended yet; one that waits to be collected has."""
    try:
        return psutil.Process(pid).status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    except psutil.NoSuchProcess:
        return False


def kill_quietly(pid: int) -> None:
    """SIGKILL to a process that may have ended already."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def kill_group_quietly(pgid: int) -> None:
    """SIGKILL to a process group that may be empty by now."""
    try:
        os.killpg(pgid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):  # macOS says EPERM for a group of zombies
        return


def _prctl(option: int, value: int) -> None:
    if sys.platform != "linux":
        return
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, int(value), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option}) failed")

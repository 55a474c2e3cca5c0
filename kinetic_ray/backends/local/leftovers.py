"""What a supervisor that was killed may have left: it is looked for, and ended, before the next one starts."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from pathlib import Path

from kinetic_ray import wire
from kinetic_ray.backends.local import guard
from kinetic_ray.backends.local.paths import Runtime
from kinetic_ray.errors import ConfigError

_SWEEP_S = 10.0
MODULE = b"kinetic_ray.backends.local.supervisor"
_RAY_TITLES = (b"ray::", b"ray-dashboard")


def take_lock(runtime: Runtime, timeout: float) -> int | None:
    """Locks the runtime folder, for as long as this process lives.

    Returns:
        The lock's descriptor; None when a supervisor holds it and serves already.

    Raises:
        ConfigError: Its holder neither serves nor ends.
    """
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        runtime.prepare()
        with contextlib.suppress(FileNotFoundError):  # the folder was removed by the one that is ending
            descriptor = os.open(runtime.lock, os.O_RDWR | os.O_CREAT, 0o600)
            if _lock(descriptor, runtime.lock):
                return descriptor
            os.close(descriptor)
        if is_served(runtime):
            return None
        time.sleep(0.02)
    raise ConfigError(
        f"another supervisor holds {runtime.lock} and neither serves nor ends; see {runtime.log}, "
        f"and end its process (fuser {runtime.lock}) if it hangs"
    )


def _lock(descriptor: int, path: Path) -> bool:
    import fcntl  # Windows has none, and is refused with a sentence before it comes here

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    with contextlib.suppress(FileNotFoundError):
        return path.stat().st_ino == os.fstat(descriptor).st_ino  # else its holder has just removed it
    return False


def is_held(runtime: Runtime) -> bool:
    """Whether a supervisor lives, serving or not."""
    try:
        descriptor = os.open(runtime.lock, os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        return not _lock(descriptor, runtime.lock)
    finally:
        os.close(descriptor)


def is_served(runtime: Runtime) -> bool:
    """Whether a supervisor listens."""
    try:
        wire.connect(runtime.sock).close()
    except OSError:
        return False
    return True


def sweep(runtime: Runtime) -> None:
    """Removes all that a dead supervisor has left, where no other has started meanwhile."""
    lock = take_lock(runtime, _SWEEP_S)
    if lock is not None:
        clear(runtime)
        remove(runtime)
        os.close(lock)


def clear(runtime: Runtime) -> None:
    """Ends what a dead supervisor has left running and removes its files; the lock is held and stays."""
    if runtime.info.exists():
        end_members(runtime)
    empty(runtime)


def end_members(runtime: Runtime) -> None:
    """Ends all that belongs to a cluster, its supervisor excepted.

    Kills until none is left, because what is being killed may still fork, and takes a moment to be gone.
    """
    deadline = time.monotonic() + _SWEEP_S
    killed: set[int] = set()
    while (living := members(runtime)) or killed & guard.parents().keys():
        for pid in living:
            guard.end(pid)
        killed.update(living)
        if time.monotonic() > deadline:
            break
        time.sleep(0.02)


def empty(runtime: Runtime, *kept: Path) -> None:
    """Removes everything in the folder but the lock, and what is to be kept."""
    for entry in runtime.root.iterdir():
        if entry in (runtime.lock, *kept):
            continue
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry, ignore_errors=True)
        else:
            entry.unlink(missing_ok=True)


def remove(runtime: Runtime) -> None:
    """Removes the folder, which is empty but for the lock: the last act of the lock's holder."""
    runtime.lock.unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # somebody who waits for the lock has made it anew
        runtime.root.rmdir()


def members(runtime: Runtime) -> list[int]:
    """Every living process that this folder's supervisor started, or that descends from such.

    A variable tells. Ray's own processes write their titles over theirs: those are known by title and folder.
    """
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it ended while we looked, or is another user's
            if _is_member(process, runtime):
                found.append(int(process.name))
    return found


def _is_member(process: Path, runtime: Runtime) -> bool:
    words = (process / "cmdline").read_bytes()
    if MODULE in words.split(b"\0"):
        return False  # a supervisor: the one that asks, or one that waits for the lock
    if f"KINETIC_SUPERVISOR={runtime.sock}".encode() in (process / "environ").read_bytes().split(b"\0"):
        return True
    return words.startswith(_RAY_TITLES) and (process / "cwd").readlink().is_relative_to(runtime.root)

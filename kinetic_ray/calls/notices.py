"""Whether anything has happened in some folders since the last look, as the kernel tells it: one question for them all.

Looking at each file of a project takes a millisecond or more where there are some hundreds, which is longer than a
call. Linux notes what happens in a folder before a write to a file in it returns (inotify(7)). What it can't tell: what
other machines do in shared folders, and what is written through a mapping of a file. So :func:`open_notices` takes
folders of a local file system only, and :func:`is_told_of` says of which files the notes are enough.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import sys
import weakref
from collections.abc import Iterable
from pathlib import Path
from typing import Any

#: Text, which is edited as a whole: nothing writes it through a mapping.
_TEXT = frozenset((".py", ".pyi", ".toml", ".json", ".yaml", ".yml", ".txt", ".md", ".rst", ".cfg", ".ini", ".sh"))
_TEXTS = frozenset((".gitignore", ".gitattributes", ".kineticignore", "LICENSE", "Makefile", "Dockerfile"))
#: `f_type` of file systems that this machine alone writes to: statfs(2). ext, xfs, btrfs, tmpfs, overlayfs, f2fs, zfs,
#: bcachefs.
_LOCAL = frozenset(
    (0xEF53, 0x58465342, 0x9123683E, 0x01021994, 0x794C7630, 0xF2F52010, 0x2FC12FC1, 0xCA451A4E),
)
#: Folders of one project. A user may have some thousands in all.
_MOST = 512
_MODIFY, _ATTRIB, _MOVED, _CREATE, _DELETE, _DELETE_SELF, _MOVE_SELF = 0x2, 0x4, 0xC0, 0x100, 0x200, 0x400, 0x800
_ONLY_FOLDERS, _NO_LINKS, _ADD = 0x01000000, 0x02000000, 0x20000000
#: Added to what is asked of a folder already: one that is above others by way of a link may be among them as well.
_SELF = _DELETE_SELF | _MOVE_SELF | _ONLY_FOLDERS | _ADD
_MASK = _SELF | _MODIFY | _ATTRIB | _MOVED | _CREATE | _DELETE | _NO_LINKS
_READ = 1 << 16


def is_told_of(path: str, *, is_folder: bool, size: int) -> bool:
    """Whether every change of a file or folder is noted in the folder that it lies in.

    Args:
        path: Its.
        is_folder: Whether it is one.
        size: A file's, in bytes; an empty one has nothing that could be mapped.
    """
    if is_folder or not size:
        return True
    name = path.rpartition(os.sep)[2]
    return os.path.splitext(name)[1] in _TEXT or name in _TEXTS  # noqa: PTH122 - of hundreds


def is_straight(path: str) -> bool:
    """Whether a path leads through no links, so that what it leads to changes only if a folder on it is moved."""
    return os.path.realpath(path) == path


def open_notices(folders: Iterable[str]) -> Notices | None:
    """Notes of what happens in these folders from now on, and of moves of those above them.

    Returns:
        None where that can't be had.
    """
    within = dict.fromkeys(folders)
    above = {str(one) for folder in within for one in Path(folder).parents} - {*within}
    if sys.platform != "linux" or not 0 < len(within) <= _MOST:
        return None
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    if descriptor < 0:  # the user has too many of them
        return None
    watches = [*((one, _MASK) for one in within), *((one, _SELF) for one in above)]
    if all(_watch(libc, descriptor, os.fsencode(path), mask) for path, mask in watches):
        return Notices(descriptor)
    os.close(descriptor)
    return None


def _watch(libc: Any, descriptor: int, path: bytes, mask: int) -> bool:
    return _is_local(libc, path) and libc.inotify_add_watch(descriptor, path, mask) >= 0


class Notices:
    """What was noted. Not for a process that was forked later: it would take the notes away from its parent.

    Args:
        descriptor: Of inotify's; owned from now on.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._pid = os.getpid()
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        self._poll = poll.poll
        self._end = weakref.finalize(self, _close, descriptor, self._pid)
        self._end.atexit = False

    def are_none(self) -> bool:
        """Whether nothing was noted since this was asked last."""
        if os.getpid() != self._pid:
            return False
        if not self._poll(0):
            return True
        with contextlib.suppress(OSError):  # all of them, or the next question would hear of these
            while os.read(self._descriptor, _READ):
                pass
        return False

    def close(self) -> None:
        """Ends it."""
        self._end()


class _Statfs(ctypes.Structure):
    """The beginning of statfs(2)'s answer, which is never longer than this."""

    _fields_ = (("f_type", ctypes.c_long), ("rest", ctypes.c_char * 512))


def _is_local(libc: Any, path: bytes) -> bool:
    found = _Statfs()
    return libc.statfs(path, ctypes.byref(found)) == 0 and found.f_type & 0xFFFFFFFF in _LOCAL


def _close(descriptor: int, pid: int) -> None:
    if os.getpid() == pid:
        with contextlib.suppress(OSError):
            os.close(descriptor)

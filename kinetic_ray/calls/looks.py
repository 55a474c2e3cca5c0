"""What files and folders look like by their stat, and whether they still look so: asked at every call.

On Linux a path is followed once: a descriptor of what it leads to is asked from then on, in half the time. What a path
leads to only changes with the folder that the last part of it lies in. So this holds for what lies in a folder that is
looked at as well; the others, the topmost ones, are looked at by their paths each time.
"""

from __future__ import annotations

import contextlib
import itertools
import operator
import os
import stat
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence

#: When the inode changed, when the content did; size, inode, mode.
Look = tuple[int, ...]
_FACTS: Callable[[os.stat_result], Look] = operator.attrgetter(
    "st_ctime_ns", "st_mtime_ns", "st_size", "st_ino", "st_mode"
)
_INODE, _MODE = 3, 4
#: A descriptor of this kind reads nothing and holds nothing up. 0 where there are none.
_PATH_ONLY: int = getattr(os, "O_PATH", 0)
#: A process may have some hundreds of descriptors, which are the user's.
_MOST = 128


class Looks:
    """How some paths look at one time.

    Attributes:
        seen: Of those that are there, in no order.
    """

    def __init__(self, paths: Iterable[str]) -> None:
        found = {path: look(path) for path in paths}
        there = {path: seen for path, seen in found.items() if seen is not None}
        self._missing = tuple(path for path, seen in found.items() if seen is None)
        inner = [path for path in there if _is_folder(there.get(path.rpartition(os.sep)[0]))]
        self._inner = inner[:_MOST] if _PATH_ONLY else []
        by_path = there.keys() - {*self._inner}
        self._by_path = tuple(by_path)
        self.seen = [*(there[path] for path in self._by_path), *(there[path] for path in self._inner)]
        self._descriptors: list[int] = []
        self._opened = not self._inner

    def hold(self) -> bool:
        """Whether nothing has changed."""
        if not self._opened:
            self._open()
        # A good part of what a call costs this process: so in as few steps as there are.
        lstat, fstat, facts = os.lstat, os.fstat, _FACTS
        try:
            now = [facts(lstat(path)) for path in self._by_path]
            now += [facts(fstat(descriptor)) for descriptor in self._descriptors]
        except OSError:
            return False
        return now == self.seen and not any(map(os.access, self._missing, itertools.repeat(os.F_OK)))

    def _open(self) -> None:
        """Opens what is looked at from now on. What has changed by now looks otherwise, or can't be opened."""
        self._opened = True
        inodes = [seen[_INODE] for seen in self.seen[len(self._by_path) :]]
        weakref.finalize(self, _close, self._descriptors, inodes).atexit = False
        with contextlib.suppress(OSError):  # then there are too few of them, which counts as changed
            self._descriptors.extend(_opened(self._inner))


def look(path: str) -> Look | None:
    """What is compared of a file or folder; None where there is none."""
    try:
        return _FACTS(os.lstat(path))
    except OSError:
        return None


def _is_folder(seen: Look | None) -> bool:
    """A link to a folder is none: it stays as it is when something in that folder is replaced."""
    return seen is not None and stat.S_ISDIR(seen[_MODE])


def _opened(paths: Sequence[str]) -> Iterator[int]:
    for path in paths:
        yield os.open(path, _PATH_ONLY | os.O_NOFOLLOW | os.O_CLOEXEC)


def _close(descriptors: list[int], inodes: Sequence[int]) -> None:
    """Closes what is ours still: a program that turns into a daemon closes all, and gets the same numbers again."""
    for descriptor, inode in zip(descriptors, inodes, strict=False):
        with contextlib.suppress(OSError):
            if os.fstat(descriptor).st_ino == inode:
                os.close(descriptor)

"""What files and folders look like by their stat, and whether they still look so: asked at every call.

On Linux most of them aren't even asked: :mod:`~kinetic_ray.calls.notices` says that nothing has happened in their
folders. Of the others a path is followed once: a descriptor of what it leads to is asked from then on, in half the
time. What a path leads to only changes with the folder that the last part of it lies in. So both hold for what lies in
a folder that is looked at as well; the others, the topmost ones, are looked at by their paths each time.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import stat
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path

from kinetic_ray.bundle.stamps import Stamp, stamp_of
from kinetic_ray.calls.notices import Notices, is_straight, is_told_of, open_notices

_LOG = logging.getLogger("kinetic_ray")

#: How a path looks.
Look = Stamp
_SIZE, _INODE, _MODE = 2, 3, 4
#: A descriptor of this kind reads nothing and holds nothing up. 0 where there are none.
_PATH_ONLY: int = getattr(os, "O_PATH", 0)
#: A process may have some hundreds of descriptors, which are the user's.
_MOST = 128
#: With fewer left than these, people are told.
_FEW = 32


class Looks:
    """How some paths look at one time.

    Args:
        paths: These.
        notices: Gives notes of what happens in some folders, so that what lies there needn't be looked at.

    Attributes:
        seen: Of those that are there, in no order.
    """

    def __init__(self, paths: Iterable[str], notices: Callable[[Iterable[str]], Notices | None] = open_notices) -> None:
        found = {path: look(path) for path in paths}
        self._there = {path: seen for path, seen in found.items() if seen is not None}
        self._missing = tuple(path for path, seen in found.items() if seen is None)
        self.seen = [*self._there.values()]
        self._open_notices = notices
        self._notices: Notices | None = None
        self._by_path: tuple[str, ...] = tuple(self._there)
        self._descriptors: list[int] = []
        self._expected = self.seen
        self._is_open = self._differs = False

    def hold(self) -> bool:
        """Whether nothing has changed since."""
        if not self._is_open:
            self._open()
        elif not self._differs and (self._notices is None or self._notices.are_none()):
            return self._others_hold()
        self._differs = self._differs or not self._all_hold()  # what was noted is noted once
        return not self._differs

    def _others_hold(self) -> bool:
        """Whether nothing has changed that no notes are taken of. At each call, so in as few steps as there are."""
        lstat, fstat, facts = os.lstat, os.fstat, stamp_of
        try:
            now = [facts(lstat(path)) for path in self._by_path]
            now += [facts(fstat(descriptor)) for descriptor in self._descriptors]
        except OSError:
            return False
        return now == self._expected and not any(map(os.access, self._missing, itertools.repeat(os.F_OK)))

    def _all_hold(self) -> bool:
        try:
            now = [stamp_of(os.lstat(path)) for path in self._there]
        except OSError:
            return False
        return now == self.seen and not any(map(os.access, self._missing, itertools.repeat(os.F_OK)))

    def _open(self) -> None:
        """From now on fewer are looked at by their paths. All are once more afterwards."""
        self._is_open = True
        there = self._there
        inner = [path for path in there if _is_folder(there.get(_folder_of(path)))]
        folders = {path for path in there if _is_folder(there[path])}
        noted = {path for path in inner if is_told_of(path, is_folder=path in folders, size=there[path][_SIZE])}
        noted |= {path for path in folders if is_straight(path)}
        self._notices = self._open_notices(folders) if noted else None
        left = [path for path in inner if self._notices is None or path not in noted]
        by_descriptor = left[: _share_of_descriptors()]
        self._by_path = tuple(there.keys() - (noted if self._notices is not None else ()) - {*by_descriptor})
        inodes = [there[path][_INODE] for path in by_descriptor]
        weakref.finalize(self, _close, self._descriptors, inodes).atexit = False
        with contextlib.suppress(OSError):  # then there are too few of them, which counts as changed
            self._descriptors.extend(_opened(by_descriptor))
        self._expected = [there[path] for path in (*self._by_path, *by_descriptor)]


def look(path: str) -> Look | None:
    """What is compared of a file or folder; None where there is none."""
    try:
        return stamp_of(os.lstat(path))
    except OSError:
        return None


def _folder_of(path: str) -> str:
    return path.rpartition(os.sep)[0]


def _is_folder(seen: Look | None) -> bool:
    """A link to a folder is none: it stays as it is when something in that folder is replaced."""
    return seen is not None and stat.S_ISDIR(seen[_MODE])


def _share_of_descriptors() -> int:
    """How many descriptors may be held: a part of those that are left, for the rest are the user's and the call's."""
    if not _PATH_ONLY:
        return 0
    import resource  # where there is such a descriptor, there is this

    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if limit == resource.RLIM_INFINITY:
        return _MOST
    try:
        left = limit - sum(1 for _ in Path("/proc/self/fd").iterdir())
    except OSError:  # not even one, or no such folder
        return 0
    if left < _FEW:
        _mention_few(limit)
    return max(0, min(_MOST, left // 4))


@lru_cache(maxsize=1)  # once, not at every call
def _mention_few(limit: int) -> None:
    _LOG.warning(
        "this process has hardly any file descriptors left of %d: calls take longer, and may fail; `ulimit -n` helps",
        limit,
    )


def _opened(paths: Sequence[str]) -> Iterator[int]:
    for path in paths:
        yield os.open(path, _PATH_ONLY | os.O_NOFOLLOW | os.O_CLOEXEC)


def _close(descriptors: list[int], inodes: Sequence[int]) -> None:
    """Closes what is ours still: a program that turns into a daemon closes all, and gets the same numbers again."""
    for descriptor, inode in zip(descriptors, inodes, strict=False):
        with contextlib.suppress(OSError):
            if os.fstat(descriptor).st_ino == inode:
                os.close(descriptor)

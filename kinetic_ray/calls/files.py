"""The files of a project as they are now: compared by their stat at each call, as git does, packed when they differ.

What is compared of a file is also when its inode last changed, which no program can set: an edit that keeps size and
time of modification is seen. Only one that comes within the same tick of the file system's clock isn't; so what changed
that shortly before it was looked at counts as changed once more.
"""

from __future__ import annotations

import hashlib
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

from kinetic_ray.bundle import Bundle, Project
from kinetic_ray.bundle.archive import Packer
from kinetic_ray.bundle.origins import Source, origin_of
from kinetic_ray.bundle.project import Needs
from kinetic_ray.bundle.stamps import is_fresh
from kinetic_ray.calls.looks import Looks
from kinetic_ray.calls.selecting import Selecting


@dataclass(frozen=True, slots=True)
class Sent:
    """A project as it is sent.

    Attributes:
        bundle: None where there is nothing to send.
        digest: SHA-256 of the archive; "" for none.
        sys_path: Folders for `sys.path`, relative to the root.
        cwd: The working folder in the bundle.
    """

    bundle: Bundle | None
    digest: str
    sys_path: tuple[str, ...]
    cwd: str


def files_of(project: Project, modules: Iterable[str]) -> ProjectFiles:
    """The files of a project that a function needs: functions that need the same ones share them.

    Args:
        project: The function's.
        modules: Modules that the function refers to by name.
    """
    needed = frozenset(name for name in modules if origin_of(name).source is Source.FILE)
    places = frozenset(_place_of(project, name) for name in needed)
    with _SHARED_LOCK:
        found = _SHARED.get((project, places))
        if found is None:
            found = _SHARED[project, places] = ProjectFiles(project, needed)
        return found


def sent_now(project: Project, modules: Collection[str]) -> Sent:
    """A project as it is sent now, for whoever keeps nothing from one call to the next.

    Args:
        project: The function's.
        modules: Modules that the function refers to by name.

    Raises:
        PayloadError: Too large.
    """
    files = files_of(project, modules)
    _LAST.append(files)
    sent = files.current()
    files.mention_drift()  # at each call: what a program sets in a module shows in no file
    return sent


def _place_of(project: Project, name: str) -> tuple[Path | None, Path | None]:
    """What a module adds to what is sent: a folder for `sys.path`, and its file where that isn't sent anyway."""
    origin = origin_of(name)
    inside = project.root is not None and origin.file is not None and origin.file.is_relative_to(project.root)
    return origin.folder, None if inside else origin.file


class ProjectFiles:
    """Gives a project's archive as its files are now.

    Args:
        project: Whose files.
        modules: Modules that the function refers to by name.
    """

    def __init__(self, project: Project, modules: frozenset[str]) -> None:
        self._project = project
        self._modules = modules
        self._lock = threading.Lock()
        self._sent: Sent | None = None
        self._packer = Packer()
        self._looks = Looks(())
        self._program: tuple[object, ...] = ()
        self._needs: Needs | None = None
        self._selecting = Selecting(project)
        self._is_doubtful = True

    def current(self) -> Sent:
        """The archive; the very same object while nothing has changed.

        Raises:
            PayloadError: Too large.
        """
        with self._lock:
            if self._sent is None or self._is_doubtful or self._differs():
                self._sent = self._build(self._sent)
            return self._sent

    def _differs(self) -> bool:
        if not self._looks.hold():
            return True
        program = _program()
        if program == self._program:
            return False
        before, self._program = self._program, program
        # More modules are loaded, of which perhaps none is the project's, or referred to by it.
        return before[0] != program[0] or self._project.needs(self._modules) != self._needs

    def mention_drift(self) -> None:
        """Says what hosts will see otherwise than this process, where that wasn't said before."""
        with self._lock:
            needs = self._needs
        if needs is not None:
            self._project.mention_drift(self._modules, needs)

    def _build(self, before: Sent | None) -> Sent:
        begun = time.time_ns()
        self._program, needs = _program(), self._project.needs(self._modules)
        # Looked at before it is read: what changes meanwhile looks otherwise at the next call.
        selection, paths = self._selecting.select(needs, self._program[0])
        self._looks = Looks(paths)
        self._is_doubtful = any(is_fresh(seen, begun) for seen in self._looks.seen)
        self._needs = needs
        self._project.mention_drift(self._modules, needs)
        bundle = selection.pack(self._packer)
        digest = "" if bundle is None else hashlib.sha256(bundle.data).hexdigest()
        new = Sent(bundle, digest, selection.sys_path, selection.cwd)
        same = before is not None and _facts(before) == _facts(new)
        return before if same and before is not None else new


def _facts(sent: Sent) -> tuple[object, ...]:
    return sent.digest, sent.sys_path, sent.cwd


def _program() -> tuple[object, ...]:
    """What of this process decides what is sent: where it looks for modules, which it has loaded.

    A module that is loaded becomes the last of the table, so the number and the last one tell of any that was.
    """
    return tuple(sys.path), len(sys.modules), next(reversed(sys.modules))


#: What is in use; a cache, so of the process by nature.
_SHARED: weakref.WeakValueDictionary[tuple[Project, frozenset[object]], ProjectFiles] = weakref.WeakValueDictionary()
_SHARED_LOCK = threading.Lock()
#: What was used last stays in use.
_LAST: deque[ProjectFiles] = deque(maxlen=2)

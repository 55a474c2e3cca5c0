"""What of a project is sent, found anew only where more than the content of its files may have changed.

Going through a project and its ignore files takes longer than looking at each of its files. Which files there are is
told by their folders; so while only files look otherwise, they are the same ones.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from kinetic_ray import config
from kinetic_ray.bundle import Project, Selection
from kinetic_ray.bundle.project import Needs
from kinetic_ray.bundle.rules import GIT_FILE, OWN_FILE, repository_folders
from kinetic_ray.bundle.stamps import is_fresh
from kinetic_ray.bundle.tree import Entry, Kind
from kinetic_ray.calls.looks import Look, look

_SIZE, _MODE = 2, 4


class Selecting:
    """Selects again and again. Not thread-safe.

    Args:
        project: Of which project.
    """

    def __init__(self, project: Project) -> None:
        self._project = project
        self._facts: tuple[object, ...] = ()
        self._looks: dict[str, Look | None] = {}
        self._deciders: frozenset[str] = frozenset()
        self._selection: Selection | None = None
        self._is_doubtful = False

    def select(self, needs: Needs, search_path: object) -> tuple[Selection, list[str]]:
        """What is sent, and the paths that tell whether it changes.

        Args:
            needs: What is needed of the modules that are loaded.
            search_path: The process's `sys.path`.

        Raises:
            PayloadError: Too large.
        """
        facts = (needs, search_path, config.bundle_limit())
        before = self._selection if facts == self._facts and not self._is_doubtful else None
        looks = {path: look(path) for path in self._looks} if before is not None else {}
        same = None if before is None else self._with_other_contents(before, looks)
        if same is None:
            begun = time.time_ns()
            same = self._project.select(needs=needs)
            watched, self._deciders = _watched(self._project, same)
            looks = {path: look(path) for path in watched}
            self._is_doubtful = any(is_fresh(seen, begun) for seen in self._deciding(same, looks))
        self._facts, self._looks, self._selection = facts, looks, same
        return same, [*looks]

    def _with_other_contents(self, selection: Selection, looks: Mapping[str, Look | None]) -> Selection | None:
        """The selection where only files have changed; None where others may be sent, or too many bytes."""
        changed = {path: seen for path, seen in looks.items() if seen != self._looks[path]}
        if not changed:
            return selection
        entries = {os.fspath(entry.path): entry for entry in selection.entries}
        for path, seen in changed.items():
            entry = entries.get(path)
            if entry is None or seen is None or path in self._deciders or not _is_content(entry, seen):
                return None
            entries[path] = replace(entry, size=seen[_SIZE], executable=bool(seen[_MODE] & stat.S_IXUSR))
        if sum(entry.size for entry in entries.values()) > config.bundle_limit():
            return None  # which says what is too large
        return replace(selection, entries=tuple(entries.values()))

    def _deciding(self, selection: Selection, looks: Mapping[str, Look | None]) -> Iterator[Look]:
        """How that looks which decides what is sent: what changed while it was gone through may be there unseen."""
        files = {os.fspath(entry.path) for entry in selection.entries if entry.kind is Kind.FILE}
        for path, seen in looks.items():
            if seen is not None and (path not in files or path in self._deciders):
                yield seen


def _is_content(entry: Entry, seen: Look) -> bool:
    """Whether an entry is still a file."""
    return entry.kind is Kind.FILE and stat.S_ISREG(seen[_MODE])


def _watched(project: Project, selection: Selection) -> tuple[list[str], frozenset[str]]:
    """What is looked at: entries, the folders that they lie in, and (also apart) what decides which are left out."""
    paths = [entry.path for entry in selection.entries]
    folders = [entry.path for entry in selection.entries if entry.kind is Kind.FOLDER]
    if project.root is not None:
        folders.append(project.root)
    folders += selection.packages
    deciders = [os.fspath(path) for path in _ignore_files(project, folders)]
    found = [*(os.fspath(path) for path in (*paths, *folders)), *deciders]
    return list(dict.fromkeys(found)), frozenset(deciders)


def _ignore_files(project: Project, folders: Iterable[Path]) -> Iterator[Path]:
    """Ignore files, and the files that those which are links lead to."""
    for path in _ignore_names(project, folders):
        yield path
        if path.is_symlink():
            yield path.resolve()


def _ignore_names(project: Project, folders: Iterable[Path]) -> Iterator[Path]:
    above = [] if project.root is None else repository_folders(project.root)[1:]
    for folder in above:
        yield from (folder / GIT_FILE, folder / OWN_FILE)  # also where there is none yet: the folder isn't looked at
    for folder in folders:
        yield from (path for path in (folder / GIT_FILE, folder / OWN_FILE) if path.exists())

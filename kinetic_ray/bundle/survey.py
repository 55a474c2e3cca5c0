"""What travels of a project, how big, and why; what doesn't, and why: for people, before anything is sent.

No code of the project is run for that, so what only a running program knows is told as such: which modules it has
loaded. Those from elsewhere are found by the imports in the sources that are sent.
"""

from __future__ import annotations

import os
import posixpath
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from importlib.machinery import ModuleSpec, PathFinder
from itertools import islice
from pathlib import Path, PurePosixPath

from kinetic_ray import config
from kinetic_ray.bundle.origins import is_installed
from kinetic_ray.bundle.outside import Outside
from kinetic_ray.bundle.project import Project, find_project
from kinetic_ray.bundle.reach import imported_names
from kinetic_ray.bundle.rules import MARKS, Why
from kinetic_ray.bundle.tree import Entry, Kind, LeftOut, Look, file_entry, look, too_large
from kinetic_ray.errors import PayloadError

#: Environments and histories hold more files than one wants to wait for.
_MOST_WEIGHED = 100_000
_OURS = __name__.partition(".")[0]
_SOURCES = (".py", ".so", ".pyd")


@dataclass(frozen=True, slots=True)
class Item:
    """One file, link or folder.

    Attributes:
        name: Its path in the project; a folder's ends with "/".
        size: Bytes, of a folder those of all in it; None where these are too many to be counted.
        why: Why it is sent, or isn't.
        kind: Of what isn't sent, the kind of reason: see :class:`~kinetic_ray.bundle.rules.Why`.
    """

    name: str
    size: int | None
    why: str
    kind: str = ""


@dataclass(frozen=True, slots=True)
class Survey:
    """What a call would send.

    Attributes:
        root: The project's root; None where only a script is sent.
        why_root: Why it is that folder.
        cwd: The working folder on the hosts, relative to the root.
        sent: What travels, the largest first.
        left_out: What doesn't, the largest first.
        problem: Why a call would be refused; "" where it wouldn't.
        entries: What travels, as it is on this machine.
    """

    root: Path | None
    why_root: str
    cwd: str
    sent: tuple[Item, ...]
    left_out: tuple[Item, ...]
    problem: str = ""
    entries: tuple[Entry, ...] = ()

    @property
    def size(self) -> int:
        """Bytes of all that travels."""
        return sum(item.size or 0 for item in self.sent)


def project_at(place: Path, *, avoid: Iterable[Path] = ()) -> Project:
    """The project of a script, or of a folder.

    Args:
        place: The script, or the folder.
        avoid: Folders that are never sent.

    Raises:
        ConfigError: KINETIC_PACKAGE_ROOT can't be the root.
    """
    script = None if place.is_dir() else place.resolve()
    found = find_project(project_at, script or place.resolve() / "-", avoid=avoid)
    return replace(found, main_file=None, script=script)


def survey(project: Project) -> Survey:
    """Looks at a project as a call would, and sends nothing."""
    limit = config.bundle_limit()
    found = _look(project)
    entries = [*found.entries]
    problem = "" if project.root is None else too_large(project.root, entries, limit)
    imported = _Imports(project, entries)
    try:
        outside = [*imported.outside.entries(project.avoid, limit)]
    except PayloadError as exc:
        outside, problem = [], problem or str(exc)
    why = _Whys(found)
    sent = [Item(each.name, each.size, why.of(each)) for each in entries if each.kind != Kind.FOLDER]
    sent += [Item(each.name, each.size, imported.why(each)) for each in outside if each.kind != Kind.FOLDER]
    budget = _Weighing()
    left_out = [
        Item(_name_of(each), budget.size_of(each), _why_left_out(each), each.reason.why) for each in found.left_out
    ]
    return Survey(
        root=project.root,
        why_root=_why_root(project),
        cwd=project.relative_cwd,
        sent=_sorted(sent),
        left_out=_sorted(left_out),
        problem=problem,
        entries=(*entries, *outside),
    )


def _look(project: Project) -> Look:
    if project.root is not None:
        return look(project.root, avoid=project.avoid, wanted=sorted(project.loaded()))
    return Look([] if project.script is None else [file_entry(project.script, project.script.name)], [])


def _sorted(items: list[Item]) -> tuple[Item, ...]:
    return tuple(sorted(items, key=lambda item: (item.size is not None, -(item.size or 0), item.name)))


def _name_of(each: LeftOut) -> str:
    return f"{each.name}/" if each.is_folder else each.name


def _why_root(project: Project) -> str:
    if project.root is None:
        return "home, the temporary folder and what holds them are never sent: a script there goes without its folder"
    if config.setting("package_root"):
        return "KINETIC_PACKAGE_ROOT names it"
    mark = next((mark for mark in MARKS if (project.root / mark).exists()), None)
    if mark is None:
        return f"the folder itself: no {', '.join(MARKS[:-1])} or {MARKS[-1]} in it or above"
    return f"it holds {mark}"


class _Whys:
    """Why entries are sent."""

    def __init__(self, found: Look) -> None:
        self._loaded = found.loaded
        self._names = {entry.name for entry in found.entries}
        marks = [entry for entry in found.entries if entry.kind is Kind.FOLDER and entry.name.endswith(".dist-info")]
        #: Folders that packages were installed into (`pip install --target vendor`).
        self._installed = {posixpath.dirname(entry.name) for entry in marks}

    def of(self, entry: Entry) -> str:
        if entry.kind is Kind.LINK:
            target = posixpath.normpath(posixpath.join(posixpath.dirname(entry.name), entry.target))
            there = "" if target == "." or target in self._names else ", which is left out"
            return f"a link to {target}{there}"
        if entry.name in self._loaded:
            return "loaded, although a .gitignore names it"
        vendor = next(
            (str(folder) for folder in PurePosixPath(entry.name).parents if str(folder) in self._installed), ""
        )
        return f"in the project; packages were installed into {vendor}/" if vendor else "in the project"


def _why_left_out(each: LeftOut) -> str:
    if each.reason.why is Why.GITIGNORE and each.name.endswith(_SOURCES):
        return f"{each.reason.text} (a program that has loaded it sends it)"
    return each.reason.text


class _Weighing:
    """Sizes of folders that aren't sent, as long as they aren't too many."""

    def __init__(self) -> None:
        self._left = _MOST_WEIGHED

    def size_of(self, each: LeftOut) -> int | None:
        if not each.is_folder:
            return each.size
        total = 0
        for status in islice(_below(each.path), self._left):
            self._left -= 1
            total += status.st_size
        return total if self._left else None


def _below(folder: Path) -> Iterator[os.stat_result]:
    for place, _, names in os.walk(folder):
        for name in names:
            try:
                yield (Path(place) / name).lstat()
            except OSError:  # it went while we looked
                continue


class _Imports:
    """The modules from elsewhere on this machine that the sources of a project import."""

    def __init__(self, project: Project, entries: Iterable[Entry]) -> None:
        self._project = project
        self._path = _search_path(project)
        self._importers: dict[Path, Path] = {}  # a package's folder, or a module's file -> what imports it
        seen: set[str] = set()
        waiting = [entry.path for entry in entries]
        while waiting:
            path = waiting.pop()
            for top in {name.partition(".")[0] for name in _imports_of(path)} - seen:
                seen.add(top)
                waiting += self._follow(top, path)

    @property
    def outside(self) -> Outside:
        """Where they are."""
        tops: dict[Path, set[Path]] = {}
        for top in self._importers:
            tops.setdefault(top.parent, set()).add(top)
        return Outside({folder: frozenset(tops[folder]) for folder in sorted(tops)})

    def why(self, entry: Entry) -> str:
        """Why one of its entries is sent."""
        top = next(top for top in self._importers if top == entry.path or top in entry.path.parents)
        importer, root = self._importers[top], self._project.root
        shown = importer.relative_to(root).as_posix() if root and importer.is_relative_to(root) else importer
        return f"from {top.parent}, where {shown} imports {top.stem} (once the program has loaded it)"

    def _follow(self, top: str, importer: Path) -> list[Path]:
        """Notes a module if it lies elsewhere; the files to look through then."""
        if top in sys.stdlib_module_names or top == _OURS:
            return []
        place = _place_of(PathFinder.find_spec(top, self._path))
        root = self._project.root
        if place is None or is_installed(place) or (root is not None and place.is_relative_to(root)):
            return []
        self._importers[place] = importer
        return [entry.path for entry in look(place).entries] if place.is_dir() else [place]


def _search_path(project: Project) -> list[str]:
    """Where a script finds modules: its own folder, then what isn't installed of this process's path."""
    begin = project.cwd if project.script is None else project.script.parent
    listed = [Path(entry).resolve() for entry in sys.path if entry]
    others = [entry for entry in listed if entry != project.cwd and not is_installed(entry)]
    return list(dict.fromkeys(map(str, [begin, *others])))


def _place_of(spec: ModuleSpec | None) -> Path | None:
    """The folder of a package, or the file of a module."""
    if spec is None or (not spec.submodule_search_locations and not spec.origin):
        return None
    folders = spec.submodule_search_locations
    place = Path(next(iter(folders)) if folders else str(spec.origin)).resolve()
    return place if place.exists() else None


def _imports_of(path: Path) -> Iterator[str]:
    if path.suffix == ".py":
        try:
            yield from imported_names(path.read_text("utf-8", errors="replace"))
        except OSError:  # it went while we looked
            return

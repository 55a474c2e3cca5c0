"""The project that a function belongs to: its root, what is sent of it, how it is laid out."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from kinetic_ray import config
from kinetic_ray.bundle.archive import Packer
from kinetic_ray.bundle.drift import mention_drift
from kinetic_ray.bundle.editable import editable_folders
from kinetic_ray.bundle.origins import Origin, Source, file_of, is_installed, loaded_modules, origin_of
from kinetic_ray.bundle.outside import Outside
from kinetic_ray.bundle.reach import reached
from kinetic_ray.bundle.rules import MARKS, OWN_FILE, by_default
from kinetic_ray.bundle.tree import Entry, Kind, biggest, file_entry, scan
from kinetic_ray.errors import ConfigError

_LOG = logging.getLogger("kinetic_ray")

#: A project above one of these is mentioned: it may be a folder that happens to hold a script.
_LARGE_BYTES, _LARGE_FILES = 32 << 20, 5_000


@dataclass(frozen=True, slots=True)
class Bundle:
    """A project as it is sent.

    Attributes:
        data: The archive.
        sys_path: Folders for `sys.path`, relative to the root.
        cwd: The working folder, relative to the root.
    """

    data: bytes = field(repr=False)
    sys_path: tuple[str, ...]
    cwd: str


@dataclass(frozen=True, slots=True)
class Selection:
    """What of a project is to be sent, before any of it is read.

    Attributes:
        root: The project's root.
        entries: Files, folders and links, in no order.
        sys_path: Folders for `sys.path`, relative to the root.
        cwd: The working folder, relative to the root.
        packages: Folders outside of the project that are sent whole.
    """

    root: Path | None
    entries: tuple[Entry, ...]
    sys_path: tuple[str, ...]
    cwd: str
    packages: tuple[Path, ...] = ()

    def pack(self, packer: Packer | None = None) -> Bundle | None:
        """Reads the files; None if there is nothing to send.

        Args:
            packer: One that has packed the project before needn't read all of them again.
        """
        if not self.entries:
            return None
        data = (packer or Packer()).pack(sorted(self.entries, key=lambda entry: entry.name))
        return Bundle(data, self.sys_path, self.cwd)


@dataclass(frozen=True, slots=True)
class Needs:
    """What a call needs of the modules that are loaded.

    Attributes:
        loaded: Files of the project that are loaded as modules: they are sent although a .gitignore names them.
        reached: The modules that hosts need, by name: see :mod:`~kinetic_ray.bundle.reach`.
    """

    loaded: frozenset[Path]
    reached: Mapping[str, Origin]


@dataclass(frozen=True, slots=True)
class Project:
    """Where a function's code is on this machine.

    Attributes:
        root: What is sent; None for a script in a folder that can't be sent whole (HOME, the temporary folder).
        cwd: The client's working folder.
        main_file: The script that was started; None for a notebook or an interpreter's prompt.
        avoid: Folders that are never sent: the store, KINETIC_HOME.
        script: A script that is to be run on the hosts, if that is what the call is for.
    """

    root: Path | None
    cwd: Path
    main_file: Path | None = None
    avoid: tuple[Path, ...] = ()
    script: Path | None = None

    @property
    def main_name(self) -> str | None:
        """The script's path in the bundle, if it is in there."""
        if self.root is None or self.main_file is None or not self.main_file.is_relative_to(self.root):
            return None
        return self.main_file.relative_to(self.root).as_posix()

    @property
    def relative_cwd(self) -> str:
        """The working folder in the bundle; the root where the client's lies elsewhere."""
        inside = self.root is not None and self.cwd.is_relative_to(self.root)
        return self.cwd.relative_to(self.root).as_posix() if self.root and inside else "."

    def script_path(self) -> str:
        """The script as a host finds it: from the working folder."""
        assert self.script is not None
        if self.root is None:
            return self.script.name
        return os.path.relpath(self.script, self.root / self.relative_cwd)

    def goes_by_value(self, module: str) -> bool:
        """Whether a loaded module can't be imported on a host, so that what it defines has to travel in the payload."""
        return origin_of(module).source in (Source.MAIN, Source.LOOSE)

    def build(self, modules: Iterable[str] = ()) -> Bundle | None:
        """Collects what is sent.

        Args:
            modules: Modules that the call refers to by name.

        Returns:
            None if there is nothing to send.

        Raises:
            PayloadError: Too large.
        """
        return self.select(modules).pack()

    def select(self, modules: Iterable[str] = (), needs: Needs | None = None) -> Selection:
        """Finds what is sent; see :meth:`build`.

        Args:
            modules: Modules that the call refers to by name.
            needs: What :meth:`needs` gave for them, where it was just asked.
        """
        needs = self.needs(modules) if needs is None else needs
        origins = [*needs.reached.values()]
        outside = Outside.of(origin for origin in origins if not self._holds(origin.path))
        entries = (*self._inside(needs.loaded), *outside.entries(self.avoid, config.bundle_limit()))
        if self.root is not None:
            _mention_if_large(self.root, entries)
        search_path = self._search_path(origins, outside)
        return Selection(self.root, entries, search_path, self.relative_cwd, tuple(outside.packages()))

    def needs(self, modules: Iterable[str] = ()) -> Needs:
        """What of this process decides what is sent, besides its `sys.path`."""
        names = {*modules} if self.root is not None else {*modules, *self._siblings(), "__main__"}
        return Needs(self.loaded(), reached(names, self._holds))

    def mention_drift(self, modules: Iterable[str], needs: Needs) -> None:
        """Says what of the modules that a call needs hosts will see otherwise: see :func:`mention_drift`."""
        names = dict.fromkeys([*sorted(modules), *needs.reached])  # the nearest first
        mention_drift({name: sys.modules[name] for name in names if name in needs.reached and name in sys.modules})

    def loaded(self) -> frozenset[Path]:
        """Files of the project that are loaded as modules: they are sent although a .gitignore names them."""
        files = [file_of(sys.modules.get(name)) for name in loaded_modules()]
        return frozenset(file for file in files if file is not None and self._holds(file))

    def _inside(self, loaded: Iterable[Path]) -> list[Entry]:
        if self.root is None:
            return [] if self.script is None else [file_entry(self.script, self.script.name)]
        return scan(self.root, avoid=self.avoid, wanted=sorted(loaded), limit=config.bundle_limit())

    def _search_path(self, origins: Iterable[Origin], outside: Outside) -> tuple[str, ...]:
        """The client's `sys.path` where it is sent, in its order, then what else the modules need."""
        listed = [(self.cwd / entry).resolve() for entry in sys.path]
        needed = [origin.folder for origin in origins if origin.folder is not None]
        editable = [folder for project, folder in editable_folders() if self._holds(project)]
        names = [self._place_of(folder, outside) for folder in [*listed, *needed, *editable]]
        return tuple(dict.fromkeys(name for name in names if name is not None))

    def _place_of(self, folder: Path, outside: Outside) -> str | None:
        if self.root is not None and self._holds(folder):
            return folder.relative_to(self.root).as_posix()
        return outside.place_of(folder)

    def _siblings(self) -> Iterator[str]:
        """Loaded modules from the script's own folder, for a script whose folder can't be sent whole."""
        folder = self.cwd if self.main_file is None else self.main_file.parent
        for name in loaded_modules():
            origin = origin_of(name)
            if origin.source is Source.FILE and origin.folder == folder:
                yield name

    def _holds(self, path: Path) -> bool:
        """Whether a path is in the project, and not in an environment that lies in it."""
        if self.root is None or not path.is_relative_to(self.root):
            return False
        folders = [
            folder for folder in (path, *path.parents) if folder != self.root and folder.is_relative_to(self.root)
        ]
        return not any(by_default(folder, folder=True) for folder in folders)


def _mention_if_large(root: Path, entries: Collection[Entry]) -> None:
    sizes = [entry.size for entry in entries if entry.kind is not Kind.FOLDER]
    if sum(sizes) > _LARGE_BYTES or len(sizes) > _LARGE_FILES:
        _mention_large(root, len(sizes), round(sum(sizes) / 1e6), biggest(entries))


@lru_cache(maxsize=8)  # once, not at every call of a loop
def _mention_large(root: Path, files: int, megabytes: int, largest: str) -> None:
    _LOG.warning(
        "the project %s is large: %d files of %d MB are sent, and unpacked by every rank. Biggest: %s. What the job "
        "does not need can be named in %s; kinetic ship --list shows what is sent",
        *(root, files, megabytes, largest, root / OWN_FILE),
    )


def find_project(function: Callable[..., Any], script: Path | None = None, *, avoid: Iterable[Path] = ()) -> Project:
    """The project of a function.

    Args:
        function: Its module decides; the started script stands in for a function of Python's or of a package.
        script: A script that the function is to run, which decides instead.
        avoid: Folders that are never sent.

    Raises:
        ConfigError: KINETIC_PACKAGE_ROOT can't be the root.
    """
    try:
        cwd = Path.cwd().resolve()
    except FileNotFoundError:
        raise ConfigError("the working folder has been deleted: change to one that exists") from None
    main_file = file_of(sys.modules.get("__main__"))
    begin, folder = (script.resolve().parent,) * 2 if script else _start_of(function, main_file, cwd)
    given = config.setting("package_root")
    root = _checked_root(Path(given), begin) if given else find_root(begin, folder)
    return Project(root, cwd, main_file, tuple(path.resolve() for path in avoid), script)


def find_root(begin: Path, folder: Path | None = None) -> Path | None:
    """The nearest folder from `begin` upwards that holds pyproject.toml, setup.py or .git.

    Args:
        begin: Where to begin, resolved.
        folder: What to take where no folder has a mark; `begin` by default.

    Returns:
        None where that would be the home folder, the temporary folder, or a folder that holds one of these.
    """
    forbidden = _forbidden()
    for parent in (begin, *begin.parents):
        if parent in forbidden:
            break
        if any((parent / mark).exists() for mark in MARKS):
            return parent
    chosen = folder or begin
    return None if chosen in forbidden else chosen


def _start_of(function: Callable[..., Any], main_file: Path | None, cwd: Path) -> tuple[Path, Path]:
    """Where the search begins, and the folder that is sent where nothing is found."""
    origin = origin_of(getattr(function, "__module__", None) or "__main__")
    if origin.source is Source.FILE and origin.file and origin.folder:
        return origin.file.parent, origin.folder
    scripts = Path(sysconfig.get_path("scripts")).resolve()
    if main_file is None or is_installed(main_file) or main_file.is_relative_to(scripts):
        return cwd, cwd
    package = getattr(sys.modules["__main__"], "__package__", None) or ""
    depth = len(package.split(".")) if package else 0
    return main_file.parent, [main_file.parent, *main_file.parent.parents][depth]


def _checked_root(given: Path, begin: Path) -> Path:
    root = given.expanduser().resolve()
    if not begin.is_relative_to(root):
        raise ConfigError(f"KINETIC_PACKAGE_ROOT={str(given)!r}: the code that is run, in {begin}, does not lie in it")
    if root in _forbidden():
        raise ConfigError(f"KINETIC_PACKAGE_ROOT={str(given)!r}: this folder is never sent; name the project's own")
    return root


def _forbidden() -> frozenset[Path]:
    """Folders that hold far more than a project."""
    ends = [Path(tempfile.gettempdir()).resolve()]
    with contextlib.suppress(RuntimeError):  # no home is known
        ends.append(Path.home().resolve())
    return frozenset(folder for end in ends for folder in (end, *end.parents))

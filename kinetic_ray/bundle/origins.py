"""Where a loaded module comes from, and so how a host can get it."""

from __future__ import annotations

import os
import site
import sys
import sysconfig
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

_PACKAGES = ("site-packages", "dist-packages")
_OURS = __name__.partition(".")[0]
_STDLIB = sysconfig.get_path("stdlib") + os.sep
#: Names that processes give to what was started, not to what can be imported.
MAIN_NAMES = frozenset({"__main__", "__mp_main__"})


class Source(StrEnum):
    """Where a module comes from."""

    MAIN = "main"  # the script itself
    INSTALLED = "installed"  # Python's own, a package, kinetic_ray: every host has it
    FILE = "file"  # found below some folder under its own name
    LOOSE = "loose"  # made at run time, or loaded from a file of another name


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a module comes from.

    Attributes:
        source: See :class:`Source`.
        folder: For a FILE: the folder, or the zip file, that has to be on `sys.path`.
        file: For MAIN and FILE, where known: the module's file.
    """

    source: Source
    folder: Path | None = None
    file: Path | None = None

    @property
    def path(self) -> Path:
        """Of a FILE: its file."""
        assert self.file is not None
        return self.file


def origin_of(name: str) -> Origin:
    """Where a loaded module comes from.

    Example:
        >>> origin_of("json").source
        <Source.INSTALLED: 'installed'>
    """
    top = name.partition(".")[0]
    if top in sys.stdlib_module_names or top == _OURS:
        return Origin(Source.INSTALLED)
    file = file_of(sys.modules.get(name))
    if name in MAIN_NAMES:
        return Origin(Source.MAIN, file=file)
    if file is None:
        return Origin(Source.INSTALLED if _has_installed_top(top) else Source.LOOSE)
    if is_installed(file):
        return Origin(Source.INSTALLED)
    if (archive := _archive_of(file)) is not None:
        return Origin(Source.FILE, archive, archive)
    folder = _folder_for(name, file)
    return Origin(Source.LOOSE, file=file) if folder is None else Origin(Source.FILE, folder, file)


def module_dict(module: object) -> dict[str, Any]:
    """A module's names; {} for what only stands in for a module. A lazy one isn't loaded by that."""
    if not issubclass(type(module), ModuleType):
        return {}
    names: dict[str, Any] = ModuleType.__getattribute__(module, "__dict__")
    return names


def file_of(module: ModuleType | None) -> Path | None:
    """A module's file, resolved; None for built-in, frozen and made-up modules."""
    file = getattr(module, "__file__", None)
    if not isinstance(file, str) or file.startswith("<"):
        return None
    return Path(file).resolve()


def loaded_modules() -> list[str]:
    """Names of the loaded modules that lie in no folder of packages, and aren't Python's or ours: few of thousands.

    By their paths as they are spelled, since following the links of thousands would take a tenth of a second.
    """
    found = []
    for name, module in [*sys.modules.items()]:
        file = getattr(module, "__file__", None)
        if isinstance(file, str) and not any(part in file for part in _PACKAGES) and not file.startswith(_STDLIB):
            found += [name] if name.partition(".")[0] != _OURS else []
    return found


def is_installed(path: Path) -> bool:
    """Whether a path belongs to Python or to its installed packages."""
    return any(part in _PACKAGES for part in path.parts) or any(path.is_relative_to(home) for home in _homes())


@cache
def _homes() -> tuple[Path, ...]:
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    paths = {sysconfig.get_path(name) for name in names} | {site.getusersitepackages()}
    return tuple(Path(path).resolve() for path in sorted(paths))


def _has_installed_top(top: str) -> bool:
    """Whether a module without a file belongs to an installed package, or is built in."""
    module = sys.modules.get(top)
    file = file_of(module)
    if file is not None:
        return is_installed(file)
    places = [Path(place) for place in getattr(module, "__path__", ())]
    return top in sys.builtin_module_names or (bool(places) and all(is_installed(place) for place in places))


def _archive_of(file: Path) -> Path | None:
    """The zip file that a module was imported from; None for a module of a file of its own."""
    if file.exists():
        return None
    there = next((parent for parent in file.parents if parent.exists()), None)
    return there if there is not None and there.is_file() else None


def _folder_for(name: str, file: Path) -> Path | None:
    """The folder from which `import name` finds this file; None if its path doesn't spell the name."""
    parts = name.split(".")
    stem = file.name.partition(".")[0]  # of "fast.cpython-311-x86_64-linux-gnu.so" as well
    tail = file.parent if stem == "__init__" else file.parent / stem
    return tail.parents[len(parts) - 1] if tail.parts[-len(parts) :] == tuple(parts) else None

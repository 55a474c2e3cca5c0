"""Projects that are installed in place (`pip install -e`), and the folders from which their packages are imported."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib.metadata import Distribution, distributions
from pathlib import Path
from urllib.parse import unquote, urlsplit

from kinetic_ray.bundle.origins import Origin, Source, is_installed

_OURS = Path(__file__).resolve().parents[1]
#: What many projects have, and none is known by.
_OF_MANY = frozenset(
    {
        "benchmarks",
        "bin",
        "build",
        "conftest",
        "data",
        "dist",
        "docs",
        "examples",
        "scripts",
        "setup",
        "src",
        "test",
        "tests",
    }
)


@dataclass(frozen=True, slots=True)
class InPlace:
    """A project that is installed in place.

    Attributes:
        project: Its folder.
        folders: Those that have to be on `sys.path`. Some build backends put none there, but have a hook find the
            packages: nothing else tells of one that the program hasn't loaded yet.
        tops: Names of its top-level modules, as far as they are known.
    """

    project: Path
    folders: tuple[Path, ...]
    tops: frozenset[str]


@cache  # what is installed into a running process is rarely used by it
def in_place() -> tuple[InPlace, ...]:
    """The projects that are installed in place."""
    found = []
    for distribution in distributions():
        if (project := _project_of(distribution)) is not None:
            tops = _tops_of(distribution)
            folders = dict.fromkeys([*map(_folder_of, tops), *_listed_by(distribution)])
            there = tuple(folder for folder in folders if folder is not None and folder.is_relative_to(project))
            found.append(InPlace(project, there, frozenset(tops) | _others_in(there, tops)))
    return tuple(found)


@cache
def in_place_beside_us() -> tuple[InPlace, ...]:
    """The same without our own project."""
    return tuple(each for each in in_place() if not _OURS.is_relative_to(each.project))


def editable_folders() -> list[tuple[Path, Path]]:
    """The projects' folders, each with one that has to be on `sys.path`."""
    return [(each.project, folder) for each in in_place() for folder in each.folders]


def found_in_place(top: str) -> Origin | None:
    """Where a module that isn't loaded lies, if that is a project that is installed in place."""
    for folder in (folder for each in in_place_beside_us() for folder in each.folders):
        for file in (folder / top / "__init__.py", folder / f"{top}.py"):
            if file.exists():
                return Origin(Source.FILE, folder, file)
    return None


def names_in(folder: str | os.PathLike[str]) -> Iterator[str]:
    """Names of the modules and packages that a folder may have."""
    try:
        with os.scandir(folder) as entries:
            names = [(entry.name, entry.is_dir()) for entry in entries]
    except OSError:  # there is none, or it is a zip file
        return
    for name, is_folder in names:
        stem, _, suffix = name.partition(".")
        if stem.isidentifier() and (is_folder if not suffix else suffix.endswith(("py", "so", "pyd"))):
            yield stem


def _others_in(folders: Iterable[Path], tops: Iterable[str]) -> frozenset[str]:
    """What lies in the folders of a project whose packages go by other names than it does."""
    if any((folder / top).exists() or (folder / f"{top}.py").exists() for folder in folders for top in tops):
        return frozenset()
    return frozenset(name for folder in folders for name in names_in(folder)) - _OF_MANY


def _project_of(distribution: Distribution) -> Path | None:
    """Where a distribution lies that is installed in place; None for any other."""
    try:
        told = json.loads(distribution.read_text("direct_url.json") or "{}")
        is_editable, url = told.get("dir_info", {}).get("editable"), urlsplit(told.get("url", ""))
    except (ValueError, AttributeError, OSError):
        return None
    return Path(unquote(url.path)).resolve() if is_editable and url.scheme == "file" else None


def _tops_of(distribution: Distribution) -> list[str]:
    listed = (distribution.read_text("top_level.txt") or "").split()
    return listed or [distribution.metadata["Name"].replace("-", "_")]


def _folder_of(top: str) -> Path | None:
    """The folder from which a top-level module is imported; it isn't imported by that."""
    with contextlib.suppress(ImportError, ValueError, AttributeError):
        spec = importlib.util.find_spec(top)
        if spec is not None and spec.submodule_search_locations:
            return Path(next(iter(spec.submodule_search_locations))).resolve().parent
        if spec is not None and spec.origin:
            return Path(spec.origin).resolve().parent
    return None


def _listed_by(distribution: Distribution) -> Iterator[Path]:
    """The folders that a distribution's own .pth file puts on `sys.path`, whatever its packages are called."""
    for file in distribution.files or ():
        if file.suffix == ".pth":
            with contextlib.suppress(OSError, UnicodeDecodeError):
                for line in Path(os.fspath(file.locate())).read_text("utf-8").splitlines():
                    if line and not line.startswith(("#", "import ", "import\t")) and not is_installed(Path(line)):
                        yield Path(line).resolve()

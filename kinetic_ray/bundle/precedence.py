"""What a bundle holds goes before the same thing installed in place: not beside it, instead of it.

The hosts of the embedded cluster share the client's environment, and with it the folders of the projects that are
installed there in place. These go on being edited while a job queues, and what of them isn't in the bundle must not be
found there, or the job would run half of what was sent and half of what lies there now.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence, Set
from importlib.machinery import BuiltinImporter, FrozenImporter, ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

from kinetic_ray.bundle.editable import in_place_beside_us, names_in
from kinetic_ray.bundle.origins import file_of, is_installed

#: How setuptools names what it puts on `sys.path` for a finder of its own.
_MARKER = "__editable__."
_PYTHONS_OWN = (BuiltinImporter, FrozenImporter, PathFinder)


def put_first(folders: Sequence[str], wanted: Collection[str] = ()) -> None:
    """Puts folders of a bundle first on `sys.path`, and takes off what they hold of projects installed in place.

    Args:
        folders: Absolute paths.
        wanted: Entries that stay: who names a folder in PYTHONPATH wants it as it is.
    """
    rest = [entry for entry in sys.path if entry not in folders]
    if projects := in_place_beside_us():
        names = {name for folder in folders for name in names_in(folder)}
        sent = [each for each in projects if not each.tops.isdisjoint(names)]
        there = _There([each.project for each in sent], {top for each in sent for top in each.tops & names})
        rest = [entry for entry in rest if entry in wanted or not there.is_hidden(entry)]
        sys.meta_path[:] = [there.less(finder) for finder in sys.meta_path]
        there.forget(sys.modules)
    sys.path[:] = [*folders, *rest]


class _There:
    """What is installed in place of that which a bundle holds."""

    def __init__(self, projects: Sequence[Path], names: Set[str]) -> None:
        self._projects = projects
        self._names = names

    def is_hidden(self, entry: str) -> bool:
        """Whether an entry of `sys.path` leads to it."""
        if entry.startswith(_MARKER):
            return any(self._holds_spec(PathFinder.find_spec(name, [entry])) for name in self._names)
        return self._holds(Path(entry)) and not self._names.isdisjoint(names_in(entry))

    def less(self, finder: Any) -> Any:
        """A finder without it; the finder itself, where it finds nothing of it."""
        if finder in _PYTHONS_OWN or isinstance(finder, _Less):
            return finder
        found = {name for name in self._names if self._holds_spec(_found_by(finder, name))}
        return _Less(finder, found) if found else finder

    def forget(self, modules: dict[str, ModuleType]) -> None:
        """Lets go of what was imported of it when Python started."""
        for name, module in [*modules.items()]:
            if name.partition(".")[0] in self._names and (file := file_of(module)) is not None and self._holds(file):
                del modules[name]

    def _holds_spec(self, spec: ModuleSpec | None) -> bool:
        if spec is None:
            return False
        places = [spec.origin] if spec.has_location else [*(spec.submodule_search_locations or ())]
        return any(self._holds(Path(place)) for place in places if place)

    def _holds(self, path: Path) -> bool:
        path = path.resolve()
        return any(path.is_relative_to(project) for project in self._projects) and not is_installed(path)


class _Less:
    """A finder of modules that doesn't know some of them."""

    def __init__(self, finder: Any, names: Collection[str]) -> None:
        self._finder = finder
        self._names = names

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if fullname.partition(".")[0] in self._names:
            return None
        spec: ModuleSpec | None = self._finder.find_spec(fullname, path, target)
        return spec

    def __getattr__(self, name: str) -> Any:  # find_distributions, say
        return getattr(self._finder, name)


def _found_by(finder: Any, name: str) -> ModuleSpec | None:
    try:
        spec: ModuleSpec | None = finder.find_spec(name, None, None)
    except Exception:  # noqa: BLE001 - a foreign finder may raise anything, and then finds nothing
        return None
    return spec

"""Projects that are installed in place (`pip install -e`), and the folders from which their packages are imported."""

from __future__ import annotations

import contextlib
import importlib.util
import json
from functools import cache
from importlib.metadata import Distribution, distributions
from pathlib import Path
from urllib.parse import unquote, urlsplit


@cache  # what is installed into a running process is rarely used by it
def editable_folders() -> tuple[tuple[Path, Path], ...]:
    """The projects' folders, each with one that has to be on `sys.path`.

    Some build backends put no folder there, but have a hook find the packages: nothing else tells of one that the
    program hasn't loaded yet.
    """
    found: dict[tuple[Path, Path], None] = {}
    for distribution in distributions():
        project = _project_of(distribution)
        for name in _tops_of(distribution) if project else ():
            folder = _folder_of(name)
            if project is not None and folder is not None and folder.is_relative_to(project):
                found[project, folder] = None
    return tuple(found)


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

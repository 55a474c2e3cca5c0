"""What a plane leaves that no kernel takes away: its folder and its cgroups."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from cluster.sim.folder import Folder

_CGROUPS = Path("/sys/fs/cgroup")
_BEING_MADE = 600.0  # seconds for which a folder may be without facts


def make_folder(folder: Folder) -> None:
    """Makes a plane's folder, which only its owner can read."""
    while True:
        folder.path.parent.mkdir(mode=0o700, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):  # the last plane but this one has just taken the root with it
            return folder.path.mkdir(mode=0o700)


def remove_remains(folder: Folder) -> None:
    """Removes a plane's folder and cgroups; none of its processes may live."""
    for group in cgroups_of(folder.path.name):
        for path, _, _ in os.walk(group, topdown=False):
            with contextlib.suppress(FileNotFoundError):
                Path(path).rmdir()
    shutil.rmtree(folder.path, ignore_errors=True)
    with contextlib.suppress(OSError):  # others' planes are in it
        folder.path.parent.rmdir()


def cgroups_of(name: str) -> Iterator[Path]:
    """The tops of a plane's cgroups: one in each hierarchy of version 1, one in version 2."""
    for place in (_CGROUPS, *_CGROUPS.glob("*/")):
        group = place / name
        if group.is_dir():
            yield group


def sweep(root: Path) -> list[str]:
    """Removes what planes left whose keepers were killed; their other processes died with these.

    Returns:
        The names of the planes.
    """
    found = []
    for path in sorted(root.iterdir()) if root.is_dir() else ():
        folder = Folder(path)
        try:
            if folder.read_facts().keeper.lives():
                continue
        except (OSError, ValueError):
            if time.time() - path.stat().st_mtime < _BEING_MADE:
                continue
        remove_remains(folder)
        found.append(path.name)
    return found

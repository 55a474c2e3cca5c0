"""The files of a project that are sent, in one order on every machine."""

from __future__ import annotations

import logging
import os
import stat
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from kinetic_ray.bundle.rules import Rules, by_default
from kinetic_ray.errors import PayloadError

_LOG = logging.getLogger("kinetic_ray")

_MOST_ENTRIES = 50_000
_SHOWN = 5


class Kind(StrEnum):
    """What an entry is."""

    FOLDER = "folder"
    FILE = "file"
    LINK = "link"


@dataclass(frozen=True, slots=True)
class Entry:
    """One thing to send.

    Attributes:
        name: Path relative to the root, with "/".
        path: Where it is.
        kind: What it is.
        size: Bytes of a file.
        executable: Whether its owner may execute it.
        target: Where a link leads, relative to its own folder.
    """

    name: str
    path: Path
    kind: Kind
    size: int = 0
    executable: bool = False
    target: str = ""


def scan(root: Path, *, avoid: Collection[Path] = (), wanted: Collection[Path] = (), limit: int) -> list[Entry]:
    """What of a project is sent.

    Args:
        root: The project's root, resolved.
        avoid: Folders that are left out, such as the store.
        wanted: Files that are sent although a .gitignore names them: modules that the program has loaded.
        limit: Most bytes in all.

    Raises:
        PayloadError: Too large; names what is biggest.
    """
    walk = _Walk(root, avoid)
    found = {entry.name: entry for entry in walk.below(root, "", Rules.at_root(root))}
    for path in wanted:
        if (entry := walk.wanted(path)) and entry.name not in found:
            found[entry.name] = entry
    entries = [found[name] for name in sorted(found)]
    if sum(entry.size for entry in entries) > limit or len(entries) > _MOST_ENTRIES:
        raise _too_large(root, entries, limit)
    return entries


def file_entry(path: Path, name: str, status: os.stat_result | None = None) -> Entry:
    """A file as an entry of that name."""
    status = status or path.stat()
    return Entry(name, path, Kind.FILE, status.st_size, bool(status.st_mode & stat.S_IXUSR))


class _Walk:
    def __init__(self, root: Path, avoid: Collection[Path]) -> None:
        self._root = root
        self._avoid = frozenset(path for path in avoid if path != root and path.is_relative_to(root))
        self._count = 0

    def below(self, folder: Path, relative: str, rules: Rules) -> Iterator[Entry]:
        for path in _children(folder):
            name = f"{relative}/{path.name}" if relative else path.name
            try:
                mode = path.lstat()
            except OSError:  # it went while we looked
                continue
            is_folder = stat.S_ISDIR(mode.st_mode)
            if path in self._avoid or rules.leaves_out(path, name, folder=is_folder):
                continue
            self._count += 1
            if is_folder:
                yield Entry(name, path, Kind.FOLDER)
                if self._count <= 2 * _MOST_ENTRIES:  # enough to say what is too large
                    yield from self.below(path, name, rules.below(path, name))
            elif stat.S_ISLNK(mode.st_mode):
                yield from self._link(path, name)
            elif stat.S_ISREG(mode.st_mode):
                yield file_entry(path, name, mode)

    def wanted(self, path: Path) -> Entry | None:
        """The entry of a loaded module's file, unless it is third-party's, a secret, or left out by the user."""
        if not path.is_relative_to(self._root) or not path.is_file():
            return None
        parents = [parent for parent in path.parents if parent != self._root and parent.is_relative_to(self._root)]
        if by_default(path, folder=False) or any(by_default(parent, folder=True) for parent in parents):
            return None
        if any(avoided in path.parents for avoided in self._avoid) or self._unwanted([*parents[::-1], path]):
            return None
        return file_entry(path, path.relative_to(self._root).as_posix())

    def _unwanted(self, chain: list[Path]) -> bool:
        """Whether a .kineticignore names a file or one of its folders."""
        rules = Rules.at_root(self._root)
        for path in chain:
            name = path.relative_to(self._root).as_posix()
            is_folder = path != chain[-1]
            if rules.own_word(name, folder=is_folder):
                return True
            rules = rules.below(path, name) if is_folder else rules
        return False

    def _link(self, path: Path, name: str) -> Iterator[Entry]:
        """A link that stays inside the project is sent as a link; one that leaves it, or leads nowhere, is not."""
        real = Path(os.path.realpath(path))
        if not real.is_relative_to(self._root):
            _LOG.warning("%s is not sent: it links to %s, outside of the project %s", name, real, self._root)
        elif real.exists():
            yield Entry(name, path, Kind.LINK, target=os.path.relpath(real, path.parent).replace(os.sep, "/"))


def _children(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError as exc:
        _LOG.warning("%s is not sent: it can't be read: %s", folder, exc)
        return []


def _too_large(root: Path, entries: list[Entry], limit: int) -> PayloadError:
    sizes: Counter[str] = Counter()
    for entry in entries:
        parts = entry.name.split("/")
        sizes["/".join(parts[:2]) if len(parts) > 2 else entry.name] += entry.size
    total = sum(sizes.values())
    biggest = ", ".join(f"{name} ({size / 1e6:.1f} MB)" for name, size in sizes.most_common(_SHOWN))
    return PayloadError(
        f"the project {root} is too large to be sent with each change: {len(entries)} files and folders of "
        f"{total / 1e6:.1f} MB, at most {_MOST_ENTRIES} of {limit / 1e6:.0f} MB are allowed. Biggest: {biggest}. "
        "Name what the job does not need in a .kineticignore file, or raise KINETIC_BUNDLE_LIMIT_MB"
    )

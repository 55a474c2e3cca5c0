"""The files of a project that are sent, in one order on every machine."""

from __future__ import annotations

import logging
import os
import stat
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from pathlib import Path

from kinetic_ray.bundle.rules import OWN_FILE, Reason, Rules, Why, by_default
from kinetic_ray.errors import PayloadError

_LOG = logging.getLogger("kinetic_ray")

_MOST_ENTRIES = 50_000
_SHOWN = 5
_AVOIDED = Reason(Why.AVOIDED, "the store, or kinetic's own files")
_SPECIAL = Reason(Why.SPECIAL, "a pipe, socket or device")


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


@dataclass(frozen=True, slots=True)
class LeftOut:
    """One thing that is not sent, with all that lies below it.

    Attributes:
        name: Path relative to the root, with "/".
        path: Where it is.
        is_folder: Whether it is a folder.
        reason: Why.
        size: Bytes of a file; 0 for a folder.
    """

    name: str
    path: Path
    is_folder: bool
    reason: Reason
    size: int = 0


@dataclass(frozen=True, slots=True)
class Look:
    """What there is in a project.

    Attributes:
        entries: What is sent, by name.
        left_out: What is not.
        loaded: Names of entries that are sent only because the program has loaded them.
    """

    entries: list[Entry]
    left_out: list[LeftOut]
    loaded: frozenset[str] = field(default=frozenset())


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
    found = look(root, avoid=avoid, wanted=wanted)
    if problem := too_large(root, found.entries, limit):
        raise PayloadError(problem)
    _mention_secrets(root, [each.name for each in found.left_out if each.reason.why is Why.SECRET])
    for each in found.left_out:
        if each.reason.why in (Why.LINK, Why.UNREADABLE):
            _mention(f"{each.name} is not sent: {each.reason.text}")
    return found.entries


def look(root: Path, *, avoid: Collection[Path] = (), wanted: Collection[Path] = ()) -> Look:
    """What of a project is sent, however large, and what is not; see :func:`scan`."""
    walk = _Walk(root, avoid)
    found = {entry.name: entry for entry in walk.below(root, "", Rules.at_root(root))}
    entries = [entry for path in wanted if (entry := walk.wanted(path))]
    loaded = {entry.name: entry for entry in entries if entry.name not in found}
    found |= loaded
    left_out = [each for each in walk.left_out if each.name not in loaded]
    return Look([found[name] for name in sorted(found)], left_out, frozenset(loaded))


def _mention_secrets(root: Path, names: list[str]) -> None:
    if names:
        more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        _mention(
            f"not sent, because they look like keys or passwords: {', '.join(names[:_SHOWN])}{more} in {root}. "
            f"Hosts get secrets by secrets=[...]. To send one, write !{names[0]} in {root / OWN_FILE}; "
            f"to end this notice, write {names[0]} there"
        )


@lru_cache(maxsize=64)  # once, not at every call of a loop
def _mention(line: str) -> None:
    _LOG.warning("%s", line)


def file_entry(path: Path, name: str, status: os.stat_result | None = None) -> Entry:
    """A file as an entry of that name."""
    status = status or path.stat()
    return Entry(name, path, Kind.FILE, status.st_size, bool(status.st_mode & stat.S_IXUSR))


class _Walk:
    def __init__(self, root: Path, avoid: Collection[Path]) -> None:
        self._root = root
        self._avoid = frozenset(path for path in avoid if path != root and path.is_relative_to(root))
        self._count = 0
        self.left_out: list[LeftOut] = []

    def below(self, folder: Path, relative: str, rules: Rules) -> Iterator[Entry]:
        for path in self._children(folder, relative):
            name = f"{relative}/{path.name}" if relative else path.name
            try:
                mode = path.lstat()
            except OSError:  # it went while we looked
                continue
            is_folder = stat.S_ISDIR(mode.st_mode)
            reason = _AVOIDED if path in self._avoid else rules.reason(path, name, folder=is_folder)
            if reason is not None:
                self._leave(path, name, mode, reason)
                continue
            self._count += 1
            if is_folder:
                yield Entry(name, path, Kind.FOLDER)
                if self._count <= 2 * _MOST_ENTRIES:  # enough to say what is too large
                    yield from self.below(path, name, rules.below(path, name))
            elif stat.S_ISLNK(mode.st_mode):
                yield from self._link(path, name, mode)
            elif stat.S_ISREG(mode.st_mode):
                yield file_entry(path, name, mode)
            else:
                self._leave(path, name, mode, _SPECIAL)

    def _children(self, folder: Path, relative: str) -> list[Path]:
        try:
            return sorted(folder.iterdir())
        except OSError as exc:
            reason = Reason(Why.UNREADABLE, f"it can't be read: {exc.strerror}")
            self.left_out.append(LeftOut(relative or ".", folder, is_folder=True, reason=reason))
            return []

    def _leave(self, path: Path, name: str, mode: os.stat_result, reason: Reason) -> None:
        is_folder = stat.S_ISDIR(mode.st_mode)
        self.left_out.append(LeftOut(name, path, is_folder, reason, 0 if is_folder else mode.st_size))

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

    def _link(self, path: Path, name: str, mode: os.stat_result) -> Iterator[Entry]:
        """A link that stays inside the project is sent as a link; one that leaves it, or leads nowhere, is not."""
        real = Path(os.path.realpath(path))
        if not real.is_relative_to(self._root):
            text = f"it links to {real}, outside of the project {self._root}"
            self._leave(path, name, mode, Reason(Why.LINK, text))
        elif real.exists():
            yield Entry(name, path, Kind.LINK, target=os.path.relpath(real, path.parent).replace(os.sep, "/"))
        else:
            self._leave(path, name, mode, Reason(Why.NOWHERE, f"it links to {real}, which isn't there"))


def too_large(root: Path, entries: Collection[Entry], limit: int) -> str:
    """Why entries are too many to be sent, with the names of what is biggest; "" if they aren't."""
    total = sum(entry.size for entry in entries)
    if total <= limit and len(entries) <= _MOST_ENTRIES:
        return ""
    return (
        f"the project {root} is too large to be sent with each change: {len(entries)} files and folders of "
        f"{total / 1e6:.1f} MB, at most {_MOST_ENTRIES} of {limit / 1e6:.0f} MB are allowed. "
        f"Biggest: {biggest(entries)}. Name what the job does not need in a .kineticignore file, "
        "or raise KINETIC_BUNDLE_LIMIT_MB. kinetic ship --list shows what is sent"
    )


def biggest(entries: Iterable[Entry]) -> str:
    """What weighs most: files, and folders of the second level with all in them."""
    sizes: Counter[str] = Counter()
    for entry in entries:
        parts = entry.name.split("/")
        sizes["/".join(parts[:2]) if len(parts) > 2 else entry.name] += entry.size
    return ", ".join(f"{name} ({size / 1e6:.1f} MB)" for name, size in sizes.most_common(_SHOWN))

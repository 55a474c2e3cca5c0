"""An archive as files: a folder that is made anew, or one that holds another archive's already, and is changed.

Making files costs more than all else of a project's way to a host, and from one call to the next most stay as they are.
So a folder that a rank no longer needs is given to the next one, with a record of what was written there. What by its
stamp is as it was written is kept, all else goes: whatever a rank has done to its folder, the next one finds what the
archive says and nothing more.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import stat
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from kinetic_ray.bundle.reading import Member, read_members
from kinetic_ray.bundle.stamps import Stamp, stamp_of
from kinetic_ray.bundle.tree import Kind

_PLAIN, _EXECUTABLE = 0o644, 0o755
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_VERSION = 1
_COMPILED = "__pycache__"

T = TypeVar("T")


def unpack(data: bytes, target: str | os.PathLike[str]) -> None:
    """Unpacks an archive into a folder; repeating it, also after a crash half-way, gives the same files.

    Args:
        data: What :func:`~kinetic_ray.bundle.archive.pack` made.
        target: The folder, made where missing.

    Raises:
        DataError: Damaged, or hostile: a name or link that leaves the folder, a device, a file below a link. Then
            nothing was written.

    Example:
        >>> from kinetic_ray.bundle.archive import pack
        >>> unpack(pack([]), "/tmp")
    """
    _write_all(data, read_members(data), os.fspath(target))


def place(data: bytes, target: Path) -> None:
    """Makes a folder hold what an archive does and nothing else, by changing what differs.

    A file beside it says what was written there. Where that is missing, or is of no use, the folder is made anew.

    Args:
        data: What :func:`~kinetic_ray.bundle.archive.pack` made.
        target: The folder; nobody else uses it.

    Raises:
        DataError: As of :func:`unpack`.
    """
    members = read_members(data)
    wanted = {member.name: _Wanted(member, _digest_of(data, member)) for member in members}
    record = _record_of(target)
    before = _read_record(record)
    record.unlink(missing_ok=True)  # what is left half-done has none
    root = os.fspath(target)
    kept: dict[str, Stamp] = {}
    try:
        if before is None:
            _clear(target)
        else:
            kept = _strip(root, data, wanted, before)
    except (OSError, RecursionError):
        _clear(target)
        kept = {}
    written = _write_all(data, [member for member in members if member.name not in kept], root)
    _write_record(record, wanted, {**kept, **written})


def hand_over(old: Path, new: Path) -> None:
    """Moves a folder that :func:`place` made, with what is known of it, to another place on the same file system.

    Args:
        old: Where it is, and nobody uses it any more. It may be missing.
        new: Where nothing is.
    """
    if _record_of(old).exists():
        with contextlib.suppress(OSError):  # then it is made anew
            old.rename(new)
            _record_of(old).rename(_record_of(new))


def _record_of(target: Path) -> Path:
    return target.with_name(f"{target.name}.json")


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A member, and the digest of its content."""

    member: Member
    digest: str


@dataclass(frozen=True, slots=True)
class _Record:
    """What was written into a folder.

    Attributes:
        until: When that was over, by the file system's clock: what changed after has this time or a later one.
        files: By name: the digest of its content, whether it is executable, its stamp.
    """

    until: int
    files: Mapping[str, tuple[str, bool, Stamp]] = field(default_factory=dict)


def _digest_of(data: bytes, member: Member) -> str:
    if member.kind is not Kind.FILE:
        return ""
    return hashlib.sha256(_content(data, member)).hexdigest()


def _content(data: bytes, member: Member) -> memoryview:
    """A file's bytes, where they lie in the archive: copying thousands of files twice would show."""
    return memoryview(data)[member.start : member.start + member.size]


# Taking away.


def _strip(root: str, data: bytes, wanted: Mapping[str, _Wanted], before: _Record) -> dict[str, Stamp]:
    """Takes away what isn't as it shall be; gives what is, with the stamps of files."""
    kept: dict[str, Stamp] = {}
    compiled: list[tuple[str, str]] = []
    waiting = [""]
    while waiting:
        folder = waiting.pop()
        with os.scandir(f"{root}/{folder}") as found:
            entries = [*found]
        for entry in entries:
            name = f"{folder}{entry.name}"
            each = wanted.get(name)
            stamp = None if each is None else _as_wanted(entry, name, each, data, before)
            if stamp is not None:
                kept[name] = stamp
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(f"{name}/")
            elif entry.name == _COMPILED and entry.is_dir(follow_symlinks=False) and each is None:
                compiled.append((folder, entry.path))
            else:
                _remove(entry)
    for folder, path in compiled:
        _strip_compiled(folder, path, kept)
    return kept


def _as_wanted(entry: os.DirEntry[str], name: str, wanted: _Wanted, data: bytes, before: _Record) -> Stamp | None:
    """The stamp of what is as it shall be, () for what has none; None for what isn't."""
    member, status = wanted.member, entry.stat(follow_symlinks=False)
    if member.kind is Kind.FOLDER:
        return () if stat.S_IMODE(status.st_mode) == _EXECUTABLE and stat.S_ISDIR(status.st_mode) else None
    if member.kind is Kind.LINK:
        same = stat.S_ISLNK(status.st_mode) and os.readlink(entry.path) == member.target  # noqa: PTH115 - thousands
        return () if same else None
    digest, executable, stamp = before.files.get(name, ("", False, ()))
    now = stamp_of(status)
    if (digest, executable, stamp) != (wanted.digest, member.executable, now):
        return None
    if now[0] < before.until:
        return now
    # It was among the last that were written: a change in the same tick of the clock would have left it this stamp.
    return now if Path(entry.path).read_bytes() == _content(data, member) else None


def _strip_compiled(folder: str, path: str, kept: Mapping[str, Stamp]) -> None:
    """Python's compiled files: good for sources that have never changed. Python itself compares whole seconds only."""
    with os.scandir(path) as found:
        for entry in [*found]:
            source = f"{folder}{entry.name.partition('.')[0]}.py"
            if source not in kept or not entry.is_file(follow_symlinks=False):
                _remove(entry)


def _clear(target: Path) -> None:
    """Takes all away; what withstands is at least out of the way."""
    shutil.rmtree(target, ignore_errors=True)
    if target.exists():
        target.rename(target.with_name(f"{target.name}.{time.time_ns()}"))


def _remove(entry: os.DirEntry[str]) -> None:
    if entry.is_dir(follow_symlinks=False):
        shutil.rmtree(entry.path)
    else:
        Path(entry.path).unlink()


# Writing.


def _write_all(data: bytes, members: list[Member], root: str) -> dict[str, Stamp]:
    """Writes members; gives the stamps of the files."""
    Path(root).mkdir(parents=True, exist_ok=True)
    made, stamps = {""}, {}
    # Links last: nothing is ever written through one.
    for member in sorted(members, key=lambda each: each.kind is Kind.LINK):
        stamps[member.name] = _write(root, member, _content(data, member), made)
    return stamps


def _write(root: str, member: Member, content: memoryview, made: set[str]) -> Stamp:
    """Writes one member; `made` are the folders that are known to be there."""
    name = member.name
    if member.kind is Kind.FOLDER:
        _make_folder(root, name, made)
        return ()
    _make_folder(root, name.rpartition("/")[0], made)
    path = f"{root}/{name}"
    if member.kind is Kind.LINK:
        _replace(path, lambda: Path(path).symlink_to(member.target))
        return ()
    mode = _EXECUTABLE if member.executable else _PLAIN
    file = _replace(path, lambda: os.open(path, _NEW, mode))
    try:
        os.fchmod(file, mode)  # whatever the umask
        while content:
            content = content[os.write(file, content) :]
        return stamp_of(os.fstat(file))
    finally:
        os.close(file)


def _replace(path: str, make: Callable[[], T]) -> T:
    """Makes something new under a path; what was there before goes, a link unfollowed."""
    try:
        return make()
    except FileExistsError:
        Path(path).unlink()
        return make()


def _make_folder(root: str, name: str, made: set[str]) -> None:
    """A folder and those above it; what stands in its place, a link left by an earlier bundle say, makes way."""
    if name in made:
        return
    _make_folder(root, name.rpartition("/")[0], made)
    path = Path(f"{root}/{name}")
    try:
        path.mkdir()
    except FileExistsError:
        if not stat.S_ISDIR(path.lstat().st_mode):
            path.unlink()
            path.mkdir()
    path.chmod(_EXECUTABLE)  # whatever the umask
    made.add(name)


# The record.


def _read_record(path: Path) -> _Record | None:
    """What was written into a folder; None where nothing is known."""
    try:
        told = json.loads(path.read_bytes())
        if told["version"] != _VERSION:
            return None
        files = {
            name: (digest, executable, tuple(stamp)) for name, (digest, executable, stamp) in told["files"].items()
        }
        return _Record(int(told["until"]), files)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _write_record(path: Path, wanted: Mapping[str, _Wanted], stamps: Mapping[str, Stamp]) -> None:
    files: dict[str, Any] = {
        name: (each.digest, each.member.executable, stamps[name])
        for name, each in wanted.items()
        if each.member.kind is Kind.FILE
    }
    with path.open("wb") as file:
        until = os.fstat(file.fileno()).st_ctime_ns  # made after all that it tells of
        file.write(json.dumps({"version": _VERSION, "until": until, "files": files}).encode())

"""A project as bytes: the same content gives the same bytes, and unpacking never leaves its folder."""

from __future__ import annotations

import io
import logging
import os
import stat
import tarfile
from collections.abc import Callable, Iterable
from itertools import takewhile
from pathlib import Path, PurePosixPath
from typing import TypeVar

from kinetic_ray.bundle.tree import Entry, Kind
from kinetic_ray.errors import DataError

_LOG = logging.getLogger("kinetic_ray")

_PLAIN, _EXECUTABLE = 0o644, 0o755
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC

T = TypeVar("T")


def pack(entries: Iterable[Entry]) -> bytes:
    """The entries as an archive: a tar without times, owners or any permission but "executable"."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for entry in entries:
            _add(archive, entry)
    return buffer.getvalue()


def _add(archive: tarfile.TarFile, entry: Entry) -> None:
    header = tarfile.TarInfo(entry.name)
    header.mode = _EXECUTABLE if entry.executable or entry.kind is Kind.FOLDER else _PLAIN
    if entry.kind is Kind.FOLDER:
        header.type = tarfile.DIRTYPE
        archive.addfile(header)
    elif entry.kind is Kind.LINK:
        header.type, header.linkname = tarfile.SYMTYPE, entry.target
        archive.addfile(header)
    else:
        try:
            content = entry.path.read_bytes()  # whole, so that a file which grows meanwhile can't tear the archive
        except OSError as exc:
            _LOG.warning("%s is not sent: it can't be read: %s", entry.path, exc)
            return
        header.size = len(content)
        archive.addfile(header, io.BytesIO(content))


def unpack(data: bytes, target: str | os.PathLike[str]) -> None:
    """Unpacks an archive into a folder; repeating it, also after a crash half-way, gives the same files.

    Args:
        data: What :func:`pack` made.
        target: The folder, made where missing.

    Raises:
        DataError: Damaged, or hostile: a name or link that leaves the folder, a device, a file below a link. Then
            nothing was written.

    Example:
        >>> unpack(pack([]), "/tmp")
    """
    try:
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as archive:
            members = archive.getmembers()
    except (tarfile.TarError, EOFError, ValueError, OverflowError) as exc:
        raise DataError(f"the code bundle ({len(data)} bytes) is damaged: {exc}") from exc
    _check(members)
    contents = [(member, _content(data, member)) for member in members]
    root = os.fspath(target)
    Path(root).mkdir(parents=True, exist_ok=True)
    made = {""}
    # Links last: nothing is ever written through one.
    for member, content in sorted(contents, key=lambda each: each[0].issym()):
        _write(root, member, content, made)


def _content(data: bytes, member: tarfile.TarInfo) -> memoryview:
    """A file's bytes, where they lie in the archive: copying thousands of files twice would show."""
    size = member.size if member.isreg() else 0
    content = memoryview(data)[member.offset_data : member.offset_data + size]
    if len(content) != size:
        raise DataError(f"the code bundle is damaged: {member.name} ends after {len(content)} of {size} bytes")
    return content


def _write(root: str, member: tarfile.TarInfo, content: memoryview, made: set[str]) -> None:
    """Writes one member; `made` are the folders that are known to be there."""
    name = member.name
    if member.isdir():
        _make_folder(root, name, made)
        return
    _make_folder(root, name.rpartition("/")[0], made)
    path = f"{root}/{name}"
    if member.issym():
        _replace(path, lambda: Path(path).symlink_to(member.linkname))
        return
    mode = _EXECUTABLE if member.mode & 0o100 else _PLAIN
    file = _replace(path, lambda: os.open(path, _NEW, mode))
    try:
        os.fchmod(file, mode)  # whatever the umask
        while content:
            content = content[os.write(file, content) :]
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
    made.add(name)


def _check(members: list[tarfile.TarInfo]) -> None:
    links = {member.name for member in members if member.issym()}
    seen: set[str] = set()
    for member in members:
        if problem := _problem(member, links, seen):
            raise DataError(f"the code bundle is refused: {member.name[:120]!r} {problem}")
        seen.add(member.name)


def _problem(member: tarfile.TarInfo, links: set[str], seen: set[str]) -> str:
    name = PurePosixPath(member.name)
    if not member.name or name.is_absolute() or ".." in name.parts or "\0" in member.name:
        return "does not name something inside the bundle"
    if str(name) != member.name:
        return "is not spelled plainly"
    if member.name in seen:
        return "is there twice"
    if any(str(parent) in links for parent in name.parents):
        return "lies below a link"
    if member.issym():
        inside = _stays_inside(name.parent, member.linkname)
        return "" if inside else "is a link that leads out of the bundle"
    return "" if (member.isreg() and not member.issparse()) or member.isdir() else "is no file or folder"


def _stays_inside(folder: PurePosixPath, target: str) -> bool:
    """Whether a link's target goes up first, no further than the root, and then only down.

    A ".." behind another link would be taken from where that link leads, which the spelling doesn't tell.
    """
    parts = PurePosixPath(target).parts
    ups = len(list(takewhile(lambda part: part == "..", parts)))
    plain = bool(target) and not target.startswith("/") and "\0" not in target
    return plain and ups <= len(folder.parts) and ".." not in parts[ups:]

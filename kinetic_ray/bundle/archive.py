"""A project as bytes: the same content gives the same bytes, and unpacking never leaves its folder."""

from __future__ import annotations

import io
import logging
import os
import tarfile
from collections.abc import Iterable
from itertools import takewhile
from pathlib import Path, PurePosixPath

from kinetic_ray.bundle.tree import Entry, Kind
from kinetic_ray.errors import DataError

_LOG = logging.getLogger("kinetic_ray")

_PLAIN, _EXECUTABLE = 0o644, 0o755


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
    root = Path(target)
    try:
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as archive:
            members = archive.getmembers()
            _check(members)
            contents = [(member, _content(archive, member)) for member in members]
    except (tarfile.TarError, EOFError, ValueError, OverflowError) as exc:
        raise DataError(f"the code bundle ({len(data)} bytes) is damaged: {exc}") from exc
    root.mkdir(parents=True, exist_ok=True)
    # Links last: nothing is ever written through one.
    for member, content in sorted(contents, key=lambda each: each[0].issym()):
        _write(root / member.name, member, content)


def _content(archive: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    file = archive.extractfile(member) if member.isreg() else None
    content = b"" if file is None else file.read()
    if member.isreg() and len(content) != member.size:
        raise DataError(f"the code bundle is damaged: {member.name} ends after {len(content)} of {member.size} bytes")
    return content


def _write(path: Path, member: tarfile.TarInfo, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if member.isdir():
        path.mkdir(exist_ok=True)
        return
    path.unlink(missing_ok=True)
    if member.issym():
        path.symlink_to(member.linkname)
        return
    path.write_bytes(content)
    path.chmod(_EXECUTABLE if member.mode & 0o100 else _PLAIN)


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
    return (
        "" if (member.isreg() and member.type != tarfile.GNUTYPE_SPARSE) or member.isdir() else "is no file or folder"
    )


def _stays_inside(folder: PurePosixPath, target: str) -> bool:
    """Whether a link's target goes up first, no further than the root, and then only down.

    A ".." behind another link would be taken from where that link leads, which the spelling doesn't tell.
    """
    parts = PurePosixPath(target).parts
    ups = len(list(takewhile(lambda part: part == "..", parts)))
    plain = bool(target) and not target.startswith("/") and "\0" not in target
    return plain and ups <= len(folder.parts) and ".." not in parts[ups:]

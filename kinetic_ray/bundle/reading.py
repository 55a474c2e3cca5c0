"""What an archive holds, checked whole before anything is made of it: nothing that leaves its folder."""

from __future__ import annotations

import io
import tarfile
from itertools import takewhile
from pathlib import PurePosixPath
from typing import NamedTuple

from kinetic_ray.bundle.tree import Kind
from kinetic_ray.errors import DataError

_BLOCK = tarfile.BLOCKSIZE
_EMPTY = bytes(_BLOCK)
_MAGIC, _NO_PREFIX = b"ustar\x0000", bytes(155)
_KINDS = {tarfile.REGTYPE: Kind.FILE, tarfile.DIRTYPE: Kind.FOLDER, tarfile.SYMTYPE: Kind.LINK}
_OWNERS_BIT = 0o100


class Member(NamedTuple):
    """One thing in an archive.

    Attributes:
        name: Path relative to the root, with "/".
        kind: What it is; None for what no project has.
        executable: Of a file: whether it is to be.
        start: Where a file's content begins.
        size: Bytes of it.
        target: Where a link leads.
    """

    name: str
    kind: Kind | None
    executable: bool = False
    start: int = 0
    size: int = 0
    target: str = ""


def read_members(data: bytes) -> list[Member]:
    """What is in an archive.

    Raises:
        DataError: Damaged, or hostile: a name or link that leaves the folder, a device, a file below a link.
    """
    members = _read_quickly(data)
    if members is None:
        members = _read_any(data)
    _check(members)
    for member in members:
        if (left := len(data) - member.start) < member.size:
            raise DataError(f"the code bundle is damaged: {member.name} ends after {left} of {member.size} bytes")
    return members


def _read_quickly(data: bytes) -> list[Member] | None:
    """Reads what :func:`~kinetic_ray.bundle.archive.pack` writes for nearly all projects, in a third of the time.

    None for anything else.
    """
    members: list[Member] = []
    place = 0
    longer: dict[str, str] | None = {}
    while (head := data[place : place + _BLOCK]) != _EMPTY:
        try:
            size, mode, checksum = int(head[124:135], 8), int(head[100:107], 8), int(head[148:154], 8)
        except ValueError:
            return None
        plain = head[257:265] == _MAGIC and head[345:500] == _NO_PREFIX and size >= 0
        if not plain or sum(head) - sum(head[148:156]) + 8 * 32 != checksum:
            return None
        start, kind = place + _BLOCK, head[156:157]
        place = start + size + -size % _BLOCK
        if kind == tarfile.XHDTYPE:
            if (longer := _read_longer(data[start : start + size])) is None:
                return None
            continue
        if kind not in _KINDS or (kind != tarfile.REGTYPE and size) or longer is None:
            return None
        name = longer.get("path") or _text(head[:100])
        target = longer.get("linkpath") or _text(head[157:257])
        longer = {}
        if kind == tarfile.DIRTYPE:
            name = name.rstrip("/")
        is_link = kind == tarfile.SYMTYPE
        members.append(Member(name, _KINDS[kind], bool(mode & _OWNERS_BIT), start, size, target if is_link else ""))
    return members


def _text(field: bytes) -> str:
    return field.partition(b"\0")[0].decode("utf-8", "surrogateescape")


def _read_longer(records: bytes) -> dict[str, str] | None:
    """Names that are too long, or not ASCII, for a plain header; None where there is anything else."""
    found = {}
    while records:
        length, _, rest = records.partition(b" ")
        if not length.isdigit() or not int(length) > len(length) + 1:
            return None
        record, records = rest[: int(length) - len(length) - 1], records[int(length) :]
        key, _, value = record.partition(b"=")
        if key not in (b"path", b"linkpath") or not value.endswith(b"\n"):
            return None
        try:
            found[key.decode()] = value[:-1].decode()
        except UnicodeDecodeError:
            return None
    return found


def _read_any(data: bytes) -> list[Member]:
    try:
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as archive:
            members = archive.getmembers()
    except (tarfile.TarError, EOFError, ValueError, OverflowError) as exc:
        raise DataError(f"the code bundle ({len(data)} bytes) is damaged: {exc}") from exc
    return [_member_of(each) for each in members]


def _member_of(info: tarfile.TarInfo) -> Member:
    kind = Kind.FILE if info.isreg() else _KINDS.get(info.type)
    place = (info.offset_data, info.size) if kind is Kind.FILE else (0, 0)
    target = info.linkname if kind is Kind.LINK else ""
    return Member(info.name, None if info.issparse() else kind, bool(info.mode & _OWNERS_BIT), *place, target)


def _check(members: list[Member]) -> None:
    links = {member.name for member in members if member.kind is Kind.LINK}
    seen: set[str] = set()
    for member in members:
        parts = member.name.split("/")
        is_plain = not {"", ".", ".."} & {*parts} and "\0" not in member.name and member.name not in seen
        if (not is_plain or links or member.kind is None) and (problem := _problem(member, links, seen)):
            raise DataError(f"the code bundle is refused: {member.name[:120]!r} {problem}")
        seen.add(member.name)


def _problem(member: Member, links: set[str], seen: set[str]) -> str:
    name = PurePosixPath(member.name)
    if not member.name or name.is_absolute() or ".." in name.parts or "\0" in member.name:
        return "does not name something inside the bundle"
    if str(name) != member.name:
        return "is not spelled plainly"
    if member.name in seen:
        return "is there twice"
    if any(str(parent) in links for parent in name.parents):
        return "lies below a link"
    if member.kind is Kind.LINK:
        inside = _stays_inside(name.parent, member.target)
        return "" if inside else "is a link that leads out of the bundle"
    return "" if member.kind is not None else "is no file or folder"


def _stays_inside(folder: PurePosixPath, target: str) -> bool:
    """Whether a link's target goes up first, no further than the root, and then only down.

    A ".." behind another link would be taken from where that link leads, which the spelling doesn't tell.
    """
    parts = PurePosixPath(target).parts
    ups = len(list(takewhile(lambda part: part == "..", parts)))
    plain = bool(target) and not target.startswith("/") and "\0" not in target
    return plain and ups <= len(folder.parts) and ".." not in parts[ups:]

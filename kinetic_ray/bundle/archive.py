"""A project as bytes: the same content gives the same bytes."""

from __future__ import annotations

import logging
import os
import tarfile
import time
from collections.abc import Iterable
from dataclasses import dataclass

from kinetic_ray.bundle.stamps import Stamp, is_fresh, stamp_of
from kinetic_ray.bundle.tree import Entry, Kind

_LOG = logging.getLogger("kinetic_ray")

_PLAIN, _EXECUTABLE = 0o644, 0o755
_BLOCK, _RECORD = tarfile.BLOCKSIZE, tarfile.RECORDSIZE


@dataclass(frozen=True, slots=True)
class _Part:
    """What an entry has become in an archive.

    Attributes:
        entry: Which.
        stamp: How the file looked before it was read, () for what has no content; None where it tells nothing.
        start: Where its bytes begin.
        stop: Where they end.
    """

    entry: Entry
    stamp: Stamp | None
    start: int
    stop: int


class Packer:
    """Packs a project again and again: what looks as it did is taken from the archive before. Not thread-safe."""

    def __init__(self) -> None:
        self._archive = b""
        self._parts: dict[str, _Part] = {}

    def pack(self, entries: Iterable[Entry]) -> bytes:
        """The entries as an archive: a tar without times, owners or any permission but "executable"."""
        before, known = memoryview(self._archive), self._parts
        parts: dict[str, _Part] = {}
        pieces: list[bytes | memoryview] = []
        place, begun = 0, time.time_ns()
        for entry in entries:
            stamp, old = _stamp_of(entry), known.get(entry.name)
            if old is not None and old.stamp is not None and (old.entry, old.stamp) == (entry, stamp):
                piece: bytes | memoryview | None = before[old.start : old.stop]
            else:
                piece = _piece_of(entry)
                stamp = None if stamp and is_fresh(stamp, begun) else stamp
            if piece is None:
                continue
            parts[entry.name] = _Part(entry, stamp, place, place + len(piece))
            pieces.append(piece)
            place += len(piece)
        end = place + 2 * _BLOCK
        pieces.append(bytes(end - place + -end % _RECORD))
        self._archive, self._parts = b"".join(pieces), parts
        return self._archive


def pack(entries: Iterable[Entry]) -> bytes:
    """The entries as an archive, see :meth:`Packer.pack`.

    Example:
        >>> len(pack([]))
        10240
    """
    return Packer().pack(entries)


def _stamp_of(entry: Entry) -> Stamp | None:
    """How an entry's file looks now; () for what has no content, None for what is gone."""
    if entry.kind is not Kind.FILE:
        return ()
    try:
        return stamp_of(os.lstat(entry.path))
    except OSError:
        return None


def _piece_of(entry: Entry) -> bytes | None:
    """An entry as it stands in the archive; None for a file that can't be read."""
    header = tarfile.TarInfo(entry.name)
    header.mode = _EXECUTABLE if entry.executable or entry.kind is Kind.FOLDER else _PLAIN
    content = b""
    if entry.kind is Kind.FOLDER:
        header.type = tarfile.DIRTYPE
    elif entry.kind is Kind.LINK:
        header.type, header.linkname = tarfile.SYMTYPE, entry.target
    else:
        try:
            content = entry.path.read_bytes()  # whole, so that a file which grows meanwhile can't tear the archive
        except OSError as exc:
            _LOG.warning("%s is not sent: it can't be read: %s", entry.path, exc)
            return None
        header.size = len(content)
    head = header.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")
    return b"".join((head, content, bytes(-len(content) % _BLOCK)))

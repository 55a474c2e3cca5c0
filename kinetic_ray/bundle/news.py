"""What of a project is other than it was in an archive that was sent before."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kinetic_ray.bundle.reading import read_members
from kinetic_ray.bundle.tree import Entry, Kind

#: Of the files that two archives hold together, how many both must have to be taken for one project's.
_ALIKE = 0.5


@dataclass(frozen=True, slots=True)
class News:
    """What has happened to a project's files since.

    Attributes:
        new: Names of files and links that the archive lacks.
        changed: Names of those that are other ones there.
        gone: Names of those that it alone has.
    """

    new: tuple[str, ...]
    changed: tuple[str, ...]
    gone: tuple[str, ...]

    @property
    def is_empty(self) -> bool:
        """Whether nothing has."""
        return not (self.new or self.changed or self.gone)


def news_since(archive: bytes, entries: Iterable[Entry]) -> News | None:
    """Compares a project with an archive; None where that is another project's.

    Args:
        archive: What was sent.
        entries: What would be sent now.

    Raises:
        DataError: The archive is damaged.
    """
    there = {member.name: member for member in read_members(archive) if member.kind is not Kind.FOLDER}
    now = {entry.name: entry for entry in entries if entry.kind is not Kind.FOLDER}
    common = there.keys() & now.keys()
    if len(common) < _ALIKE * len(there.keys() | now.keys()):
        return None

    def differs(name: str) -> bool:
        member, entry = there[name], now[name]
        if (member.kind, member.target, member.executable) != (entry.kind, entry.target, entry.executable):
            return True
        return entry.kind is Kind.FILE and not _holds(entry, archive[member.start : member.start + member.size])

    changed = filter(differs, common)
    return News(_sorted(now.keys() - common), _sorted(changed), _sorted(there.keys() - common))


def _holds(entry: Entry, content: bytes) -> bool:
    try:
        return entry.path.read_bytes() == content
    except OSError:  # it went while we looked
        return False


def _sorted(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(names))

"""Modules from elsewhere on this machine, and where they lie in the archive."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from kinetic_ray.bundle.origins import Origin
from kinetic_ray.bundle.tree import Entry, file_entry, scan

_LOG = logging.getLogger("kinetic_ray")

#: In the archive: the folder of modules from elsewhere.
OUTSIDE = ".kinetic_outside"


@dataclass(frozen=True, slots=True)
class Outside:
    """Modules from elsewhere: each with the whole of its top-level package.

    Folders that share a name, as parts of one namespace package do, must not meet in the archive: each has a folder of
    its own there.

    Attributes:
        tops: By the folder, or zip file, that has to be on `sys.path`: what of it is sent.
    """

    tops: Mapping[Path, frozenset[Path]] = field(default_factory=dict)

    @staticmethod
    def of(origins: Iterable[Origin]) -> Outside:
        """What some modules need."""
        tops: dict[Path, set[Path]] = {}
        for origin in origins:
            folder, file = origin.folder, origin.path
            assert folder is not None
            top = file if file == folder else folder / file.relative_to(folder).parts[0]
            tops.setdefault(folder, set()).add(top)
        return Outside({folder: frozenset(tops[folder]) for folder in sorted(tops)})

    def place_of(self, folder: Path) -> str | None:
        """Where a folder of `sys.path` is in the archive; None where nothing of it is sent."""
        if folder not in self.tops:
            return None
        place = self._part_of(folder)
        return f"{place}/{folder.name}" if folder in self.tops[folder] else place  # a zip file

    def packages(self) -> Iterator[Path]:
        """The folders that are sent whole."""
        return (top for tops in self.tops.values() for top in sorted(tops) if top.is_dir())

    def entries(self, avoid: Collection[Path], limit: int) -> Iterator[Entry]:
        """What is sent.

        Args:
            avoid: Folders that are never sent.
            limit: Most bytes of each package.

        Raises:
            PayloadError: Too large.
        """
        for folder, tops in self.tops.items():
            for top in sorted(tops):
                _LOG.info("%s is sent as well: the call reaches it, and it lies outside of the project", top)
                place = f"{self._part_of(folder)}/{top.name}"
                if not top.is_dir():
                    yield file_entry(top, place)
                    continue
                for entry in scan(top, avoid=avoid, limit=limit):
                    yield replace(entry, name=f"{place}/{entry.name}")

    def _part_of(self, folder: Path) -> str:
        return OUTSIDE if len(self.tops) == 1 else f"{OUTSIDE}/{[*self.tops].index(folder)}"

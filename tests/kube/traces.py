"""What a plane leaves on the machine, if it leaves anything."""

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cluster.sim.housing import MARK
from cluster.sim.remains import cgroups_of

_KINDS = ("pid", "net", "mnt")


@dataclass(frozen=True)
class Traces:
    """What to look for: the folder of a plane, and the kernel's namespaces that were made for it."""

    folder: Path
    namespaces: frozenset[str]

    @classmethod
    def of(cls, folder: Path, *pids: int) -> "Traces":
        """The traces of a plane in `folder`, of whose processes some are given as the host knows them."""
        ours = _namespaces(os.getpid())
        return cls(folder, frozenset(name for pid in pids for name in _namespaces(pid)) - ours)

    def left(self) -> list[str]:
        """One line for everything that is left; [] when all is gone."""
        return [*self._files(), *self._processes()]

    def _files(self) -> Iterator[str]:
        if self.folder.exists():
            yield f"folder {self.folder}: {sorted(path.name for path in self.folder.iterdir())}"
        yield from (f"cgroup {path}" for path in cgroups_of(self.folder.name))
        yield from (
            f"mount {line}" for line in Path("/proc/mounts").read_text().splitlines() if str(self.folder) in line
        )

    def _processes(self) -> Iterator[str]:
        mark = f"{MARK}={self.folder}\0".encode()
        for process in processes():
            with contextlib.suppress(OSError):
                marked = mark in Path(f"/proc/{process}/environ").read_bytes()
                if marked or self.namespaces & _namespaces(process):
                    words = Path(f"/proc/{process}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                    yield f"process {process}: {words[:200]}"


def processes() -> Iterator[int]:
    """The ids of all processes of the machine."""
    yield from (int(path.name) for path in Path("/proc").glob("[0-9]*"))


def _namespaces(pid: int) -> frozenset[str]:
    found = set()
    for kind in _KINDS:
        with contextlib.suppress(OSError):  # it has just ended
            found.add(str(Path(f"/proc/{pid}/ns/{kind}").readlink()))
    return frozenset(found)

"""Limits of memory by the kernel's control groups, of either version, where the machine lets us make some."""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class MemoryGroup:
    """The memory of one container.

    Attributes:
        folder: Its control group.
        limit_file: Where its limit stands.
        events_file: Where the kernel counts what it has killed.
    """

    folder: Path
    limit_file: str
    events_file: str

    @property
    def processes(self) -> Path:
        return self.folder / "cgroup.procs"

    def create(self, limit: int) -> None:
        """Make the group.

        Raises:
            OSError: The machine doesn't let us.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / self.limit_file).write_text(str(limit))

    def ran_out(self) -> bool:
        """Whether the kernel has killed something for want of memory."""
        with contextlib.suppress(OSError):
            return killed((self.folder / self.events_file).read_text()) > 0
        return False

    def remove(self) -> None:
        """Take the group away, and what is above it once that is empty."""
        for folder in (self.folder, self.folder.parent):
            with contextlib.suppress(OSError):
                folder.rmdir()


def killed(text: str) -> int:
    """The count of killed processes in a kernel's account."""
    found = re.search(r"^oom_kill (\d+)$", text, re.MULTILINE)
    return int(found[1]) if found else 0


@dataclass(frozen=True, slots=True)
class CgroupTree:
    """Where a plane's groups lie.

    Attributes:
        folder: The folder above the pods'.
        unified: Whether this is version 2.
    """

    folder: Path
    unified: bool

    def group(self, pod_uid: str, container: str) -> MemoryGroup:
        folder = self.folder / pod_uid / container
        if self.unified:
            return MemoryGroup(folder, "memory.max", "memory.events")
        return MemoryGroup(folder, "memory.limit_in_bytes", "memory.oom_control")

    def prepare(self, pod_uid: str) -> None:
        """Make what stands above a pod's containers.

        Raises:
            OSError: The machine doesn't let us.
        """
        folders = (self.folder, self.folder / pod_uid)
        for folder in folders:
            folder.mkdir(parents=True, exist_ok=True)
            if self.unified:
                (folder / "cgroup.subtree_control").write_text("+memory")

    def remove(self) -> None:
        """Take the plane's folder away, if nothing is in it."""
        with contextlib.suppress(OSError):
            self.folder.rmdir()


def find_tree(prefix: str, root: Path = Path("/sys/fs/cgroup")) -> CgroupTree | None:
    """Where groups of a plane can be made on this machine; None if nowhere."""
    if (root / "memory").is_dir():
        return CgroupTree(root / "memory" / prefix, unified=False)
    if (root / "cgroup.controllers").is_file() and "memory" in (root / "cgroup.controllers").read_text().split():
        return CgroupTree(root / prefix, unified=True)
    return None

"""Reads how much memory there is: of the machine, of the containers around this process, and of other processes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import psutil

from kinetic_ray.core.memory import Memory


@dataclass(frozen=True, slots=True)
class _Names:
    """What a version of the kernel's control groups calls its files and numbers."""

    limit: str
    used: str
    cache: tuple[str, str]
    events: str


_V1 = _Names(
    "memory.limit_in_bytes",
    "memory.usage_in_bytes",
    ("total_inactive_file", "total_active_file"),
    "memory.oom_control",
)
_V2 = _Names("memory.max", "memory.current", ("inactive_file", "active_file"), "memory.events")


class Meter:
    """Memory as the kernel tells it; without Linux's files as psutil does."""

    def __init__(self, root: Path = Path("/")) -> None:
        """Finds the control groups that this process is in.

        Args:
            root: Where `proc` and `sys` are.
        """
        self._proc = root / "proc"
        self._names, self._groups = _groups(root)

    def read(self) -> Memory:
        """What there is now: the least that the machine and each group around this process leave.

        Raises:
            OSError: The kernel's files can't be read.
        """
        available, limit = self._machine()
        for group in self._groups:
            found = _room_in(group, self._names)
            if found is not None and found[1] < limit:
                limit = found[1]
                available = min(available, found[0])
            elif found is not None:
                available = min(available, found[0])
        own = _numbers(self._groups[0] / self._names.events).get("oom_kill") if self._groups else None
        kills = own if own is not None else _numbers(self._proc / "vmstat").get("oom_kill", 0)
        return Memory(max(0, available), limit, kills, own is None)

    def _machine(self) -> tuple[int, int]:
        told = _numbers(self._proc / "meminfo")
        if "MemAvailable:" in told:
            return told["MemAvailable:"] * 1024, told["MemTotal:"] * 1024
        memory = psutil.virtual_memory()
        return memory.available, memory.total


def size_below(pid: int) -> int:
    """Bytes that the processes below one have; what they share with each other counts once.

    Raises:
        psutil.NoSuchProcess: It has ended.
    """
    total = 0
    for process in psutil.Process(pid).children(recursive=True):
        with contextlib.suppress(psutil.Error):  # it has ended meanwhile
            total += _size_of(process)
    return total


def _size_of(process: psutil.Process) -> int:
    """Without files that are only mapped: the kernel can drop these."""
    told = _numbers(Path(f"/proc/{process.pid}/smaps_rollup"))
    parts = [told[name] for name in ("Pss_Anon:", "Pss_Shmem:", "SwapPss:") if name in told]
    if parts:
        return sum(parts) * 1024
    memory = process.memory_info()
    return int(memory.rss - getattr(memory, "shared", 0))


def _groups(root: Path) -> tuple[_Names, tuple[Path, ...]]:
    """The memory control group of this process and those around it, the innermost first."""
    for line in _lines(root / "proc/self/cgroup"):
        _number, controllers, path = line.split(":", 2)
        for names, is_it in ((_V1, "memory" in controllers.split(",")), (_V2, not controllers)):
            for shown, mount in _mounts(root, names) if is_it else ():
                if (found := _from_inside(root, mount, shown, path)) and (found[0] / names.events).exists():
                    return names, found
    return _V2, ()


def _mounts(root: Path, names: _Names) -> Iterator[tuple[str, str]]:
    """Where control groups are mounted, and which of them is at the top there."""
    for line in _lines(root / "proc/self/mountinfo"):
        front, _, back = line.partition(" - ")
        kind, _source, options = back.split(" ", 2)
        wanted = kind == "cgroup2" if names is _V2 else kind == "cgroup" and "memory" in options.split(",")
        if wanted:
            shown, mount = front.split(" ")[3:5]
            yield shown, mount


def _from_inside(root: Path, mount: str, shown: str, path: str) -> tuple[Path, ...]:
    """A container sees its own group at the top of the mount, whatever the path says that its processes are told."""
    top = root / mount.lstrip("/")
    inside = PurePosixPath(path)
    relative = inside.relative_to(shown) if inside.is_relative_to(shown) else PurePosixPath()
    if ".." in relative.parts or not (top / relative).is_dir():
        relative = PurePosixPath()
    return tuple(top / part for part in (relative, *relative.parents)) if relative.parts else (top,)


def _room_in(group: Path, names: _Names) -> tuple[int, int] | None:
    """Bytes that are left in a group, and its limit; None where it has none. Its cache of files can be dropped."""
    with contextlib.suppress(OSError, ValueError):  # "max"; the top of all has no such file
        limit = int((group / names.limit).read_text())
        used = int((group / names.used).read_text())
        told = _numbers(group / "memory.stat")
        return limit - used + sum(told.get(name, 0) for name in names.cache), limit
    return None


def _numbers(file: Path) -> Mapping[str, int]:
    """The lines of a file that are a name and a whole number; none where it can't be read."""
    rows = (line.split() for line in _lines(file))
    return {row[0]: int(row[1]) for row in rows if len(row) > 1 and row[1].isdigit()}


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text().splitlines()
    except OSError:
        return []

"""Finds what a test run may leave behind: processes, runtime folders, shared memory."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path


class Leaks:
    """Compares the machine with what it was when this was made.

    Other test runs may go on beside this one, so a thing counts as ours only if it names our folder of homes, or
    (shared memory, whose names are random) if it is new and no living process has it open.
    """

    def __init__(self, homes: Path) -> None:
        self._homes = str(homes)
        self._shared_memory_before = shared_memory()

    def found(self) -> list[str]:
        """One line per thing left, [] when all is clean."""
        return [*self._processes(), *self._runtime_folders(), *self._shared_memory()]

    def _processes(self) -> Iterator[str]:
        needle = f"KINETIC_HOME={self._homes}".encode()
        for process in Path("/proc").glob("[0-9]*"):
            if int(process.name) == os.getpid():
                continue
            with contextlib.suppress(OSError):  # it ended while we looked
                if needle in (process / "environ").read_bytes():
                    words = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                    yield f"process {process.name}: {words[:200]}"

    def _runtime_folders(self) -> Iterator[str]:
        for folder in Path("/tmp").glob(f"kr{os.getuid()}-*"):
            with contextlib.suppress(OSError):
                if self._homes in (folder / "info.json").read_text():
                    yield f"runtime folder {folder}"

    def _shared_memory(self) -> Iterator[str]:
        for name in abandoned_shared_memory(self._shared_memory_before):
            yield f"shared memory {name}"


def shared_memory() -> set[str]:
    """The names of all shared memory of the machine."""
    folder = Path("/dev/shm")
    return {entry.name for entry in folder.iterdir()} if folder.is_dir() else set()


def abandoned_shared_memory(before: set[str]) -> list[str]:
    """What has come since `before` and no living process has open."""
    new = shared_memory() - before
    if not new:
        return []
    held = set(_open_files("/dev/shm/"))
    return [name for name in sorted(new - held) if (Path("/dev/shm") / name).exists()]


def _open_files(prefix: str) -> Iterator[str]:
    for process in Path("/proc").glob("[0-9]*"):
        for kind in ("fd", "map_files"):
            with contextlib.suppress(OSError):
                for entry in (process / kind).iterdir():
                    with contextlib.suppress(OSError):
                        target = str(entry.readlink())
                        if target.startswith(prefix):
                            yield target.removeprefix(prefix).removesuffix(" (deleted)")

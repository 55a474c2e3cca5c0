"""Planes that are up, as another process sees them."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from cluster.sim.folder import Folder
from cluster.sim.remains import remove_remains

_ENDING = 90.0  # seconds


def planes_in(root: Path) -> Iterator[Folder]:
    """The planes below a root whose keepers live."""
    for path in sorted(root.iterdir()) if root.is_dir() else ():
        with suppress(OSError, ValueError):
            if Folder(path).read_facts().keeper.lives():
                yield Folder(path)


def end_plane(folder: Folder) -> None:
    """Ends a plane that another process has started; returns when nothing is left of it.

    Raises:
        OSError: There is no such plane.
        TimeoutError: Its keeper doesn't end.
    """
    keeper = folder.read_facts().keeper
    if keeper.lives():
        with suppress(ProcessLookupError):
            ended = os.pidfd_open(keeper.pid)
            try:
                os.kill(keeper.pid, signal.SIGTERM)
                if not select.select([ended], (), (), _ENDING)[0]:
                    raise TimeoutError(f"the keeper of {folder.path}, process {keeper.pid}, doesn't end")
            finally:
                os.close(ended)
    if folder.path.exists():
        remove_remains(folder)

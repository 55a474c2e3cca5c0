"""What a rank leaves on its host comes to a store that is elsewhere: its log as it grows, its files as they change."""

from __future__ import annotations

import logging
import os
import re
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO

from kinetic_ray.errors import DataError, StoreError, UsageError
from kinetic_ray.store import Growing, Store
from kinetic_ray.store.growing import Part
from kinetic_ray.store.patience import BUDGET, retried

#: Seconds between two looks at a log, and at the output folder.
LOG_EVERY, FILES_EVERY = 1.0, 10.0

_MOST = 4 << 20  # of a log at once
_SMALL, _MANY = 256 << 10, 32  # so many parts that are no larger become one
_IN_TRANSIT = re.compile(r"\.kinetic-[0-9a-f]+\.part")  # as `store.files` names what it is writing
_LOG = logging.getLogger(__name__)

Stamp = tuple[int, int]  # a file's size and time of change


class LogShipper:
    """Copies a growing file into the store, part after part; where the copy ends is known here only."""

    def __init__(self, log: Growing, path: Path) -> None:
        """Opens the file, which may be removed while it is still being copied."""
        self._log = log
        self._file: IO[bytes] = path.open("rb")
        self._end = 0
        self._small: list[Part] = []
        self._is_new = True

    def ship(self) -> bool:
        """Copies what came since the last call, or as much of it as goes at once; whether something may be left."""
        data = self._read(self._end, _MOST)
        if not data and not self._is_new:
            return False
        part = self._log.add(self._end, data)  # an empty one too, at first: there is a log
        self._is_new = False
        self._end = part.end
        if len(data) <= _SMALL:
            self._small.append(part)
        if len(self._small) >= _MANY or len(data) > _SMALL:
            self._merge()
        return len(data) == _MOST

    def close(self) -> None:
        self._file.close()

    def _merge(self) -> None:
        small, self._small = self._small, []
        if len(small) > 1:
            start = small[0].start
            self._log.merge(small, self._read(start, small[-1].end - start))

    def _read(self, start: int, size: int) -> bytes:
        self._file.seek(start)
        return self._file.read(size)


class OutputMirror:
    """Copies the files of a folder into the store as they change; a file of its own that is removed goes there too."""

    def __init__(self, store: Store, key: str, folder: Path) -> None:
        self._store = store
        self._key = key
        self._folder = folder
        self._sent: dict[str, Stamp] = {}
        self._seen: dict[str, Stamp] = {}

    def mirror(self, *, last: bool) -> None:
        """Copies what has changed.

        Args:
            last: Nobody writes any more. Else a file that has changed since the last call waits for the next.
        """
        self._learn_fetched()  # before the look: what is noted was here by then
        here = _files(self._folder)
        before, self._seen = self._seen, here
        for name, stamp in sorted(here.items()):
            if self._sent.get(name) != stamp and (last or before.get(name) == stamp):
                self._send(name, stamp)
        for name in [name for name in self._sent if name not in here]:
            with suppress(UsageError):
                self._store.delete(f"{self._key}/{name}")
            del self._sent[name]

    def _send(self, name: str, stamp: Stamp) -> None:
        try:
            self._store.put_file(f"{self._key}/{name}", self._folder / name)
        except DataError as gone:  # removed, or replaced, in this moment
            _LOG.info("not copied: %s", gone)
            return
        except UsageError as hostile:
            _LOG.warning("an output file stays on its host: %s", hostile)
        self._sent[name] = stamp

    def _learn_fetched(self) -> None:
        """What the rank's process has fetched from the store was there already, whatever became of it since."""
        note = fetched_note(self._folder)
        if note.exists():
            for line in note.read_text(encoding="utf-8").splitlines():
                size, changed, name = line.split(" ", 2)
                self._sent.setdefault(name, (int(size), int(changed)))
            note.unlink()


class Courier:
    """Ships a rank's log and files in a thread of its own, from its start until :meth:`finish`."""

    def __init__(
        self, log: LogShipper, mirror: OutputMirror | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Starts the thread.

        Args:
            log: The log.
            mirror: The output folder, unless its files stay where they are.
            clock: Tells seconds.
        """
        self._log = log
        self._mirror = mirror
        self._clock = clock
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kinetic-courier", daemon=True)
        self._thread.start()

    def finish(self, budget: float = BUDGET) -> None:
        """Ships the rest, once the rank is gone. Raises nothing: the outcome of the rank is worth more.

        Args:
            budget: Seconds for a store that is away.
        """
        self._over.set()
        self._thread.join()
        for what, ship in (("log", self._all_of_the_log), ("output files", self._all_files)):
            try:
                retried(ship, budget)
            except (StoreError, OSError) as error:
                _LOG.warning("the %s could not be stored: %s", what, error)
        self._log.close()

    def _run(self) -> None:
        next_files = self._clock() + FILES_EVERY
        while not self._over.wait(LOG_EVERY):
            try:
                while self._log.ship() and not self._over.is_set():
                    pass
                if self._mirror is not None and self._clock() >= next_files:
                    self._mirror.mirror(last=False)
                    next_files = self._clock() + FILES_EVERY
            except (StoreError, OSError) as error:  # the next round tries again
                _LOG.warning("the store is away just now: %s", error)

    def _all_of_the_log(self) -> None:
        while self._log.ship():
            pass

    def _all_files(self) -> None:
        if self._mirror is not None:
            self._mirror.mirror(last=True)


def append_to_log(store: Store, key: str, text: str) -> None:
    """Adds a last word to a log that nobody else writes to any more, or ever has."""
    data = text.encode("utf-8", "surrogateescape")
    if (path := store.append_path(key)) is not None:
        with path.open("ab") as file:
            file.write(data)
        return
    log = Growing(store, key)
    log.add(log.size() if log.exists() else 0, data)


def fetch_outputs(store: Store, key: str, folder: Path) -> None:
    """Brings the files that earlier attempts have left into a rank's output folder, and notes which they are."""
    lines = []
    for found in store.walk(key):
        name = found.removeprefix(f"{key}/")
        store.fetch_object(found, folder / name)
        size, changed = _stamp((folder / name).stat())
        lines.append(f"{size} {changed} {name}\n")
    if lines:
        partial = fetched_note(folder).with_suffix(".part")
        partial.write_text("".join(lines), encoding="utf-8")
        partial.replace(fetched_note(folder))


def fetched_note(folder: Path) -> Path:
    """Beside an output folder: which of its files came from the store."""
    return folder.with_name(f"{folder.name}.fetched")


def _files(folder: Path) -> dict[str, Stamp]:
    """Regular files below a folder."""
    found: dict[str, Stamp] = {}
    for above, _, names in os.walk(folder):
        for name in names:
            path = Path(above, name)
            try:
                if path.is_file() and not path.is_symlink() and not _IN_TRANSIT.fullmatch(name):
                    found[path.relative_to(folder).as_posix()] = _stamp(path.stat())
            except OSError:  # gone again
                continue
    return found


def _stamp(info: os.stat_result) -> Stamp:
    return info.st_size, info.st_mtime_ns

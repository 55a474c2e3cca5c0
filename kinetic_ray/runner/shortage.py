"""Ends the largest rank of a machine that runs out of memory, before the kernel ends what others need.

Each agent watches for its own rank, and ends no other's. Where several share a machine, as simulated hosts do, they
know each other by files in a folder, and take turns at deciding.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import math
import os
import signal
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import wait
from pathlib import Path

import psutil

from kinetic_ray.core.memory import Sizes, has_to_end, words_for, words_for_kernel
from kinetic_ray.errors import ConfigError
from kinetic_ray.runner.link import Child
from kinetic_ray.runner.meter import Meter, size_below
from kinetic_ray.settings import SETTINGS, megabytes

_LOG = logging.getLogger(__name__)
_LOCK = "deciding"
_TRIES = 10
#: How long the end of a killed process may take to be known: much memory isn't given back in a moment.
_DYING = 10.0
#: Between a process's start as it was noted and as it is read, after the machine's clock was set.
_SAME_START = 5.0


class Neighbours:
    """The ranks of this user that share a machine's memory, each known by the process above it."""

    def __init__(self, folder: Path) -> None:
        """Makes nothing yet: the folder is there while one of them is."""
        self._folder = folder

    def enter(self, rank: str, above: int) -> None:
        """From now on a rank is known, which has all processes below one.

        Raises:
            OSError: The folder can't be made, or is another user's.
            psutil.NoSuchProcess: That one has ended.
        """
        told = f"{above} {psutil.Process(above).create_time()}"
        for _ in range(_TRIES):
            with contextlib.suppress(FileNotFoundError):  # the last one has just left
                self._make()
                (self._folder / rank).write_text(told)
                return

    def leave(self, rank: str) -> None:
        """The last one takes the folder along."""
        with contextlib.suppress(OSError):  # others are there, or just come
            (self._folder / rank).unlink(missing_ok=True)
            if {file.name for file in self._folder.iterdir()} <= {_LOCK}:
                (self._folder / _LOCK).unlink(missing_ok=True)
                self._folder.rmdir()

    def _make(self) -> None:
        self._folder.mkdir(mode=0o700, exist_ok=True)
        if self._folder.stat().st_uid != os.getuid():
            raise PermissionError(f"{self._folder} belongs to another user")

    def sizes(self) -> dict[str, int]:
        """Bytes by rank; those whose agents have ended without a word are forgotten."""
        found = {}
        for file in self._folder.iterdir():
            if file.name == _LOCK:
                continue
            try:
                above, started = file.read_text().split()
                if abs(psutil.Process(int(above)).create_time() - float(started)) > _SAME_START:
                    raise psutil.NoSuchProcess(int(above))
                found[file.name] = size_below(int(above))
            except psutil.NoSuchProcess:
                file.unlink(missing_ok=True)
            except (OSError, ValueError):  # it is just leaving, or entering
                continue
        return found

    @contextlib.contextmanager
    def deciding(self) -> Iterator[bool]:
        """One at a time decides: whoever comes while another does gets False, and looks again later."""
        descriptor = os.open(self._folder / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield True
        except BlockingIOError:
            yield False
        finally:
            os.close(descriptor)


class MemoryGuard:
    """Watches for one rank, from its start to its end."""

    def __init__(
        self,
        zygote: int,
        child: Child,
        end: Callable[[], object],
        meter: Meter | None = None,
        folder: Path | None = None,
        allowed: int | None = None,
    ) -> None:
        """Does nothing yet.

        Args:
            zygote: The process below which all of the rank's are, and nothing else.
            child: The rank's first process.
            end: Ends it with all below it, and returns when they are gone.
            meter: Reads the memory; this machine's without it.
            folder: Where the ranks of this machine know each other.
            allowed: Bytes that they may have together; as the environment says without it.
        """
        self._zygote = zygote
        self._ended = child.ended
        self._rank = str(child.pid)
        self._end = end
        self._meter = meter or Meter()
        self._neighbours = Neighbours(folder or _folder())
        self._allowed = allowed or allowed_by_environment()
        self._looks = deque([(-math.inf, self._meter.read())])
        self._seen = 0
        self._short_since: float | None = None
        self._verdict = ""

    def begin(self) -> None:
        """Watches in a thread of its own; the others know of the rank from here to its end."""
        try:
            self._neighbours.enter(self._rank, self._zygote)
        except (OSError, psutil.Error) as exc:  # it is for others; the kernel is there as well
            _LOG.warning("memory is not watched: %s", exc)
            return
        # Not by the thread, which a process that ends doesn't wait for.
        self._ended.add_done_callback(lambda _: self._neighbours.leave(self._rank))
        threading.Thread(target=self._watch, name="kinetic-memory", daemon=True).start()

    def cause(self, code: int | None) -> str:
        """Why a rank that has ended was killed for memory; "" if it wasn't.

        Args:
            code: Its exit code, None where its zygote ended with it.
        """
        if code == -signal.SIGKILL or code is None:
            return self._verdict or (self._kernel_did() if code is not None else "")
        return ""

    def look(self, now: float) -> None:
        """Looks once, and ends the rank if it is the one to end.

        Raises:
            OSError, psutil.Error: Something could not be read this time.
        """
        memory = self._meter.read()
        self._looks.append((now, memory))
        while self._looks[1][0] < now - _DYING:
            self._looks.popleft()
        if memory.is_near:
            self._seen = size_below(self._zygote)
        if not memory.is_short and self._allowed is None:
            self._short_since = None
            return
        with self._neighbours.deciding() as is_my_turn:
            if is_my_turn:
                self._decide(now)

    def _decide(self, now: float) -> None:
        memory = self._meter.read()  # another may have ended meanwhile
        own = self._rank
        sizes = Sizes(self._neighbours.sizes(), self._allowed)
        if not memory.is_short and not sizes.exceed:
            self._short_since = None
            return
        since = self._short_since = now if self._short_since is None else self._short_since
        if has_to_end(own, sizes, memory, now - since):
            self._verdict = words_for(sizes.of[own], sizes, memory)
            _LOG.warning("the rank of process %s goes: %s", own, self._verdict)
            self._end()

    def _watch(self) -> None:
        while not wait([self._ended], self._looks[-1][1].pause).done:
            with contextlib.suppress(OSError, psutil.Error):  # there are more looks to come
                self.look(time.monotonic())
        self._neighbours.leave(self._rank)  # the last look may have left its lock there

    def _kernel_did(self) -> str:
        """Whether the kernel killed for memory just now: not at some time in this rank's life, and not elsewhere."""
        now, before = self._meter.read(), [memory for _, memory in tuple(self._looks)]
        if now.kills == before[0].kills or (now.counts_others and not any(memory.is_near for memory in before)):
            return ""
        return words_for_kernel(self._seen, now)


def allowed_by_environment() -> int | None:
    """What KINETIC_LOCAL_MEMORY_MB lets all ranks of an embedded cluster have together, in bytes; None = no bound."""
    try:
        text = os.environ.get(SETTINGS["local_memory_mb"].env)
        return megabytes("local_memory_mb", text) if text else None
    except ConfigError as exc:  # whoever started the cluster was told so
        _LOG.warning("%s", exc)
        return None


def _folder() -> Path:
    """An embedded cluster's own, or this user's on this host."""
    above = os.environ.get("RAY_TMPDIR") or tempfile.gettempdir()
    return Path(above) / f"kinetic-ranks-{os.getuid()}"

"""Starts node processes, and learns at once when one ends."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from json import loads
from pathlib import Path
from typing import Any

from kinetic_ray.backends.local import guard
from kinetic_ray.backends.local.plan import NodePlan
from kinetic_ray.errors import KineticError

_TAIL_LINES = 12
_SWEEPS = 500
_STOP_S = 15.0


class LaunchFailed(KineticError):
    """A node's process ended, or said nothing, before the node was up."""


@dataclass(frozen=True, slots=True)
class Launched:
    """A process that builds, and then guards, a node.

    Attributes:
        name: The node's.
        process: The process.
        ended: Its exit code, once it has ended.
    """

    name: str
    process: subprocess.Popen[bytes]
    ended: asyncio.Future[int]

    @property
    def pid(self) -> int:
        return self.process.pid

    async def stop(self, *, at_once: bool) -> None:
        """Has it end its node and itself, and waits for that; kills it when it takes too long.

        Args:
            at_once: The node has no cluster to say goodbye to.
        """
        self.signal(signal.SIGINT if at_once else signal.SIGTERM)
        done, _ = await asyncio.wait([self.ended], timeout=_STOP_S)
        if not done:
            self.signal(signal.SIGKILL)
            await asyncio.wait([self.ended])

    def signal(self, signum: int) -> None:
        """Sends a signal, if it still runs."""
        if self.process.returncode is None:  # not collected yet, so the pid is its own
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.process.pid, signum)


class Launcher:
    """Starts node processes, all from the main thread: the kernel ties their lives to the thread that started them.

    Attributes:
        closing: Whether the whole cluster is ending, so that no node need say goodbye to it.
    """

    def __init__(self, logs: Path) -> None:
        """Prepares to start nodes.

        Args:
            logs: Folder for what they say, a file each.
        """
        self.closing = False
        self._logs = logs
        self._running: dict[int, subprocess.Popen[bytes]] = {}

    async def start(
        self, plan: NodePlan, environ: Mapping[str, str], patience: float
    ) -> tuple[Launched, dict[str, Any]]:
        """Builds a node and waits until it is up.

        Returns:
            The process, and what it reported.

        Raises:
            LaunchFailed: It ended before, or took longer than `patience` seconds; nothing of it is left.
        """
        process, pipe = self._spawn(plan, environ)
        launched = Launched(plan.name, process, self._watch(process))
        line: bytes | None = None
        try:
            line = await _first_line(pipe, patience)
        finally:
            if not _is_whole(line):
                await self.stop(launched)
        if not _is_whole(line):
            what = f"was not up after {patience:g} s" if line is None else "ended before it was up"
            raise LaunchFailed(f"the node {plan.name} {what}; {self._last_words(plan.name)}")
        return launched, loads(line or b"")

    def start_beside(self, name: str, command: Sequence[str], environ: Mapping[str, str]) -> Launched:
        """Starts a process that is no node; it must end with this one by itself."""
        process = self._execute(name, command, environ)
        return Launched(name, process, self._watch(process))

    async def stop(self, launched: Launched) -> None:
        """Ends a node, and waits for that."""
        await launched.stop(at_once=self.closing)

    def _spawn(self, plan: NodePlan, environ: Mapping[str, str]) -> tuple[subprocess.Popen[bytes], int]:
        receiving, sending = os.pipe()
        plan = replace(plan, parent=os.getpid(), report_fd=sending)
        try:
            return self._execute(plan.name, plan.argv(), environ, sending), receiving
        finally:
            os.close(sending)

    def _execute(
        self, name: str, command: Sequence[str], environ: Mapping[str, str], *passed: int
    ) -> subprocess.Popen[bytes]:
        with self._log_of(name).open("ab") as log:
            process = subprocess.Popen(
                command,
                env=dict(environ),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=passed,
                start_new_session=True,
            )
        self._running[process.pid] = process
        return process

    def _watch(self, process: subprocess.Popen[bytes]) -> asyncio.Future[int]:
        """A future for the end of a process, which the kernel tells the moment it happens."""
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[int] = loop.create_future()

        def collect() -> None:
            self._running.pop(process.pid, None)
            if not ended.done():
                ended.set_result(process.wait())

        if guard.LINUX:
            _when_readable(os.pidfd_open(process.pid), collect)
        else:
            waiting = loop.run_in_executor(None, process.wait)
            waiting.add_done_callback(lambda _: collect())
        return ended

    async def end_orphans(self) -> None:
        """Kills what has lost its parent and so became a child of this process: the rest of a node that is dead."""
        for _ in range(_SWEEPS):
            orphans = self._orphans()
            for pid in orphans:
                guard.end(pid)
            self.collect_orphans()
            if not orphans:
                break
            await asyncio.sleep(0.01)

    def _orphans(self) -> set[int]:
        tree = guard.parents()
        return {pid for pid, parent in tree.items() if parent == os.getpid() and pid not in self._running}

    def collect_orphans(self) -> None:
        """Collects adopted children that have ended, and leaves our own to those who wait for them."""
        if not guard.LINUX:
            return  # nowhere else does a process adopt
        with contextlib.suppress(ChildProcessError):
            while (info := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) is not None:
                if info.si_pid in self._running:
                    self._running[info.si_pid].poll()
                else:
                    os.waitpid(info.si_pid, os.WNOHANG)

    def _log_of(self, name: str) -> Path:
        return self._logs / f"{name}.log"

    def _last_words(self, name: str) -> str:
        lines = self._log_of(name).read_text(errors="replace").splitlines()[-_TAIL_LINES:]
        ends = "ends with:\n" + "\n".join(f"  {line}" for line in lines) if lines else "is empty"
        return f"its log, {self._log_of(name)}, {ends}"


def _is_whole(line: bytes | None) -> bool:
    return line is not None and line.endswith(b"\n")


async def _first_line(pipe: int, patience: float) -> bytes | None:
    """The first line from a pipe, which is closed; less than a line when the other end closes it, None in no time."""
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    transport, _ = await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(pipe, "rb", buffering=0)
    )
    try:
        return await asyncio.wait_for(reader.readline(), patience)
    except TimeoutError:
        return None
    finally:
        transport.close()


def _when_readable(descriptor: int, act: Callable[[], None]) -> None:
    """Calls `act` once, when there is something to read, and closes the descriptor."""
    loop = asyncio.get_running_loop()

    def once() -> None:
        loop.remove_reader(descriptor)
        os.close(descriptor)
        act()

    loop.add_reader(descriptor, once)

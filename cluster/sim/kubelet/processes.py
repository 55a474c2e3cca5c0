"""A container's process: a real one behind the shim, or one in name only."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from cluster.sim.kubelet.cgroups import MemoryGroup
from cluster.sim.kubelet.launches import Launch, Mount
from cluster.sim.kubelet.logs import Stamper
from cluster.sim.kubelet.probes import Answer
from cluster.sim.kubelet.shapes import Json, fine_stamp

SHIM = Path(__file__).with_name("shim.py")
_PIECE = 65536
_SHIM_ENV = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}


@dataclass(frozen=True, slots=True)
class Exit:
    """How a process ended.

    Attributes:
        code: Its exit code; 128+N for signal N.
        out_of_memory: Whether the kernel killed something of it for want of memory.
        reason: The word for it, where a test has chosen one.
    """

    code: int
    out_of_memory: bool = False
    reason: str = ""


class StartError(Exception):
    """A container can't be started; the message says why."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a container runs.

    Attributes:
        pause: The process that holds its pod's namespaces.
        host_network: Whether its network isn't the pod's own.
        memory: The group of its memory, which is there; None if nothing limits it.
        shown: Further places that it sees, read only: path -> of the machine.
    """

    pause: int
    host_network: bool = False
    memory: MemoryGroup | None = None
    shown: Mapping[str, Path] = field(default_factory=dict)

    def json(self) -> Json:
        """What the shim reads."""
        groups = [str(self.memory.processes)] if self.memory else []
        return {"pause": self.pause, "host_network": self.host_network, "cgroups": groups}


class Process(Protocol):
    """What a container's life is made of."""

    @property
    def id(self) -> str: ...

    @property
    def nominal(self) -> bool: ...

    async def wait(self) -> Exit:
        """Wait for its end; all its output is kept by then."""

    def terminate(self) -> None:
        """Ask it to end."""

    def kill(self) -> None:
        """End it."""

    def end_as(self, code: int, reason: str) -> None:
        """End it, and have it ended in a way of a test's choice."""

    async def run(self, argv: Sequence[str], limit: float) -> Answer:
        """Run a command inside, and see how it ends."""

    def entering(self, argv: Sequence[str]) -> list[str] | None:
        """The command line that runs a command inside; None if there is no inside (yet, or any more)."""


def shim_command(mode: str, *words: str) -> list[str]:
    return [sys.executable, "-I", "-S", "-B", str(SHIM), mode, str(os.getpid()), *words]


class ShimProcess:
    """A real process in namespaces of its own."""

    nominal = False

    def __init__(
        self, launch: Launch, process: asyncio.subprocess.Process, inside: int, memory: MemoryGroup | None
    ) -> None:
        self._launch = launch
        self._process = process
        self._inside = inside
        self._memory = memory
        self._chosen: Exit | None = None
        self._pump = asyncio.create_task(self._keep_output())

    @classmethod
    async def start(cls, launch: Launch, place: Place) -> ShimProcess:
        """Start a container.

        Raises:
            StartError: It can't be started.
        """
        launch.folder.mkdir(parents=True, exist_ok=True)
        heard, told = os.pipe()
        try:
            process = await cls._spawn(launch, place, told)
            try:
                said = (await asyncio.to_thread(os.read, heard, _PIECE)).decode(errors="replace")
            except BaseException:
                process.kill()  # nobody would know of it any more
                raise
        finally:
            os.close(heard)
        if said.startswith("pid:"):
            return cls(launch, process, int(said.removeprefix("pid:")), place.memory)
        output, _ = await process.communicate()
        raise StartError(said or output.decode(errors="replace")[-_PIECE:] or "it was killed")

    @staticmethod
    async def _spawn(launch: Launch, place: Place, report: int) -> asyncio.subprocess.Process:
        spec = launch.json() | place.json() | {"report": report}
        spec["mounts"] += [Mount(path, source, read_only=True).json() for path, source in place.shown.items()]
        (launch.folder / "spec.json").write_text(json.dumps(spec))
        try:
            return await asyncio.create_subprocess_exec(
                *shim_command("run", str(launch.folder / "spec.json")),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                start_new_session=True,
                env=_SHIM_ENV,
                pass_fds=(report,),
            )
        finally:
            os.close(report)

    @property
    def id(self) -> str:
        return f"process://{self._process.pid}"

    async def _keep_output(self) -> None:
        stream, stamper = self._process.stdout, Stamper()
        self._launch.log.parent.mkdir(parents=True, exist_ok=True)
        with self._launch.log.open("ab", buffering=0) as kept:
            while stream and (piece := await stream.read(_PIECE)):
                kept.write(stamper.stamp(piece, fine_stamp()))

    async def wait(self) -> Exit:
        code = await self._process.wait()
        await self._pump
        if self._chosen is not None:
            return self._chosen
        return Exit(128 - code if code < 0 else code, bool(self._memory and self._memory.ran_out()))

    def terminate(self) -> None:
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        self._signal(signal.SIGKILL)

    def _signal(self, number: int) -> None:
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)

    def end_as(self, code: int, reason: str) -> None:
        self._chosen = Exit(code, reason=reason)
        self.kill()

    def entering(self, argv: Sequence[str]) -> list[str] | None:
        if self._process.returncode is not None:
            return None
        spec = json.loads((self._launch.folder / "spec.json").read_text()) | {"argv": list(argv)}
        entry = self._launch.folder / f"exec.{abs(hash(tuple(argv))):x}.json"
        entry.write_text(json.dumps(spec))
        return shim_command("exec", str(entry), str(self._inside))

    async def run(self, argv: Sequence[str], limit: float) -> Answer:
        command = self.entering(argv)
        if command is None:
            return Answer(False, "container not running")
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env=_SHIM_ENV,
        )
        try:
            said, _ = await asyncio.wait_for(process.communicate(), limit)
        except TimeoutError:
            return Answer(False, f"command timed out: {' '.join(argv)!r} timed out after {limit:g}s")
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
        return Answer(process.returncode == 0, said.decode(errors="replace")[-1024:])


class NominalProcess:
    """No process at all: Kubernetes sees it run, and nothing does."""

    nominal = True

    def __init__(self, launch: Launch, number: int) -> None:
        self._end: asyncio.Future[Exit] = asyncio.get_running_loop().create_future()
        self._number = number
        if launch.image.exit_after is not None:
            finish = Exit(launch.image.exit_code)
            asyncio.get_running_loop().call_later(launch.image.exit_after, self._finish, finish)

    def _finish(self, how: Exit) -> None:
        if not self._end.done():
            self._end.set_result(how)

    @property
    def id(self) -> str:
        return f"nominal://{self._number}"

    async def wait(self) -> Exit:
        return await asyncio.shield(self._end)

    def terminate(self) -> None:
        self._finish(Exit(0))

    def kill(self) -> None:
        self._finish(Exit(137))

    def end_as(self, code: int, reason: str) -> None:
        self._finish(Exit(code, reason=reason))

    async def run(self, argv: Sequence[str], limit: float) -> Answer:  # noqa: ARG002
        return Answer(True)

    def entering(self, argv: Sequence[str]) -> list[str] | None:  # noqa: ARG002
        return None

"""What the containers of a pod share: an address, a network, a host name, and the process that holds them."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Iterator
from ipaddress import ip_network
from pathlib import Path

from cluster.sim.kubelet import environment, shapes
from cluster.sim.kubelet.cgroups import CgroupTree, MemoryGroup
from cluster.sim.kubelet.client import log
from cluster.sim.kubelet.launches import Launch
from cluster.sim.kubelet.processes import NominalProcess, Place, Process, ShimProcess, shim_command
from cluster.sim.kubelet.shapes import Json

BRIDGE, _PREFIX_LENGTH = "br0", 16
_SPARE_RANGE = "10.244.250.0/24"
_NUMBERS = itertools.count(1)


class CommandError(Exception):
    """A command of the system failed."""


async def command(*argv: str) -> str:
    """Run a command of the system.

    Raises:
        CommandError: It failed.
    """
    process = await asyncio.create_subprocess_exec(
        *argv,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await process.communicate()
    if process.returncode:
        raise CommandError(f"{' '.join(argv)}: {said.decode(errors='replace').strip()}")
    return said.decode()


class Addresses:
    """Hands out addresses of pods, from the ranges of their nodes."""

    def __init__(self) -> None:
        self._taken: set[str] = set()

    def take(self, node: Json) -> str:
        """A free address.

        Raises:
            CommandError: All are taken.
        """
        for address in self._range(node):
            if address not in self._taken:
                self._taken.add(address)
                return address
        raise CommandError(f"no free address on node {shapes.name_of(node)}")

    @staticmethod
    def _range(node: Json) -> Iterator[str]:
        hosts = ip_network(node["spec"].get("podCIDR") or _SPARE_RANGE).hosts()
        next(hosts)  # the first is a router's, elsewhere
        return map(str, hosts)

    def give_back(self, address: str) -> None:
        self._taken.discard(address)


class Sandbox:
    """A pod's own surroundings. They are made when the first real process needs them; in name only, nothing is."""

    def __init__(self, pod: Json, address: str, gateway: str, memory: CgroupTree | None) -> None:
        self.address = address
        self._pod = pod
        self._gateway = gateway
        self._memory = memory
        self._groups: list[MemoryGroup] = []
        self._pause: asyncio.subprocess.Process | None = None
        self._making = asyncio.Lock()
        self._link = f"v{shapes.uid_of(pod).replace('-', '')[:12]}"

    @property
    def host_network(self) -> bool:
        return bool(self._pod["spec"].get("hostNetwork"))

    async def launch(self, launch: Launch) -> Process:
        """Start a container.

        Raises:
            CommandError: The pod's network can't be made.
            processes.StartError: The container's process can't be started.
        """
        if launch.image.nominal:
            return NominalProcess(launch, next(_NUMBERS))
        async with self._making:
            if self._pause is None:
                self._pause = await self._make()
        group, shown = self._limit(launch)
        return await ShimProcess.start(launch, Place(self._pause.pid, self.host_network, group, shown))

    def _limit(self, launch: Launch) -> tuple[MemoryGroup | None, dict[str, Path]]:
        if self._memory is None or not launch.memory:
            return None, {}
        uid = shapes.uid_of(self._pod)
        group = self._memory.group(uid, launch.folder.name)
        try:
            group.remove()  # of the run before this one, whose kills count no more
            self._memory.prepare(uid)
            group.create(launch.memory)
        except OSError as wrong:
            log("no memory limit for", shapes.name_of(self._pod), wrong)
            return None, {}
        self._groups.append(group)
        return group, {} if self._memory.unified else {"/sys/fs/cgroup/memory": group.folder}

    async def _make(self) -> asyncio.subprocess.Process:
        pause = await asyncio.create_subprocess_exec(
            *shim_command("pause", environment.hostname(self._pod)),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        try:
            if pause.stdout is None or await pause.stdout.readline() != b"ready\n":
                raise CommandError("the pause process has ended")
            if not self.host_network:
                await self._connect(pause.pid)
        except BaseException:
            with contextlib.suppress(ProcessLookupError):
                pause.kill()
            await pause.wait()
            raise
        return pause

    async def _connect(self, pid: int) -> None:
        await command("ip", "link", "add", self._link, "type", "veth", "peer", "name", "eth0", "netns", str(pid))
        await command("ip", "link", "set", self._link, "master", BRIDGE, "up")
        inside = (
            f"ip link set lo up && ip addr add {self.address}/{_PREFIX_LENGTH} dev eth0 && ip link set eth0 up"
            f" && ip route add default via {self._gateway}"
        )
        await command("nsenter", "-t", str(pid), "-n", "sh", "-ec", inside)

    async def cut(self, off: bool) -> None:
        """Cut the pod's network off, or join it again."""
        if self._pause is not None and not self.host_network:
            with contextlib.suppress(CommandError):
                await command("ip", "link", "set", self._link, "down" if off else "up")

    async def close(self) -> None:
        """Take everything away; the containers have ended."""
        async with self._making:
            pause, self._pause = self._pause, None
        if pause is not None:
            with contextlib.suppress(ProcessLookupError):
                pause.kill()
            await pause.wait()
        for group in self._groups:
            group.remove()

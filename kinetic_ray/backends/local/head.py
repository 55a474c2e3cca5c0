"""The head of the embedded cluster: started at once, and told about to whoever waits for it."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kinetic_ray.backends.local import env
from kinetic_ray.backends.local.launch import Launched, Launcher, LaunchFailed
from kinetic_ray.backends.local.need import total_memory, usable_cpus
from kinetic_ray.backends.local.paths import Runtime
from kinetic_ray.backends.local.plan import NodePlan
from kinetic_ray.errors import ConfigError

_START_TIMEOUT = 120.0
_TRIES = 4  # its raylet gives the agents 15 s to start, which a busy machine needs more than once
_OBJECT_STORE_SHARE, _OBJECT_STORE_MOST = 0.2, 4 * 2**30


@dataclass(frozen=True, slots=True)
class HeadReport:
    """What the head said when it was up.

    Attributes:
        node_id: Its Ray node.
        gcs_address: host:port of the cluster.
        dashboard: host:port of the dashboard and the Jobs API.
        runtime_env_port: Its runtime-env agent, which hosts use too.
    """

    node_id: str
    gcs_address: str
    dashboard: str
    runtime_env_port: int


class Head:
    """The head node; it is started once, and what becomes of it decides what becomes of the cluster."""

    def __init__(self, runtime: Runtime, launcher: Launcher) -> None:
        self._runtime = runtime
        self._launcher = launcher
        self._report: asyncio.Future[HeadReport] = asyncio.get_running_loop().create_future()
        self.launched: Launched | None = None

    @property
    def state(self) -> str:
        """Either "starting", "up" or "failed"."""
        if not self._report.done():
            return "starting"
        return "failed" if self._report.exception() else "up"

    @property
    def now(self) -> HeadReport | None:
        """Its report, if it is up."""
        return self._report.result() if self.state == "up" else None

    async def report(self) -> HeadReport:
        """Waits until it is up.

        Raises:
            ConfigError: It could not be started.
        """
        return await asyncio.shield(self._report)

    async def start(self) -> None:
        """Starts it.

        Raises:
            ConfigError: It doesn't come up; the message ends with its last words.
        """
        for attempt in range(_TRIES):
            try:
                self.launched, said = await self._launcher.start(self._plan(), env.head_environment(), _START_TIMEOUT)
            except LaunchFailed as exc:
                if attempt + 1 == _TRIES:
                    error = ConfigError(f"the embedded cluster can't start: {exc}")
                    self._report.set_exception(error)
                    self._report.exception()  # seen, whether or not anybody waits
                    raise error from exc
            else:
                self._report.set_result(_parse(said))
                return

    def _plan(self) -> NodePlan:
        return NodePlan(
            name="head",
            temp_dir=str(self._runtime.ray),
            socket_dir=str(self._runtime.sockets),
            cpus=usable_cpus(),
            object_store=_object_store(),
        )


def _object_store() -> int:
    """A share of the memory, and no more than half of what is free where shared memory lies."""
    wanted = min(int(total_memory() * _OBJECT_STORE_SHARE), _OBJECT_STORE_MOST)
    shm = Path("/dev/shm")
    if shm.is_dir():
        found = os.statvfs(shm)
        wanted = min(wanted, found.f_bavail * found.f_frsize // 2)
    return max(wanted, 100 * 2**20)


def _parse(said: dict[str, Any]) -> HeadReport:
    return HeadReport(said["node_id"], said["gcs_address"], said["dashboard"], said["runtime_env_port"])

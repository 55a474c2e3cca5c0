"""The cluster's nursery (:mod:`kinetic_ray.runner.nursery`): started beside the first TPU host, kept up, stopped."""

from __future__ import annotations

import asyncio
import importlib.util
import logging
import os
import sys
import time

from kinetic_ray.backends.local import env, guard
from kinetic_ray.backends.local.launch import Launched, Launcher
from kinetic_ray.backends.local.paths import Runtime

_LOG = logging.getLogger(__name__)

_RUNTIME = "jax"
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 60.0


class Nursery:
    """One process that has imported jax for all hosts. Without it everything works, only slower."""

    def __init__(self, runtime: Runtime, launcher: Launcher) -> None:
        self._runtime = runtime
        self._launcher = launcher
        self._launched: Launched | None = None
        self._keeping: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int | None:
        return self._launched.pid if self._launched and not self._launched.ended.done() else None

    def begin(self) -> None:
        """Starts it, unless that has been done, or can't be of use."""
        if self._keeping is None and guard.LINUX and importlib.util.find_spec(_RUNTIME) is not None:
            self._keeping = asyncio.get_running_loop().create_task(self._keep())

    async def close(self) -> None:
        """Ends it, and waits for that."""
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.wait([self._keeping])
        if self._launched is not None:
            await self._launcher.stop(self._launched)

    async def _keep(self) -> None:
        """Starts it again when it dies, after a pause that grows while it keeps dying young."""
        command = [sys.executable, "-P", "-m", "kinetic_ray.runner.nursery", str(self._runtime.nursery), _RUNTIME]
        pause = _FIRST_PAUSE_S
        while True:
            started = time.monotonic()
            self._launched = self._launcher.start_beside(
                "nursery", [*command, str(os.getpid())], env.nursery_environment()
            )
            await asyncio.wait([self._launched.ended])
            code = self._launched.ended.result()
            _LOG.warning("the nursery ended with code %d; see %s", code, self._runtime.node_logs / "nursery.log")
            if code == 0:  # it has found that it is of no use here
                return
            if time.monotonic() - started > _LONGEST_PAUSE_S:
                pause = _FIRST_PAUSE_S
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_S)

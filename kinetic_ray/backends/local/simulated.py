"""What is known of one simulated slice and its hosts."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kinetic_ray.backends.local.launch import Launched
from kinetic_ray.core.accelerators import Accelerator


@dataclass(slots=True)
class Host:
    """One simulated host; `launched` and `node_id` as soon as it is up."""

    worker_id: int
    launched: Launched | None = None
    node_id: str = ""
    state: str = "starting"


@dataclass(slots=True)
class SimulatedSlice:
    """One slice.

    Attributes:
        state: "starting", "up", "going" (preempted, with notice), "silent" (without), "stopping" or "lost".
        ready: Done when it is up, or has failed to come up.
        starter: The task that starts it.
        handed_at: When somebody was last sent to it who may still be on the way.
        rest: Seconds that its name rests after its end.
        hurry: Set when there is nobody any more for whom a preempted slice should last out its grace.
    """

    name: str
    accelerator: Accelerator
    hosts: list[Host]
    ready: asyncio.Future[None]
    used_at: float
    state: str = "starting"
    starter: asyncio.Task[None] | None = None
    handed_at: float = field(default_factory=time.monotonic)
    rest: float = 0.0
    hurry: asyncio.Event = field(default_factory=asyncio.Event)

    def to_dict(self) -> dict[str, Any]:
        """As `status` shows it."""
        hosts = [
            {
                "worker_id": host.worker_id,
                "node_id": host.node_id,
                "pid": host.launched.pid if host.launched else None,
                "state": host.state,
            }
            for host in self.hosts
        ]
        return {"name": self.name, "accelerator": self.accelerator.name, "state": self.state, "hosts": hosts}

    def offer(self) -> Mapping[str, Any]:
        """As it is offered to who asks for slices."""
        hosts = [{"worker_id": host.worker_id, "node_id": host.node_id} for host in self.hosts]
        return {"name": self.name, "hosts": hosts}

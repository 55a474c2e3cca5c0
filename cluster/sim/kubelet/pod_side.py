"""What a container asks of its pod."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from cluster.sim.kubelet.events import Event
from cluster.sim.kubelet.fields import PodFacts
from cluster.sim.kubelet.launches import PodFolder
from cluster.sim.kubelet.sandbox import Sandbox
from cluster.sim.kubelet.shapes import Json


class PodSide(Protocol):
    """What a container asks of its pod."""

    @property
    def record(self) -> Json: ...

    @property
    def sandbox(self) -> Sandbox: ...

    @property
    def place(self) -> PodFolder: ...

    @property
    def sources(self) -> Mapping[str, Path]: ...

    @property
    def read_only(self) -> frozenset[str]: ...

    def facts(self) -> PodFacts:
        """What is known of the pod."""

    def device_variables(self, container: Json) -> dict[str, str]:
        """What device plugins put into a container."""

    def tell(self, event: Event) -> None:
        """Send an event."""

    def changed(self) -> None:
        """Have the pod's status written anew."""

    async def present(self) -> None:
        """Wait until the pod's host is there."""

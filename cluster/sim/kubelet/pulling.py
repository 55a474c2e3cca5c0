"""Gets the image of a container, as long as that takes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from cluster.sim.kubelet import events, images
from cluster.sim.kubelet.events import Event
from cluster.sim.kubelet.images import Image, InvalidNameError, PullError
from cluster.sim.kubelet.restarts import BackOff
from cluster.sim.kubelet.shapes import Json
from cluster.sim.kubelet.states import Waiting
from cluster.sim.kubelet.surroundings import Surroundings

_TOLD_FAILING = 1.0


@dataclass(frozen=True, slots=True)
class Puller:
    """Pulls for one container.

    Attributes:
        around: Has the table.
        tell: Takes events.
        show: Takes what the container waits for.
        pause: Waits some seconds; False if the container is to stop.
    """

    around: Surroundings
    tell: Callable[[Event], None]
    show: Callable[[Waiting], None]
    pause: Callable[[float], Awaitable[bool]]

    async def pull(self, container: Json, first: bool) -> Image | None:
        """The container's image; None if it is to stop before there is one.

        Args:
            container: Its spec.
            first: Whether this is its first start: afterwards the image is there.
        """
        name = container["image"]
        policy = container.get("imagePullPolicy") or ("Always" if images.with_tag(name).endswith(":latest") else "")
        back_off = BackOff(self.around.options.backoff_scale)
        while True:
            try:
                image = images.find(self.around.images(), name)
            except InvalidNameError as wrong:
                said = f'Failed to apply default image tag "{name}": {wrong}'
                if not await self._refuse(events.invalid_name(name, str(wrong)), Waiting("InvalidImageName", said), 10):
                    return None
            except PullError as wrong:
                if policy == "Never":
                    said = f'Container image "{name}" is not present with pull policy of Never'
                    refusal = Event("Warning", "ErrImageNeverPull", said)
                    if not await self._refuse(refusal, Waiting("ErrImageNeverPull", said), 10):
                        return None
                    continue
                back_off = back_off.after()
                if not await self._back_off(name, str(wrong), back_off.delay):
                    return None
            else:
                if first and policy == "Always":
                    self.tell(events.pulling(name))
                    self.tell(events.pulled(name))
                else:
                    self.tell(events.present(name))
                return image

    async def _refuse(self, event: Event, waiting: Waiting, seconds: float) -> bool:
        self.tell(event)
        self.tell(events.error(waiting.reason))
        self.show(waiting)
        return await self.pause(seconds * self.around.options.backoff_scale)

    async def _back_off(self, name: str, why: str, delay: float) -> bool:
        self.tell(events.pulling(name))
        self.tell(events.pull_failed(name, why))
        self.tell(events.error("ErrImagePull"))
        self.show(Waiting("ErrImagePull", why))
        shown = min(_TOLD_FAILING, delay / 2)
        if not await self.pause(shown):
            return False
        self.tell(events.pull_back_off(name))
        self.tell(events.error("ImagePullBackOff"))
        self.show(Waiting("ImagePullBackOff", f'Back-off pulling image "{name}": ErrImagePull: {why}'))
        return await self.pause(delay - shown)

"""What a container is doing, as values, and how Kubernetes spells them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from cluster.sim.kubelet.shapes import Json


class Kind(StrEnum):
    """How a container takes part in its pod."""

    INIT = "init"  # runs to its end before the next one starts
    SIDECAR = "sidecar"  # an init container that is restarted always, and stopped last
    MAIN = "main"


@dataclass(frozen=True, slots=True)
class Waiting:
    """It isn't running yet, or isn't running again yet, and why."""

    reason: str
    message: str = ""

    def json(self) -> Json:
        said = {"message": self.message} if self.message else {}
        return {"waiting": {"reason": self.reason, **said}}


@dataclass(frozen=True, slots=True)
class Running:
    """It runs since a moment."""

    since: str

    def json(self) -> Json:
        return {"running": {"startedAt": self.since}}


@dataclass(frozen=True, slots=True)
class Ended:
    """It ran and has ended."""

    code: int
    reason: str
    since: str
    until: str
    message: str = ""
    container_id: str = ""

    def json(self) -> Json:
        said = {"message": self.message} if self.message else {}
        return {
            "terminated": {
                "exitCode": self.code,
                "reason": self.reason,
                "startedAt": self.since,
                "finishedAt": self.until,
                "containerID": self.container_id,
                **said,
            }
        }


State = Waiting | Running | Ended
INITIALIZING = Waiting("PodInitializing")
CREATING = Waiting("ContainerCreating")


@dataclass(frozen=True, slots=True)
class ContainerStatus:
    """All that a pod's status tells of one container."""

    name: str
    image: str
    kind: Kind
    state: State = INITIALIZING
    last: Ended | None = None
    restarts: int = 0
    ready: bool = False
    started: bool = False
    container_id: str = ""

    def json(self) -> Json:
        return {
            "name": self.name,
            "image": self.image,
            "imageID": f"process://{self.image}" if self.container_id else "",
            "containerID": self.container_id,
            "restartCount": self.restarts,
            "ready": self.ready,
            "started": self.started,
            "state": self.state.json(),
            "lastState": self.last.json() if self.last else {},
        }

    @property
    def succeeded(self) -> bool:
        return isinstance(self.state, Ended) and self.state.code == 0

    @property
    def has_run(self) -> bool:
        """Whether it runs, has ended, or waits to be started once more."""
        return not isinstance(self.state, Waiting) or self.last is not None


def kind_of(container: Json, init: bool) -> Kind:
    """What part a container of a pod's spec plays."""
    if not init:
        return Kind.MAIN
    return Kind.SIDECAR if container.get("restartPolicy") == "Always" else Kind.INIT


def exit_reason(code: int, out_of_memory: bool) -> str:
    """The word that a runtime gives for an exit code."""
    if out_of_memory:
        return "OOMKilled"
    return "Completed" if code == 0 else "Error"


def lost(pod: Json, now: str) -> Json | None:
    """The status of a pod whose containers ended with the kubelet before this one; None if they may run (again).

    A pod that restarts is run anew, as after a reboot. One that never restarts must not do its work twice.
    """
    status = pod.get("status") or {}
    before = [*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])]
    begun = any("waiting" not in one["state"] for one in before)
    if pod["spec"].get("restartPolicy") != "Never" or not begun:
        return None
    message = "The container could not be located when the pod was terminated"
    ended = []
    for one in status.get("containerStatuses") or []:
        since = (one["state"].get("running") or {}).get("startedAt") or now
        state = Ended(137, "ContainerStatusUnknown", since, now, message).json()
        gone = one if "terminated" in one["state"] else {**one, "state": state, "ready": False, "started": False}
        ended.append(gone)
    return {"phase": "Failed", "containerStatuses": ended}

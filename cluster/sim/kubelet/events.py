"""What a kubelet tells as events: the same reasons and sentences as a real one, for people and programs read them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from cluster.sim.kubelet import shapes
from cluster.sim.kubelet.probes import ProbeKind
from cluster.sim.kubelet.restarts import spoken
from cluster.sim.kubelet.shapes import Json


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened.

    Attributes:
        type: Whether it is as it should be.
        reason: One word.
        message: One sentence.
        container: The key of the container that it is about, e.g. "spec.containers{main}"; "" for all of the pod.
    """

    type: Literal["Normal", "Warning"]
    reason: str
    message: str
    container: str = ""


def pulling(image: str) -> Event:
    return Event("Normal", "Pulling", f'Pulling image "{image}"')


def pulled(image: str) -> Event:
    said = f'Successfully pulled image "{image}" in 1ms (1ms including waiting). Image size: 1 bytes.'
    return Event("Normal", "Pulled", said)


def present(image: str) -> Event:
    said = f'Container image "{image}" already present on machine and can be accessed by the pod'
    return Event("Normal", "Pulled", said)


def pull_failed(image: str, why: str) -> Event:
    return Event("Warning", "Failed", f'Failed to pull image "{image}": {why}')


def pull_back_off(image: str) -> Event:
    return Event("Normal", "BackOff", f'Back-off pulling image "{image}"')


def invalid_name(image: str, why: str) -> Event:
    return Event("Warning", "InspectFailed", f'Failed to apply default image tag "{image}": {why}')


def error(why: str) -> Event:
    """A container can't be made or started: the word or the sentence of its waiting state."""
    return Event("Warning", "Failed", f"Error: {why}")


def created() -> Event:
    return Event("Normal", "Created", "Container created")


def started() -> Event:
    return Event("Normal", "Started", "Container started")


def restart_back_off(container: str, pod: Json) -> Event:
    said = f"Back-off restarting failed container {container} in pod {shapes.pod_label(pod)}"
    return Event("Warning", "BackOff", said)


def waiting_to_restart(container: str, pod: Json, seconds: int) -> str:
    """The message of a container's CrashLoopBackOff."""
    return f"back-off {spoken(seconds)} restarting failed container={container} pod={shapes.pod_label(pod)}"


def stopping(container: str) -> Event:
    return Event("Normal", "Killing", f"Stopping container {container}")


def probe_kill(container: str, kind: ProbeKind, restarted: bool) -> Event:
    said = f"Container {container} failed {kind.word.lower()} probe"
    return Event("Normal", "Killing", f"{said}, will be restarted" if restarted else said)


def unhealthy(kind: ProbeKind, said: str) -> Event:
    return Event("Warning", "Unhealthy", f"{kind.word} probe failed: {said}")


def mount_failed(volume: str, why: str) -> Event:
    return Event("Warning", "FailedMount", f'MountVolume.SetUp failed for volume "{volume}" : {why}')


def sandbox_failed(why: str) -> Event:
    return Event("Warning", "FailedCreatePodSandBox", f"Failed to create pod sandbox: {why}")


def hook_failed(hook: str) -> Event:
    return Event("Warning", f"Failed{hook}Hook", f"{hook}Hook failed")


def node_shutdown() -> Event:
    return Event("Normal", "Shutdown", "Shutdown manager detected shutdown event")


def node_ready(name: str, ready: bool) -> Event:
    word = "NodeReady" if ready else "NodeNotReady"
    return Event("Normal", word, f"Node {name} status is now: {word}")


def kubelet_starting() -> Event:
    return Event("Normal", "Starting", "Starting kubelet.")


def record(event: Event, about: Json, node: str, name: str, moment: str) -> Json:
    """An event as the API server keeps it.

    Args:
        event: What happened.
        about: The pod or node.
        node: Whose kubelet tells it.
        name: The record's own name.
        moment: When it happened, for the first time.
    """
    meta = about["metadata"]
    involved: Json = {"apiVersion": "v1", "kind": about.get("kind") or "Pod", "name": meta["name"], "uid": meta["uid"]}
    if meta.get("namespace"):
        involved |= {"namespace": meta["namespace"], "resourceVersion": meta.get("resourceVersion", "")}
    if event.container:
        involved["fieldPath"] = event.container
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": meta.get("namespace") or "default"},
        "involvedObject": involved,
        "type": event.type,
        "reason": event.reason,
        "message": event.message[:1024],
        "count": 1,
        "firstTimestamp": moment,
        "lastTimestamp": moment,
        "source": {"component": "kubelet", "host": node},
        "reportingComponent": "kubelet",
        "reportingInstance": node,
    }

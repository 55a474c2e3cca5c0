"""The phase and the conditions of a pod, from what its containers do: the kubelet's own rules, as pure functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from cluster.sim.kubelet.shapes import Json
from cluster.sim.kubelet.states import ContainerStatus, Ended, Kind, Running, Waiting


class Phase(StrEnum):
    """Kubernetes' five words, less Unknown, which nothing says any more."""

    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


OVER = frozenset((Phase.SUCCEEDED, Phase.FAILED))


@dataclass(frozen=True, slots=True)
class Condition:
    """One line of a status: a statement, whether it holds, and why."""

    type: str
    holds: bool
    reason: str = ""
    message: str = ""

    def json(self, since: str) -> Json:
        said = {key: value for key, value in (("reason", self.reason), ("message", self.message)) if value}
        status = "True" if self.holds else "False"
        return {"type": self.type, "status": status, "lastTransitionTime": since, "lastProbeTime": None, **said}


def initialized(containers: Sequence[ContainerStatus]) -> bool:
    """Whether every init container has done its work and every sidecar has once started."""
    return not _not_initialized(containers)


def _not_initialized(containers: Sequence[ContainerStatus]) -> list[str]:
    inits = [one for one in containers if one.kind is Kind.INIT and not one.succeeded]
    sidecars = [one for one in containers if one.kind is Kind.SIDECAR and not (one.started or one.has_run)]
    return [one.name for one in containers if one in inits or one in sidecars]


def phase(policy: str, containers: Sequence[ContainerStatus], stopped: bool = False) -> Phase:
    """The phase of a pod.

    Args:
        policy: The pod's restartPolicy.
        containers: All of them, init containers too.
        stopped: Whether the pod was told to end and nothing of it runs any more.
    """
    mains = [one for one in containers if one.kind is Kind.MAIN]
    if stopped:
        return Phase.SUCCEEDED if all(one.succeeded for one in mains) else Phase.FAILED
    init_failed = any(
        one.kind is Kind.INIT and isinstance(one.state, Ended) and one.state.code != 0 for one in containers
    )
    if init_failed and policy == "Never":
        return Phase.FAILED
    if not initialized(containers) or any(not one.has_run for one in mains):
        return Phase.PENDING
    if any(isinstance(one.state, Running | Waiting) for one in mains) or policy == "Always":
        return Phase.RUNNING
    if all(one.succeeded for one in mains):
        return Phase.SUCCEEDED
    return Phase.FAILED if policy == "Never" else Phase.RUNNING


def conditions(
    phase_now: Phase,
    containers: Sequence[ContainerStatus],
    has_network: bool,
    gates: Mapping[str, bool] | None = None,
) -> tuple[Condition, ...]:
    """What a pod's status states, but for what is said of its disruption.

    Args:
        phase_now: The pod's phase.
        containers: All of them.
        has_network: Whether the pod has its address.
        gates: The pod's readiness gates, and whether each holds.
    """
    missing = [] if phase_now is Phase.SUCCEEDED else _not_initialized(containers)
    init = Condition("Initialized", True)
    if missing:
        said = f"containers with incomplete status: [{' '.join(missing)}]"
        init = Condition("Initialized", False, "ContainersNotInitialized", said)
    elif phase_now is Phase.SUCCEEDED:
        init = Condition("Initialized", True, "PodCompleted")
    together = _containers_ready(phase_now, containers)
    return (
        Condition("PodReadyToStartContainers", has_network and phase_now not in OVER),
        init,
        together,
        _ready(together, gates or {}),
        Condition("PodScheduled", True),
    )


def _containers_ready(phase_now: Phase, containers: Sequence[ContainerStatus]) -> Condition:
    if phase_now is Phase.SUCCEEDED:
        return Condition("ContainersReady", False, "PodCompleted")
    if phase_now is Phase.FAILED:
        return Condition("ContainersReady", False, "PodFailed")
    unready = [one.name for one in containers if one.kind is not Kind.INIT and not one.ready]
    if unready:
        said = f"containers with unready status: [{' '.join(unready)}]"
        return Condition("ContainersReady", False, "ContainersNotReady", said)
    return Condition("ContainersReady", True)


def _ready(together: Condition, gates: Mapping[str, bool]) -> Condition:
    if not together.holds:
        return Condition("Ready", False, together.reason, together.message)
    closed = [f'corresponding condition of pod readiness gate "{gate}" is not "True"' for gate in gates]
    shut = [said for said, open_ in zip(closed, gates.values(), strict=True) if not open_]
    if shut:
        return Condition("Ready", False, "ReadinessGatesNotReady", ", ".join(shut))
    return Condition("Ready", True)


def gates_of(pod: Json) -> dict[str, bool]:
    """A pod's readiness gates, and whether somebody has set each to true."""
    stated = {one["type"]: one["status"] == "True" for one in (pod.get("status") or {}).get("conditions") or []}
    asked = [gate["conditionType"] for gate in pod["spec"].get("readinessGates") or []]
    return {gate: stated.get(gate, False) for gate in asked}

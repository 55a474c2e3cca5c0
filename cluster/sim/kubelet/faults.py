"""Faults that tests ask for by annotations, and what a node says of itself meanwhile."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from cluster.sim.kubelet.shapes import Json

NODE_FAULT, CONTAINER_EXIT = "sim.kinetic.dev/fault", "sim.kinetic.dev/exit"
NOTICE = 25.0  # what GKE leaves to the pods of a spot VM, of its 30 s

TERMINATION_TAINT = "cloud.google.com/impending-node-termination"
MAINTENANCE_LABEL = "cloud.google.com/active-node-maintenance"
SHUTDOWN_REASON, SHUTDOWN_MESSAGE = "Terminated", "Pod was terminated in response to imminent node shutdown."
REFUSED_REASON, REFUSED_MESSAGE = "NodeShutdown", "Pod was rejected as the node is shutting down."


class Fault(StrEnum):
    """What happens to a host."""

    PREEMPT = "preempt"  # a spot VM is taken away, with notice
    MAINTENANCE = "maintenance"  # the same for maintenance, with a label and as much time as was asked for
    SILENT = "silent"  # its network is cut, what runs there goes on
    CRASH = "crash"  # its power is cut


@dataclass(frozen=True, slots=True)
class NodeFault:
    """What is to happen to a host, and with how many seconds of notice."""

    fault: Fault
    notice: float = NOTICE

    @property
    def has_notice(self) -> bool:
        return self.fault in (Fault.PREEMPT, Fault.MAINTENANCE)


def node_fault(annotations: Mapping[str, str]) -> NodeFault | None:
    """The fault that a node's annotations ask for, such as "preempt:5"; None for none, or one unheard of."""
    name, _, seconds = annotations.get(NODE_FAULT, "").partition(":")
    if name not in list(Fault) or not re.fullmatch(r"([0-9]+(\.[0-9]+)?)?", seconds):
        return None
    return NodeFault(Fault(name), float(seconds) if seconds else NOTICE)


@dataclass(frozen=True, slots=True)
class ForcedExit:
    """A container that is to end now, in a way of a test's choice."""

    container: str
    code: int
    reason: str = ""


def forced_exit(annotations: Mapping[str, str]) -> ForcedExit | None:
    """The end that a pod's annotations ask for: "main:137:OOMKilled", "main:1"."""
    found = re.fullmatch(r"([a-z0-9-]+):([0-9]{1,3})(?::([A-Za-z]+))?", annotations.get(CONTAINER_EXIT, ""))
    return ForcedExit(found[1], int(found[2]), found[3] or "") if found else None


def node_conditions(ready: bool, shutting_down: bool, now: str, before: Json | None = None) -> list[Json]:
    """What a node's status states.

    Args:
        ready: Whether it takes pods.
        shutting_down: Whether that is why it doesn't.
        now: This moment.
        before: The node's record: a statement that holds as before keeps its moment.
    """
    since = {
        one["type"]: (one["status"], one.get("lastTransitionTime") or now)
        for one in ((before or {}).get("status") or {}).get("conditions") or []
    }
    reason, message = "KubeletReady", "kubelet is posting ready status"
    if not ready:
        reason, message = "KubeletNotReady", "node is shutting down" if shutting_down else "kubelet is not ready"
    stated = [("Ready", ready, reason, message)]
    for word, kind in (("Memory", "MemoryPressure"), ("Disk", "DiskPressure"), ("PID", "PIDPressure")):
        adequate = {
            "Memory": "sufficient memory available",
            "Disk": "no disk pressure",
            "PID": "sufficient PID available",
        }
        reason_ = {
            "Memory": "KubeletHasSufficientMemory",
            "Disk": "KubeletHasNoDiskPressure",
            "PID": "KubeletHasSufficientPID",
        }
        stated.append((kind, False, reason_[word], f"kubelet has {adequate[word]}"))
    conditions = []
    for kind, holds, why, said in stated:
        status = "True" if holds else "False"
        old = since.get(kind)
        moment = old[1] if old and old[0] == status else now
        line = {"type": kind, "status": status, "reason": why, "message": said}
        conditions.append({**line, "lastHeartbeatTime": now, "lastTransitionTime": moment})
    return conditions


def taints(spec: Json, notice: bool) -> list[Json]:
    """A node's taints with or without GKE's notice of its end."""
    others = [one for one in spec.get("taints") or [] if one["key"] != TERMINATION_TAINT]
    return [*others, {"key": TERMINATION_TAINT, "effect": "NoSchedule"}] if notice else others

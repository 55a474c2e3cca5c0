"""What a preemption takes away, and what is told of it: decided here, done by the slices."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from kinetic_ray.errors import UsageError

#: What GKE leaves the pods of a Spot host, of the 30 s that Compute Engine gives the host itself.
GRACE_S = 25.0
#: Until a fixed pool has the slice again.
RETURN_AFTER_S = 5.0
#: A silent host is given up by Ray within 8 s; what stands in for Google's repair comes after that.
SILENCE_S = 10.0
_LONGEST_S = 24 * 3600.0
#: States in which a slice can be taken away.
_THERE = ("starting", "up")


@dataclass(frozen=True, slots=True)
class Preemption:
    """One slice, or one host of it, that is taken away.

    Attributes:
        slice_name: The slice, which goes as a whole in any case.
        worker_id: The host that is taken; None takes all.
        grace: Seconds between the notice and the end; without meaning for a silent one.
        silent: No notice: the hosts stop answering.
        return_after: Seconds from the end until a fixed pool has the slice again.
    """

    slice_name: str
    worker_id: int | None = None
    grace: float = GRACE_S
    silent: bool = False
    return_after: float = RETURN_AFTER_S

    def takes(self, worker_id: int) -> bool:
        """Whether a host of the slice is among those that are taken."""
        return self.worker_id is None or self.worker_id == worker_id

    def to_dict(self) -> dict[str, Any]:
        """As it is told to who asked for it."""
        facts = {"slice": self.slice_name, "host": self.worker_id, "silent": self.silent}
        return {**facts, "grace": None if self.silent else self.grace, "return_after": self.return_after}


@dataclass(frozen=True, slots=True)
class Shape:
    """What of a slice matters here: how many hosts it has, and its state."""

    hosts: int
    state: str


def read(request: Mapping[str, Any], slices: Mapping[str, Shape]) -> Preemption:
    """What a request asks for.

    Args:
        request: `target`, and where given `grace`, `silent`, `return_after`.
        slices: All slices that there are, by name.

    Raises:
        UsageError: No such slice or host, or no such time; the message lists what there is.

    Example:
        >>> read({"target": "tpu-v6e-16-0.2", "grace": 3}, {"tpu-v6e-16-0": Shape(4, "up")}).worker_id
        2
    """
    silent = bool(request.get("silent"))
    if silent and request.get("grace") is not None:
        raise UsageError("a silent preemption gives no notice, so it has no grace: give one or the other")
    name, worker_id = _find(str(request.get("target", "")), slices)
    grace = _seconds(request, "grace", GRACE_S)
    return Preemption(name, worker_id, grace, silent, _seconds(request, "return_after", RETURN_AFTER_S))


def _find(target: str, slices: Mapping[str, Shape]) -> tuple[str, int | None]:
    name, dot, number = target.partition(".")
    shape = slices.get(name)
    known = shape is not None and (not dot or (number.isdecimal() and int(number) < shape.hosts))
    if shape is None or not known:
        raise UsageError(f"no slice or host {target!r}: {_listed(slices)}")
    if shape.state not in _THERE:
        raise UsageError(f"{name} is {shape.state} already: there is nothing left to take away")
    return name, int(number) if dot else None


def _listed(slices: Mapping[str, Shape]) -> str:
    there = [(name, shape.hosts) for name, shape in sorted(slices.items()) if shape.state in _THERE]
    if not there:
        return "no slice is there now; the first job that asks for one starts it"
    return "there are " + ", ".join(_with_hosts(name, hosts) for name, hosts in there)


def _with_hosts(name: str, hosts: int) -> str:
    return f"{name} (its host is {name}.0)" if hosts == 1 else f"{name} (its hosts are {name}.0 to {name}.{hosts - 1})"


def _seconds(request: Mapping[str, Any], name: str, default: float) -> float:
    given = request.get(name)
    if given is None:
        return default
    number = isinstance(given, int | float) and not isinstance(given, bool)
    if not number or not math.isfinite(given) or not 0 <= given <= _LONGEST_S:
        raise UsageError(f"{name}={given!r}: expected seconds from 0 to {_LONGEST_S:g}")
    return float(given)


def losses(hosts: Iterable[int], first: int | None, reason: str) -> list[tuple[int, str]]:
    """What is told of each host when a slice is gone, in this order.

    Args:
        hosts: Worker ids of those that were there.
        first: The host that the others went with; None if the reason is every host's own.
        reason: Why that one, or all of them, went.

    Example:
        >>> losses(range(3), 1, "NodeLost")
        [(1, 'NodeLost'), (0, 'SliceLost'), (2, 'SliceLost')]
    """
    told = [(host, reason if first in (None, host) else "SliceLost") for host in hosts]
    return sorted(told, key=lambda one: one[0] != first)

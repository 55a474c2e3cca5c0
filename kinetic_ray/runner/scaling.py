"""Where the broker gets hosts from: it asks a scaler, which on the embedded cluster is the supervisor."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from kinetic_ray import wire
from kinetic_ray.errors import ConfigError, KineticError, UsageError
from kinetic_ray.runner.queue import Slice

#: The supervisor's socket, the address of Ray's head, and "1" where chips are simulated: in the environment of
#: everything that a supervisor starts.
SUPERVISOR, RAY_HEAD, SIMULATED = "KINETIC_SUPERVISOR", "KINETIC_RAY_ADDRESS", "KINETIC_SIMULATED"

Event = dict[str, Any]


class NeverFits(KineticError):
    """The cluster can't ever have what was asked for; the message says what it has."""


@dataclass(frozen=True, slots=True)
class Offer:
    """A scaler's answer.

    Attributes:
        slices: Slices that are up and were not excluded, at most as many as asked for.
        note: Where they are fewer: why.
    """

    slices: tuple[Slice, ...]
    note: str = ""


class Scaler(Protocol):
    """Starts hosts on demand. All methods block, and may be called from several threads at once."""

    def slices(self, kind: tuple[str, int], count: int, exclude: Sequence[str]) -> Offer:
        """Slices of a kind, started if they are missing and there is room.

        Args:
            kind: Canonical name of the accelerator, chips per host.
            count: How many are wanted.
            exclude: Names of slices that are taken.

        Raises:
            NeverFits: There can't be so many at all.
            KineticError: Not this time.
        """

    def leases(self, names: Sequence[str]) -> None:
        """Told whenever fewer slices are taken, with all that still are: idle hosts may then be stopped."""

    def follow(self, tell: Callable[[Event], None]) -> None:
        """Calls `tell` with each event (`driver_gone`, `host_lost`, `slice_up`); returns when the stream ends."""


class SocketScaler:
    """Speaks to the embedded cluster's supervisor."""

    def __init__(self, path: str) -> None:
        self._path = path

    def slices(self, kind: tuple[str, int], count: int, exclude: Sequence[str]) -> Offer:
        request = {"accelerator": kind[0], "chips_per_host": kind[1], "count": count, "exclude": list(exclude)}
        try:
            answer = wire.call(self._path, {"op": "slices", **request}, timeout=None)
        except UsageError as exc:
            raise NeverFits(str(exc)) from exc
        return Offer(tuple(_slice(one) for one in answer["slices"]), str(answer.get("wait") or ""))

    def leases(self, names: Sequence[str]) -> None:
        wire.call(self._path, {"op": "leases", "names": list(names)})

    def follow(self, tell: Callable[[Event], None]) -> None:
        with wire.connect(self._path) as peer:
            peer.send({"op": "events"})
            while (message := peer.recv()) is not None:
                if "event" in wire.checked(message):
                    tell(message)


def _slice(told: Mapping[str, Any]) -> Slice:
    hosts = sorted(told["hosts"], key=lambda host: int(host["worker_id"]))
    return Slice(told["name"], tuple(host["node_id"] for host in hosts))


def supervisor_socket() -> str:
    """The supervisor's socket.

    Raises:
        ConfigError: This process was not started by an embedded cluster.
    """
    path = os.environ.get(SUPERVISOR)
    if not path:
        raise ConfigError(f"{SUPERVISOR} is not set: only a kinetic cluster starts drivers, submit the job to one")
    return path


def is_simulated() -> bool:
    """Whether this cluster's chips are CPU devices that stand for them."""
    return os.environ.get(SIMULATED) == "1"

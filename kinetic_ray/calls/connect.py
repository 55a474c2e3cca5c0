"""Joins this process to its target's Ray cluster, once, for `.remote()` and what belongs to it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kinetic_ray.config import Target


@dataclass(frozen=True, slots=True, eq=False)
class Connection:
    """This process's place in a cluster. A process that joins anew gets another one.

    Attributes:
        client: The process's Ray job, in hex.
        desk: Handle of the cluster's desk.
        ancestors: Holders of the leases under which this process runs, outermost first.
        target: Whose cluster it is.
        supervisor: The embedded cluster's socket.
    """

    client: str
    desk: Any
    ancestors: tuple[str, ...]
    target: Target
    supervisor: str


def connect(target: Target | None = None) -> Connection:
    """Joins the cluster of a target, or gives the connection that there is.

    Cheap when joined already. Safe from any thread. Joins anew where the cluster was restarted, or where Ray was shut
    down behind our back: then the connection is another object.

    Args:
        target: Where to; None = where this process is joined already, else as the environment says.

    Raises:
        UsageError: The process is connected to another Ray, was forked from a joined one, or the target has no cluster
            that processes can join.
        ConfigError: The cluster can't be reached or started.
    """
    raise NotImplementedError


def disconnect() -> None:
    """Leaves the cluster; does nothing in a process that hasn't joined one."""
    raise NotImplementedError


def on_leaving(callback: Callable[[Connection], None]) -> None:
    """Has something done each time just before this process leaves a cluster (disconnect(), the process's end).

    Ray still answers then. What a callback raises is logged, no more.
    """
    raise NotImplementedError


def init(*, backend: str | None = None, profile: str | None = None) -> Connection:
    """Joins now instead of at the first call.

    Args:
        backend: As the option of that name.
        profile: A named target.

    Raises:
        UsageError, ConfigError: As for :func:`connect`.
    """
    raise NotImplementedError


def shutdown() -> None:
    """Leaves the cluster: queued calls of this process are dropped, its actors end. The cluster stays."""
    disconnect()

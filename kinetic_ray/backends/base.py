"""The seam between jobs and what runs them: start a driver, look after it, stop it. Results never pass through here."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from enum import StrEnum
from pathlib import Path
from typing import Protocol, cast, runtime_checkable

from kinetic_ray.config import BACKEND_PLACES, Target
from kinetic_ray.errors import ConfigError


class Liveness(StrEnum):
    """What a backend knows of a job's driver."""

    WAITING = "waiting"  # submitted, not started yet
    SUBMITTING = "submitting"
    LIVE = "live"
    GONE = "gone"  # it ran here and runs no more
    UNKNOWN = "unknown"  # never heard of it
    DOWN = "down"  # nothing is there to ask: no supervisor runs

    @property
    def is_driven(self) -> bool:
        """Whether somebody works on the job or will."""
        return self in (Liveness.WAITING, Liveness.SUBMITTING, Liveness.LIVE)


@dataclass(frozen=True, slots=True)
class Observation:
    """One look at a job's driver.

    Attributes:
        state: What is known.
        message: For people; "" where there is nothing to add.
    """

    state: Liveness
    message: str = ""


@dataclass(frozen=True, slots=True)
class Need:
    """What a job will ask for, to be refused before anything is created if it can never fit.

    Attributes:
        accelerator: Canonical name.
        num_slices: Slices in the gang.
        hosts: Ranks of a cpu or GPU gang, hosts of one slice of a TPU.
        chips_per_host: As in the spec; None = the table's.
        cpus: CPUs per host of a cpu gang.
        memory: Bytes per host; None = not reserved.
        secrets: Secrets that the hosts must have, as NAME or NAME:VARIABLE.
    """

    accelerator: str
    num_slices: int = 1
    hosts: int = 1
    chips_per_host: int | None = None
    cpus: float = 1.0
    memory: int | None = None
    secrets: tuple[str, ...] = ()


class Backend(Protocol):
    """Turns a job in a store into a running driver. Every method is safe to repeat, by job id.

    A constructor takes the folder of state (`KINETIC_HOME`) and does no I/O. One that needs more of its target has a
    class method `of_target(target)`, which is called instead.
    """

    def check(self, need: Need) -> None:
        """Refuses what can never run here.

        Raises:
            UsageError: It never fits; the message says what does.
            ConfigError: The backend itself can't work here, or a secret is not there.
        """

    def submit(self, store_url: str, job_id: str) -> None:
        """Has the job run; starts what is needed for it.

        Raises:
            KineticError: It could not be handed over.
        """

    def observe(self, store_url: str, job_id: str) -> Observation:
        """One look; starts nothing, and answers DOWN rather than raise when nobody is there.

        Asked in a thread that nobody waits for any longer than suits him, so it may take its time; but not for ever,
        for there is one question at a time.
        """

    def cancel(self, store_url: str, job_id: str) -> None:
        """Stops the job, whose cancel record is written already; does nothing when nobody is there."""

    def list(self) -> Mapping[str, Liveness]:
        """The jobs that it works on now, by id; {} when nobody is there."""

    def dashboard_url(self) -> str | None:
        """Where people watch the jobs; None when there is nothing to watch."""


@dataclass(frozen=True, slots=True)
class Entrance:
    """How a process on this machine joins a backend's Ray cluster.

    Attributes:
        address: host:port of its GCS.
        supervisor: The supervisor's socket.
        environment: What Ray has to find in the environment while it joins.
    """

    address: str
    supervisor: str
    environment: Mapping[str, str] = field(repr=False)


@runtime_checkable
class Joinable(Protocol):
    """A backend whose Ray cluster this process can join, as `.remote()` needs it."""

    def join(self, *, start: bool = True) -> Entrance | None:
        """The way into the cluster; waits until its head is up.

        Args:
            start: Start the cluster where it isn't there; else the answer is None then.

        Raises:
            KineticError: It can't be started or doesn't answer.
        """


def load_backend(target: Target) -> Backend:
    """The backend of a target.

    Args:
        target: Its `backend` is a name of :data:`BACKEND_PLACES`, or "package.module:Class" of one's own.

    Raises:
        ConfigError: No such backend.
    """
    place = BACKEND_PLACES.get(target.backend, target.backend)
    module_name, colon, class_name = place.partition(":")
    if not colon:
        near = get_close_matches(target.backend, BACKEND_PLACES, n=1)
        hint = f", did you mean {near[0]!r}?" if near else ""
        known = ", ".join(sorted(BACKEND_PLACES))
        raise ConfigError(
            f"unknown backend {target.backend!r}{hint} (there are: {known}, or 'module:Class' of your own)"
        )
    try:
        kind = getattr(importlib.import_module(module_name), class_name)
    except (ImportError, AttributeError) as exc:
        raise ConfigError(f"backend {target.backend!r} can't be loaded from {place}: {exc}") from exc
    of_target = getattr(kind, "of_target", None)
    return cast(Backend, kind(Path(target.home)) if of_target is None else of_target(target))

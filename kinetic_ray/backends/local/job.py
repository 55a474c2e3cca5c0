"""One job as the submit loop sees it, and how long it waits for what."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from kinetic_ray.core.spec import JobSpec
from kinetic_ray.journal import JobJournal


@dataclass(slots=True)
class Job:
    """One job that was handed over.

    Attributes:
        state: "waiting", "submitting", "live" or "gone".
        spec: What the client asked for.
        driver: The open line of its driver.
        stopped: Whether Ray calls it STOPPED.
        ending: Whether no driver of it runs any more, and its end is being written.
        told_ray: Whether Ray was asked to stop it after a cancel.
        closing: Held while the loop ends it unrun, for two that do so at once would fence each other.
        changed: Set when a driver has come or gone, or a cancel was asked for.
    """

    job_id: str
    journal: JobJournal
    spec: JobSpec
    state: str = "waiting"
    message: str = ""
    epoch: int = 0
    driver: asyncio.StreamWriter | None = None
    driven: bool = False
    cancelled: bool = False
    stopped: bool = False
    ending: bool = False
    told_ray: bool = False
    closing: asyncio.Lock = field(default_factory=asyncio.Lock)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def has_driver(self) -> bool:
        """Whether a driver of it runs, or is about to."""
        return self.state in ("submitting", "live") and not self.ending

    @property
    def order(self) -> tuple[int, float, str]:
        """Its place in the queue: priority, then age."""
        return -self.spec.priority, self.spec.created_at, self.job_id

    def to_dict(self) -> dict[str, Any]:
        """As `status` shows it."""
        return {"job_id": self.job_id, "state": self.state, "store": self.journal.store.url}


@dataclass(frozen=True, slots=True)
class Patience:
    """How long things may take, in seconds.

    Attributes:
        accept: To get a job accepted, while Ray's job agent reports for the first time, say.
        cancel: For a driver to end its job after it was told of a cancel.
        notice: For Ray to notice that a driver is gone.
        stop: For a driver to be gone that Ray was told to stop.
        tell: For Ray to take a stop, before the driver itself is told of a cancel.
        look: Between two looks at a job whose driver has not come.
        attend: Between two looks for cancel records of jobs that wait their turn.
        store: For a store that is away to come back, so that a job gets its end.
    """

    accept: float = 60.0
    cancel: float = 10.0
    notice: float = 10.0
    stop: float = 40.0
    tell: float = 2.0
    look: float = 1.0
    attend: float = 5.0
    store: float = 600.0

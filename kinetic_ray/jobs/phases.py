"""What a job is doing, in detail: its records, and what the backend knows of its driver."""

from __future__ import annotations

from dataclasses import dataclass

from kinetic_ray.backends.base import Backend, Observation
from kinetic_ray.core.state import JobState, JobStatus, RankState, Stage
from kinetic_ray.errors import KineticError
from kinetic_ray.jobs.asking import observe_within
from kinetic_ray.journal import JobJournal, Segments

_LOST = "driver lost"
_ANSWER_S = 2.0  # within which a backend answers, or is passed over


@dataclass(frozen=True, slots=True)
class JobPhase:
    """A job in detail.

    Attributes:
        status: As `status()` gives it.
        phase: "submitted", "queue", "slice", "env", "run", "ended", or "driver lost".
        reason: Why it waits or ended, one of the reasons' names; "" where there is none.
        message: The same for people.
        attempt: Number of the running or last attempt, from 1; 0 before the first.
        hosts: Every rank as last heard of.
        warnings: What the driver warned of.
    """

    status: JobStatus
    phase: str
    reason: str = ""
    message: str = ""
    attempt: int = 0
    hosts: tuple[RankState, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def is_lost(self) -> bool:
        """Whether its driver has gone, for now; who waits for it finds out whether that stays so."""
        return self.phase == _LOST


def phase_of(journal: JobJournal, backend: Backend, known: Segments | None = None) -> JobPhase:
    """One close look; the backend is asked about a job that has not ended.

    A backend that can't be asked changes nothing: the records are told, and the trouble.

    Args:
        journal: The job's records.
        backend: Who knows of its driver.
        known: What was read of them before, kept by whoever looks often.
    """
    state = journal.look(known)
    if state is None:
        return _not_found(journal)
    if state.is_terminal:
        return _told(state, state.message)
    try:
        seen = observe_within(backend, journal.store.url, journal.job_id, _ANSWER_S)
    except (KineticError, OSError) as exc:
        return _told(state, state.message or f"the backend can't be asked just now: {exc}")
    if seen.state.is_driven:
        return _told(state, seen.message if state.stage is Stage.SUBMITTED else state.message)
    state = journal.look(known)  # it may have ended between the two looks
    if state is None:
        return _not_found(journal)
    return _told(state, state.message) if state.is_terminal else _undriven(state, seen)


def _not_found(journal: JobJournal) -> JobPhase:
    where = f"no job {journal.job_id} in the store {journal.store.url}"
    return JobPhase(JobStatus.NOT_FOUND, "", message=where)


def _told(state: JobState, message: str) -> JobPhase:
    return JobPhase(state.status, str(state.stage), state.reason, message, state.attempt, state.ranks, state.warnings)


def _undriven(state: JobState, seen: Observation) -> JobPhase:
    """Nobody drives the job: whoever waits for it starts one that was never started, any other is lost for now."""
    phase = _LOST if state.epoch else str(Stage.SUBMITTED)
    message = seen.message or "no driver works on it"
    return JobPhase(JobStatus.PENDING, phase, state.reason, message, state.attempt, state.ranks, state.warnings)

"""Stopping a job for good: the request is recorded first, then the backend is told, for as long as that takes."""

from __future__ import annotations

import logging
import time

from kinetic_ray import config
from kinetic_ray.backends.base import Backend
from kinetic_ray.core.state import JobStatus, Reason
from kinetic_ray.errors import JobLost, KineticError
from kinetic_ray.interrupts import interruptible
from kinetic_ray.jobs.asking import answer_within
from kinetic_ray.jobs.patience import patience_with
from kinetic_ray.jobs.watching import Watch, until_ended
from kinetic_ray.journal import JobJournal
from kinetic_ray.store.patience import waited_out

_LOG = logging.getLogger("kinetic_ray")

#: Seconds between two tries to tell a backend that is in trouble.
_RETRY = 0.5


def cancel_job(journal: JobJournal, backend: Backend, timeout: float) -> None:
    """Stops the job and waits until it has stopped; does nothing to one that has ended.

    Args:
        journal: Of the job.
        backend: What runs it.
        timeout: Seconds to wait.

    Raises:
        TimeoutError: Not stopped by then; the request stands.
    """
    deadline = time.monotonic() + timeout
    patience = patience_with(journal.job_id, deadline, "the request to cancel can't be recorded")
    if not waited_out(lambda: _request(journal), patience):
        return
    job_id = journal.job_id
    told = f"\nthe request to cancel {job_id} is recorded and stands; see kinetic jobs status {job_id}\n"
    try:
        with interruptible(job_id, told):
            if not _tell(journal, backend, deadline):
                _close(journal)
            until_ended(Watch(journal, backend), deadline - time.monotonic())
    except JobLost:
        _close(journal)
    except TimeoutError as exc:
        raise TimeoutError(
            f"{job_id} has not stopped within {timeout:g} s. The request is recorded and stands; "
            f"see kinetic jobs status {job_id}"
        ) from exc


def _request(journal: JobJournal) -> bool:
    """Records the request; False where there is nothing to stop."""
    if not journal.exists() or journal.state().is_terminal:
        return False
    journal.request_cancel({"by": config.owner(), "at": time.time()})
    return True


def _tell(journal: JobJournal, backend: Backend, deadline: float) -> bool:
    """Has the backend stop the job, asked again while it is in trouble; False if nobody works on the job.

    Raises:
        TimeoutError: It couldn't be told by then.
    """
    url, job_id = journal.store.url, journal.job_id

    def told() -> bool:
        if not backend.observe(url, job_id).state.is_driven:
            return False
        backend.cancel(url, job_id)
        return True

    while True:
        try:
            return answer_within(told, deadline - time.monotonic())
        except (KineticError, OSError) as exc:
            if (left := deadline - time.monotonic()) <= 0:
                raise TimeoutError(f"the backend can't be told: {exc}") from exc
            _LOG.warning("the backend of %s can't be told to stop it, trying again: %s", job_id, exc)
        time.sleep(min(_RETRY, left))


def _close(journal: JobJournal) -> None:
    if journal.exists():
        journal.close(JobStatus.STOPPED, Reason.CANCELLED, "cancelled while no driver worked on it", time.time())

"""Every error that kinetic_ray raises on purpose.

The tree::

    KineticError
    ├── UsageError        a call or option that can't be right (also a ValueError)
    ├── ConfigError       profile, environment, store or cluster settings
    ├── PayloadError      the function or an argument can't travel
    ├── DataError         stored bytes are missing or not what their digest says
    ├── StoreError        the store can't be read or written
    ├── SubmissionError   the job is recorded, but nothing runs it
    └── JobError          a job ended without a value (carries job_id and reason)
        ├── JobFailed
        ├── JobLost
        ├── JobCancelled
        └── JobTimeout

Up to DataError nothing was created when they are raised by a call. The user's own exception is raised as itself;
JobFailed stands in only where it can't be rebuilt, or where no Python exception ended the job.
"""

from __future__ import annotations


class KineticError(Exception):
    """Base of all errors raised on purpose by kinetic_ray."""


class UsageError(KineticError, ValueError):
    """A call, option or value that can't be right; the message names the argument and the way out."""


class ConfigError(KineticError):
    """Settings that can't work: profile, environment variable, store or cluster."""


class PayloadError(KineticError):
    """The function or one of its arguments can't be sent; the message names which."""


class DataError(KineticError):
    """Stored bytes are missing or differ from their digest."""


class StoreError(KineticError):
    """The store can't be read or written (no space, no permission, unreachable)."""


class SubmissionError(KineticError):
    """The job is recorded in the store, but the backend could not start it."""


class JobError(KineticError):
    """A job that ended without a value.

    Attributes:
        job_id: The job.
        reason: Why, one of :class:`kinetic_ray.core.state.Reason`'s names, or "" where none is known.
    """

    def __init__(self, message: str, *, job_id: str = "", reason: str = "") -> None:
        super().__init__(message)
        self.job_id = job_id
        self.reason = reason

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), str(self), self.job_id, self.reason)


def _rebuild(kind: type[JobError], message: str, job_id: str, reason: str) -> JobError:
    return kind(message, job_id=job_id, reason=reason)


class JobFailed(JobError):
    """The job failed; the message names the first failing host, its phase and its last log lines."""


class JobLost(JobError):
    """Nothing drives the job any more and nothing is left to start it again."""


class JobCancelled(JobError):
    """The job was cancelled before it had a value."""


class JobTimeout(JobError):
    """The job's own deadline (`timeout=`) ran out; a client's `result(timeout=)` raises TimeoutError instead."""

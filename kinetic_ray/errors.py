"""Every error that kinetic_ray raises on purpose.

The tree::

    KineticError
    ├── UsageError        a call or option that can't be right (also a ValueError)
    ├── ConfigError       profile, environment, store or cluster settings
    ├── PayloadError      the function or an argument can't travel
    ├── DataError         stored bytes are missing or not what their digest says
    ├── StoreError        the store can't be read or written
    ├── SubmissionError   the job is recorded, but nothing runs it
    └── JobError          a job ended without a value (carries job_id, reason, rank, traceback, log_tail and more)
        ├── JobFailed
        ├── JobLost
        ├── JobCancelled
        └── JobTimeout

Up to DataError nothing was created when they are raised by a call. The user's own exception is raised as itself;
JobFailed stands in only where it can't be rebuilt, or where no Python exception ended the job.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypedDict, Unpack


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


class JobFacts(TypedDict, total=False):
    """What is known of a job that ended without a value; see :class:`JobError`."""

    job_id: str
    reason: str
    rank: int | None
    phase: str
    exit_code: int | None
    error_type: str
    error_message: str
    traceback: str
    log_tail: str


class JobError(KineticError):
    """A job that ended without a value.

    What isn't known is "" or None.

    Attributes:
        job_id: The job.
        reason: Why, one of :class:`kinetic_ray.core.state.Reason`'s names.
        rank: The first rank that failed.
        phase: The named phase that it was in.
        exit_code: Of its process, negative for a signal.
        error_type: Name of the exception's class, where one that can't be rebuilt here was raised.
        error_message: Its message.
        traceback: The remote traceback.
        log_tail: The rank's last log lines.
    """

    # With no values here: Ray's own errors, of this class too, ask the one that they carry for what they lack.
    job_id: str
    reason: str
    rank: int | None
    phase: str
    exit_code: int | None
    error_type: str
    error_message: str
    traceback: str
    log_tail: str

    def __init__(self, message: str, **facts: Unpack[JobFacts]) -> None:
        super().__init__(message)
        if unknown := facts.keys() - JobFacts.__annotations__.keys():
            raise TypeError(f"{type(self).__name__} has no {', '.join(sorted(unknown))}")
        self.__dict__.update({name: None if name in ("rank", "exit_code") else "" for name in JobFacts.__annotations__})
        self.__dict__.update(facts)

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), str(self), self.job_id, self.reason, dict(self.__dict__))


def _rebuild(
    kind: type[JobError], message: str, job_id: str, reason: str, attributes: Mapping[str, object] | None = None
) -> JobError:
    """Its name and form are part of what is stored, in exceptions that travel."""
    error = kind(message, job_id=job_id, reason=reason)
    error.__dict__.update(attributes or {})
    return error


class JobFailed(JobError):
    """The job failed; the message names the first failing host, its phase and its last log lines.

    Example:
        >>> error = JobFailed("job-… failed: ProcessDied", reason="ProcessDied", rank=2, exit_code=-9)
        >>> error.reason, error.rank, error.exit_code
        ('ProcessDied', 2, -9)
    """


class JobLost(JobError):
    """Nothing drives the job any more and nothing is left to start it again."""


class JobCancelled(JobError):
    """The job was cancelled before it had a value."""


class JobTimeout(JobError):
    """The job's own deadline (`timeout=`) ran out; a client's `result(timeout=)` raises TimeoutError instead."""


def is_stand_in(error: BaseException | None) -> bool:
    """Whether an exception only stands for one that could not travel."""
    return type(error) is JobFailed and not error.job_id and bool(error.error_type)


def add_note(error: BaseException, note: str) -> None:
    """As `error.add_note`, also where the class refuses to be changed, as a frozen dataclass does."""
    BaseException.__setattr__(error, "__notes__", [*notes_of(error), note])


def notes_of(error: BaseException) -> tuple[str, ...]:
    """`error.__notes__`, also where the class answers for what it hasn't, and raises what it likes."""
    try:
        notes = BaseException.__getattribute__(error, "__notes__")
    except Exception:  # noqa: BLE001 - whatever a foreign property raises
        return ()
    return tuple(note for note in notes if isinstance(note, str)) if isinstance(notes, list | tuple) else ()

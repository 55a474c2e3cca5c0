"""Waiting for a job: look at its records, now and then ask the backend whether somebody still drives it."""

from __future__ import annotations

import logging
import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Protocol

from kinetic_ray.backends.base import Backend, Liveness, Observation
from kinetic_ray.core.state import JobState, JobStatus, Reason, Stage
from kinetic_ray.errors import JobLost, KineticError, SubmissionError
from kinetic_ray.journal import JobJournal, Segments

_LOG = logging.getLogger("kinetic_ray")

#: Seconds between two looks. A look takes a fraction of a millisecond; with this growth an end is seen within about
#: 2 % of the time that it took to come, and soon in development, where most calls are short.
_FIRST_PAUSE, _LONGEST_PAUSE, _GROWTH = 0.02, 0.2, 1.02
_TROUBLE_GROWTH = 1.25
_LONGEST_TROUBLE_PAUSE = 5.0
#: Seconds between two questions to the backend, and how many must find no driver before the job counts as lost.
_ASK_EVERY = 1.0
_TRIES = 3
#: Seconds of watching without a heartbeat, which comes every 2, after which the driver is said to be silent.
_SILENT_AFTER = 15.0
_BLIND = 10.0  # seconds without a look after which the watch starts over: it was the observer that slept


class Reporter(Protocol):
    """Shows one job to the person who waits for it."""

    def show(self, state: JobState) -> None:
        """Takes the state as just read."""

    def log(self, data: bytes) -> None:
        """Takes the next bytes of the leader's log."""

    def close(self) -> None:
        """Ends the display."""


class Silence:
    """For how long a driver has shown no life to one observer, by that observer's clock alone."""

    def __init__(self) -> None:
        self._beat = (0, 0)  # the epoch and the number of its newest heartbeat
        self._since = self._noted = 0.0

    def note(self, now: float, epoch: int, beat: int) -> None:
        """Takes the heartbeat as just read; one of number 0 was never there, and its driver is not judged."""
        if (epoch, beat) != self._beat or now - self._noted > _BLIND or not beat:
            self._beat, self._since = (epoch, beat), now
        self._noted = now

    @property
    def seconds(self) -> float:
        """15, 30, 60, ...: the last of them that the silence has reached, so that news of it are few; 0 before."""
        silent = self._noted - self._since
        return 0.0 if silent < _SILENT_AFTER else _SILENT_AFTER * 2 ** int(math.log2(silent / _SILENT_AFTER))


class Watch:
    """One observer's looks at one job. Trouble with the store or the backend is waited out, never raised."""

    def __init__(self, journal: JobJournal, backend: Backend, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._journal = journal
        self._backend = backend
        self._clock = clock
        self._segments: Segments = {}
        self._next_question = clock()
        self._without_driver = 0
        self._troubled = False
        self._why = ""  # what the backend says of a job that has no driver yet
        self._silence = Silence()
        self.state = JobState()
        #: Seconds to wait before the next look.
        self.pause = _FIRST_PAUSE

    def look(self) -> JobState:
        """One look; asks the backend too when it is time.

        Raises:
            JobLost: Nobody drives the job, and nothing is left to start it again.
            SubmissionError: The job was never started, and three tries to start it failed.
        """
        try:
            self.state = self._journal.state(self._segments)
            if not self.state.is_terminal and self._clock() >= self._next_question:
                self._next_question = self._clock() + _ASK_EVERY
                self._ask()
                self._listen()
            if self.state.stage is Stage.SUBMITTED:
                self.state = replace(self.state, message=self._why)
            elif not self.state.is_terminal and (seconds := self._silence.seconds):
                self.state = replace(self.state, message=_silent_words(self._journal.job_id, seconds))
        except (JobLost, SubmissionError):
            raise
        except (KineticError, OSError) as exc:
            self._wait_out(exc)
        else:
            self._troubled = False
            self.pause = min(self.pause * _GROWTH, _LONGEST_PAUSE)
        return self.state

    def _wait_out(self, exc: Exception) -> None:
        if not self._troubled:
            _LOG.warning("%s can't be looked at just now, trying again: %s", self._journal.job_id, exc)
        self._troubled = True
        self.pause = min(max(self.pause, _LONGEST_PAUSE) * _TROUBLE_GROWTH, _LONGEST_TROUBLE_PAUSE)

    def _ask(self) -> None:
        seen = self._backend.observe(self._journal.store.url, self._journal.job_id)
        self._why = seen.message
        if seen.state.is_driven:
            self._without_driver = 0
            return
        if not self._journal.exists():
            raise JobLost(f"{self._journal.job_id} was cleaned up by another process", job_id=self._journal.job_id)
        self.state = self._journal.state(self._segments)  # it may have ended since the look before the question
        if self.state.is_terminal:
            return
        self._without_driver += 1
        if seen.state is not Liveness.GONE and self.state.epoch == 0:
            self._start_again()
        else:
            self._count_missing(seen)

    def _listen(self) -> None:
        if self.state.epoch and not self.state.is_terminal:
            self._silence.note(self._clock(), self.state.epoch, self._journal.heartbeat(self.state.epoch))

    def _start_again(self) -> None:
        try:
            self.state = start_again(self._journal, self._backend)
        except SubmissionError as exc:
            if self._without_driver >= _TRIES:
                raise
            self._wait_out(exc)

    def _count_missing(self, seen: Observation) -> None:
        if seen.state is Liveness.DOWN or self._without_driver >= _TRIES:
            raise JobLost(
                _lost_words(self._journal.job_id, seen), job_id=self._journal.job_id, reason=Reason.DRIVER_LOST
            )


def start_again(journal: JobJournal, backend: Backend) -> JobState:
    """Has a recorded job run that no driver has ever claimed, or ends it if its cancellation is recorded.

    Raises:
        SubmissionError: The backend refused.
    """
    if journal.cancel_requested():
        return journal.close(JobStatus.STOPPED, Reason.CANCELLED, "cancelled before it started", time.time())
    try:
        backend.submit(journal.store.url, journal.job_id)
    except KineticError as exc:
        raise SubmissionError(f"{journal.job_id} is recorded but could not be started: {exc}") from exc
    return journal.state()


@contextmanager
def interruptible(job_id: str) -> Iterator[None]:
    """Ctrl-C ends the waiting, not the job: says so, and how to go on or stop it."""
    try:
        yield
    except KeyboardInterrupt:
        told = (
            f"\n{job_id} goes on without you.\n"
            f"  its result, also from another process:  kinetic jobs result {job_id}\n"
            f"  its log:                                kinetic jobs logs {job_id} --follow\n"
            f"  to stop it:                             kinetic jobs cancel {job_id}\n"
        )
        sys.stderr.write(told)
        raise


@contextmanager
def not_created_on_interrupt(func_name: str) -> Iterator[None]:
    """Ctrl-C before a job is recorded: says that there is none."""
    try:
        yield
    except KeyboardInterrupt:
        sys.stderr.write(f"\n{func_name}: interrupted before its job was recorded; nothing was created\n")
        raise


def until_ended(watch: Watch, timeout: float | None = None, show: Callable[[JobState], None] | None = None) -> JobState:
    """Looks until the job has ended.

    Args:
        watch: Of the job.
        timeout: Seconds; None = without end. 0 takes one look.
        show: Told every state.

    Raises:
        TimeoutError: The time ran out; the job goes on.
        JobLost: See :meth:`Watch.look`.
    """
    deadline = None if timeout is None else time.monotonic() + timeout
    while True:
        state = watch.look()
        if show is not None:
            show(state)
        if state.is_terminal:
            return state
        pause = watch.pause
        if deadline is not None:
            left = deadline - time.monotonic()
            if left <= 0:
                stage = f"{state.stage}: {state.message}" if state.message else state.stage
                raise TimeoutError(f"{state.status} ({stage}) after {timeout:g} s; the job goes on")
            pause = min(pause, left)
        time.sleep(pause)


def _silent_words(job_id: str, seconds: float) -> str:
    return f"its driver has been silent for over {seconds:g} s; kinetic jobs cancel {job_id} ends it"


def _lost_words(job_id: str, seen: Observation) -> str:
    what = {
        Liveness.DOWN: "nothing drives it any more, and no supervisor runs that could start it again",
        Liveness.GONE: "its driver has ended without a word",
        Liveness.UNKNOWN: "its driver is gone: the supervisor that runs now does not know it",
    }[seen.state]
    told = f" ({seen.message})" if seen.message else ""
    return f"{job_id} is lost: {what}{told}. Submit the call again; kinetic jobs cleanup {job_id} removes what is left"

"""Waiting for a job: look at its records, now and then ask the backend whether somebody still drives it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from dataclasses import replace
from functools import partial
from typing import Any

from kinetic_ray.backends.base import Backend, Liveness, Observation
from kinetic_ray.core.skew import differences, refusal
from kinetic_ray.core.state import JobState, JobStatus, Reason, Stage
from kinetic_ray.core.terminal import sanitize_text
from kinetic_ray.errors import DataError, JobLost, KineticError, StoreError, SubmissionError
from kinetic_ray.jobs.asking import asked
from kinetic_ray.jobs.patience import patience_with
from kinetic_ray.jobs.silence import Silence
from kinetic_ray.journal import JobJournal, Segments
from kinetic_ray.store.patience import BLIPS, waited_out

_LOG = logging.getLogger("kinetic_ray")

#: Seconds between two looks. A look takes a fraction of a millisecond; with this growth an end is seen within about
#: 2 % of the time that it took to come, and soon in development, where most calls are short.
_FIRST_PAUSE, LONGEST_PAUSE, _GROWTH = 0.02, 0.2, 1.02
_TROUBLE_GROWTH = 1.25
_LONGEST_TROUBLE_PAUSE = 5.0
#: The longest pause of who shows a log: a line is to be seen within 0.2 seconds.
LOG_PAUSE = 0.1
#: Seconds between two questions to the backend, and how many must find no driver before the job counts as lost.
_ASK_EVERY = 1.0
_TRIES = 3
#: Seconds that a look waits for the backend's first answer, so that a first look knows who drives the job; for later
#: ones; and for any, however little time the caller has: `timeout=0` is a question too.
_FIRST_ANSWER, _LATER_ANSWER, _LEAST_ANSWER = 1.0, 0.05, 0.25
#: Records are damaged for good once so many looks over so many seconds have found them so.
_DAMAGED_LOOKS, _DAMAGED_S = 5, 5.0


class Watch:
    """One observer's looks at one job. Trouble with the store or the backend is waited out; what never ends is raised.

    A look takes no longer than the store does: the backend is asked in a thread, one question at a time, and its
    answer taken when it is there.

    Args:
        journal: Of the job.
        backend: What runs it.
        clock: Seconds.
        longest: The longest pause between two looks while all is well, unless the store's own is longer.
    """

    def __init__(
        self,
        journal: JobJournal,
        backend: Backend,
        *,
        clock: Callable[[], float] = time.monotonic,
        longest: float = LONGEST_PAUSE,
    ) -> None:
        self._journal = journal
        self._backend = backend
        self._clock = clock
        self._longest = max(longest, journal.store.pace)
        self._segments = Segments()
        self._next_question = self._next_beat = clock()
        self._asking: tuple[Future[Any], Callable[[Any], None]] | None = None  # and who takes the answer
        self._was_answered = self._was_driven = self._is_told = False
        self._patience = _FIRST_ANSWER
        self._without_driver = 0
        self._damage: tuple[float, int] | None = None  # since when, and at how many looks
        self._store_trouble = self._backend_trouble = ""
        self._why = ""  # what the backend says of a job that has no driver yet
        self._silence = Silence()
        self.state = JobState()
        #: Seconds to wait before the next look.
        self.pause = min(_FIRST_PAUSE, longest)

    @property
    def job_id(self) -> str:
        return self._journal.job_id

    @property
    def trouble(self) -> str:
        """What stands between this observer and the job just now; "" for nothing."""
        is_late = self._asking is not None and (not self._was_answered or self._clock() >= self._next_question)
        waits = "the backend has not answered yet" if is_late else ""
        return self._store_trouble or self._backend_trouble or waits

    def look(self, left: float | None = None) -> JobState:
        """One look; asks the backend too when it is time.

        Args:
            left: The seconds that the caller still has; None = as many as it takes.

        Raises:
            JobLost: Nobody drives the job, and nothing is left to start it again.
            SubmissionError: The job was never started, and three tries to start it failed.
            DataError: Its records are damaged, and stay so.
            ConfigError: A newer version has written them.
        """
        try:
            self.state = self._read()
            if not self.state.is_terminal:
                self._listen()
                self._inquire(left)
            if self.state.stage is Stage.SUBMITTED:
                self.state = replace(self.state, message=self._why)
            elif not self.state.is_terminal and (seconds := self._silence.seconds):
                self.state = replace(self.state, message=_silent_words(self._journal.job_id, seconds))
        except (*BLIPS, DataError) as exc:
            self._wait_out(exc)
        else:
            self._store_trouble, self._damage = "", None
            self.pause = min(self.pause * _GROWTH, self._longest)
        return self.state

    def _read(self) -> JobState:
        state = self._journal.state(self._segments)
        if state.is_terminal:  # by records that may be on their way out: of these nothing counts any more
            self._check_exists()
        return state

    def _check_exists(self) -> None:
        if not self._journal.exists():
            raise JobLost(f"{self._journal.job_id} was cleaned up", job_id=self._journal.job_id)

    def _wait_out(self, exc: Exception) -> None:
        if isinstance(exc, DataError):
            self._judge_damage(exc)
        if not self._store_trouble:
            _LOG.warning("%s can't be looked at just now, trying again: %s", self._journal.job_id, exc)
        self._store_trouble = str(exc)
        self.pause = min(max(self.pause, self._longest) * _TROUBLE_GROWTH, _LONGEST_TROUBLE_PAUSE)

    def _judge_damage(self, exc: DataError) -> None:
        """Records appear whole, so damage is no blip; but for a moment a failing medium may look like it."""
        since, looks = self._damage or (self._clock(), 0)
        self._damage = since, looks + 1
        if looks + 1 >= _DAMAGED_LOOKS and self._clock() - since >= _DAMAGED_S:
            job_id = self._journal.job_id
            raise DataError(
                f"{job_id} can't be waited for: its records in {self._journal.store.url} are damaged. {exc}. "
                f"Submit the call again; kinetic jobs cleanup {job_id} removes what is left"
            ) from exc

    def _inquire(self, left: float | None) -> None:
        """Asks who drives the job when it is time, and takes the answer when it is there."""
        if self._asking is None and self._clock() >= self._next_question:
            self._next_question = self._clock() + _ASK_EVERY
            url, job_id = self._journal.store.url, self._journal.job_id
            self._asking = asked(lambda: self._backend.observe(url, job_id)), self._judge
        if self._asking is None:
            return
        answer, take = self._asking
        wait([answer], self._patience if left is None else min(self._patience, max(left, _LEAST_ANSWER)))
        self._patience = _LATER_ANSWER
        if not answer.done():
            return
        self._asking, self._was_answered = None, True
        try:
            taken = answer.result()
        except (KineticError, OSError) as exc:
            self._without_answer(exc)
        else:
            self._backend_trouble = ""
            take(taken)

    def _without_answer(self, exc: Exception) -> None:
        if isinstance(exc, SubmissionError) and self._without_driver >= _TRIES:
            raise exc
        if not self._backend_trouble:
            _LOG.warning("the backend of %s is in trouble, trying again: %s", self._journal.job_id, exc)
        self._backend_trouble = str(exc)

    def _judge(self, seen: Observation) -> None:
        self._why = seen.message
        if seen.state.is_driven:
            self._without_driver, self._was_driven, self._is_told = 0, True, False
            return
        self._check_exists()
        self.state = self._read()  # it may have ended since the look before the question
        if self.state.is_terminal:
            return
        self._without_driver += 1
        if seen.state is not Liveness.GONE and _nothing_ran(self.state) and self._without_driver <= _TRIES:
            self._tell_once("nothing of it has run, so it is handed over again")
            self._asking = asked(lambda: start_again(self._journal, self._backend)), self._started
        else:
            self._count_missing(seen)

    def _started(self, _state: JobState) -> None:
        self.state = self._read()

    def _listen(self) -> None:
        if self.state.epoch and self._clock() >= self._next_beat:
            self._next_beat = self._clock() + _ASK_EVERY
            self._silence.note(self._clock(), self.state.epoch, self._journal.heartbeat(self.state.epoch))

    def _tell_once(self, what: str) -> None:
        if self._was_driven and not self._is_told:
            self._is_told = True
            _LOG.warning("%s: what drove it is gone; %s", self._journal.job_id, what)

    def _count_missing(self, seen: Observation) -> None:
        """Nothing there at all is enough at a first look; who has seen the job driven gives its end time to come."""
        if (seen.state is Liveness.DOWN and not self._was_driven) or self._without_driver >= _TRIES:
            raise JobLost(
                _lost_words(self._journal.job_id, seen), job_id=self._journal.job_id, reason=Reason.DRIVER_LOST
            )
        self._tell_once("waiting whether its end comes")


def _nothing_ran(state: JobState) -> bool:
    """Whether the job has had no hosts: whoever hands it over again has it run once, not once more."""
    return state.attempt == 0 and state.stage in (Stage.SUBMITTED, Stage.QUEUE)


def start_again(journal: JobJournal, backend: Backend) -> JobState:
    """Has a recorded job run that has never had hosts, or ends it if its cancellation is recorded.

    Raises:
        SubmissionError: The backend refused.
    """
    if journal.cancel_requested():
        return journal.close(JobStatus.STOPPED, Reason.CANCELLED, "cancelled before it started", time.time())
    from kinetic_ray.payload.versions import fingerprint_like  # what only reads a job needs no pickler

    client = journal.spec().client
    if told := refusal(differences(client, fingerprint_like(client))):
        raise SubmissionError(
            f"{journal.job_id} is recorded, and could not be started from here: {told}. "
            "Or ask for it from where it was made"
        )
    try:
        backend.submit(journal.store.url, journal.job_id)
    except KineticError as exc:
        raise SubmissionError(f"{journal.job_id} is recorded but could not be started: {exc}") from exc
    return journal.state()


def until_ended(watch: Watch, timeout: float | None = None, show: Callable[[JobState], bool] | None = None) -> JobState:
    """Looks until the job has ended.

    Args:
        watch: Of the job.
        timeout: Seconds; None = without end. 0 takes one look.
        show: Told every state, also the last one of a job that is lost; says whether it left something that is there
            already, so that the next look comes at once.

    Raises:
        TimeoutError: The time ran out; the job goes on.
        JobLost: And the others of :meth:`Watch.look`.
    """
    show = show or _nothing_shown
    deadline = None if timeout is None else time.monotonic() + timeout
    while True:
        left = None if deadline is None else deadline - time.monotonic()
        try:
            state = watch.look(left)
        except KineticError:  # the job is lost, or its records are
            _show_rest(show, watch.state)
            raise
        if state.is_terminal:
            # An OSError is of where it is shown: nobody reads there any more, say.
            waited_out(partial(_show_rest, show, state), patience_with(watch.job_id, deadline), blips=(StoreError,))
            return state
        is_behind = show(state)
        if deadline is not None and time.monotonic() >= deadline:
            raise TimeoutError(_ran_out(watch, timeout or 0.0))
        if not is_behind:
            time.sleep(watch.pause if deadline is None else max(min(watch.pause, deadline - time.monotonic()), 0.0))


def _nothing_shown(_state: JobState) -> bool:
    return False


def _show_rest(show: Callable[[JobState], bool], state: JobState) -> None:
    while show(state):
        pass


def _ran_out(watch: Watch, timeout: float) -> str:
    state = watch.state
    stage = f"{state.stage}: {state.message}" if state.message else state.stage
    trouble = f" ({watch.trouble})" if watch.trouble else ""
    return sanitize_text(f"{state.status} ({stage}) after {timeout:g} s; the job goes on{trouble}")


def _silent_words(job_id: str, seconds: float) -> str:
    return f"its driver has been silent for over {seconds:g} s; kinetic jobs cancel {job_id} ends it"


def _lost_words(job_id: str, seen: Observation) -> str:
    what = {
        Liveness.DOWN: "nothing drives it any more, and no supervisor runs that could start it again",
        Liveness.GONE: "its driver has ended without a word",
        Liveness.UNKNOWN: "its driver is gone: the supervisor that runs now does not know it",
    }[seen.state]
    told = f" ({seen.message})" if seen.message else ""
    return sanitize_text(
        f"{job_id} is lost: {what}{told}. Submit the call again; kinetic jobs cleanup {job_id} removes what is left"
    )

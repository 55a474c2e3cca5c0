"""The handle of a job: everything that can be asked of it or done to it, from any process."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Generator
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, TypeVar, Unpack, cast

from kinetic_ray.backends.base import Backend, Liveness, load_backend
from kinetic_ray.config import Target
from kinetic_ray.core.epochs import current_events
from kinetic_ray.core.option_values import whole_number
from kinetic_ray.core.spec import JobSpec
from kinetic_ray.core.state import Event, JobStatus, Progress
from kinetic_ray.errors import ConfigError, JobLost, KineticError, SubmissionError, UsageError
from kinetic_ray.frames import own_frames_hidden, raise_told
from kinetic_ray.interrupts import interruptible
from kinetic_ray.jobs.cancelling import cancel_job
from kinetic_ray.jobs.logs import LogLine, LogPump, find_log, read_log, read_tail, which_log
from kinetic_ray.jobs.patience import patience_with, waiting_seconds
from kinetic_ray.jobs.phases import JobPhase, phase_of
from kinetic_ray.jobs.results import Ended
from kinetic_ray.jobs.showing import Reporter, Reporting, Showing
from kinetic_ray.jobs.swapped import SwappedHandle, named
from kinetic_ray.jobs.upstream import CancelKwargs, CleanupKwargs, ResultKwargs, Shower, shower_of
from kinetic_ray.jobs.watching import LOG_PAUSE, LONGEST_PAUSE, Watch, until_ended
from kinetic_ray.journal import JobJournal, Segments
from kinetic_ray.store import Store, open_store
from kinetic_ray.store.patience import Until, waited_out

R = TypeVar("R")

_CANCEL_WAIT = 60.0


class JobHandle(SwappedHandle, Generic[R]):
    """One durable job. Handles are cheap, equal by job id, and can be pickled.

    Example:
        >>> import kinetic_ray as kinetic
        >>> @kinetic.remote(backend="kinetic_ray.testing.thread_backend:ThreadBackend")
        ... def double(x: int) -> int:
        ...     return 2 * x
        >>> job = double.run_async(21)
        >>> job.result(), job.status(), kinetic.attach(job.job_id) == job
        (42, <JobStatus.SUCCEEDED: 'SUCCEEDED'>, True)
    """

    def __init__(self, job_id: str, target: Target, *, store: Store | None = None, backend: Backend | None = None):
        self.job_id = job_id
        self._store = open_store(target.store_url, create=False) if store is None else store
        self._target = replace(target, store_url=self._store.url)  # the same place from any working folder
        self._given_backend = backend
        self._journal = JobJournal(self._store, job_id)
        self._known = Segments()

    @cached_property
    def _backend(self) -> Backend:
        return load_backend(self._target) if self._given_backend is None else self._given_backend

    # What it is.

    @cached_property
    def spec(self) -> JobSpec:
        """The call as it was recorded.

        Raises:
            UsageError: The job was cleaned up.
        """
        return self._journal.spec()

    @property
    def func_name(self) -> str:
        return self.spec.func_name

    @property
    def accelerator(self) -> str:
        return self.spec.accelerator

    @property
    def created_at(self) -> float:
        """When it was submitted, in Unix seconds by the submitter's clock."""
        return self.spec.created_at

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def tags(self) -> tuple[str, ...]:
        return self.spec.tags

    @property
    def backend(self) -> str:
        return self._target.backend

    @property
    def store(self) -> Store:
        """Where its records are."""
        return self._store

    @property
    def dashboard_url(self) -> str | None:
        """The job's page in Ray's dashboard; None while its cluster doesn't run, or where it knows no such job."""
        known = Liveness.UNKNOWN
        with suppress(ConfigError):  # another cluster of the user's, which may have it, doesn't answer
            known = self._backend.observe(self._store.url, self.job_id).state
        if known in (Liveness.DOWN, Liveness.UNKNOWN):
            return None
        url = self._backend.dashboard_url()
        return f"{url}/#/jobs/{self.job_id}" if url else None

    def __repr__(self) -> str:
        return f"JobHandle({self.job_id!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, JobHandle) and other.job_id == self.job_id

    def __hash__(self) -> int:
        return hash(self.job_id)

    def __reduce__(self) -> tuple[Any, ...]:
        return JobHandle, (self.job_id, self._target)

    # How it is.

    def status(self) -> JobStatus:
        """What the job is doing, in one word; NOT_FOUND once it was cleaned up."""
        return self.phase().status

    def phase(self) -> JobPhase:
        """What the job is doing, in detail: stage, reason, message, every host."""
        return phase_of(self._journal, self._backend, self._known)

    def progress(self) -> Progress | None:
        """The newest step that every rank has reported; None before the first."""
        return self._journal.state(self._known).progress

    def events(self) -> list[Event]:
        """What has happened to the job, in order."""
        return [event for _, event in current_events(self._journal.epochs(self._known))]

    def outputs(self) -> list[str]:
        """The files in the job's output folder, as paths or URLs that can be opened, sorted."""
        given = self.spec.output_dir
        if given is None:
            place = self._journal.keys.outputs
            root = self._store.uri(place)  # below it the names are the user's, whatever they hold
            return [root + key.removeprefix(place) for key in self._store.walk(place)]
        if "://" in given:
            raise UsageError(
                f"outputs() of {self.job_id}: files under {given} can't be listed yet; look there directly"
            )
        return sorted(str(path) for path in Path(given).rglob("*") if path.is_file())

    # Waiting for it.

    @own_frames_hidden()
    def wait(self, timeout: float | str | None = None) -> JobStatus:
        """Waits until the job has ended.

        Args:
            timeout: Seconds, or text such as "90s"; None = without end.

        Raises:
            TimeoutError: Not ended by then; the job goes on.
            JobLost: Nothing drives the job any more.
        """
        return self._ended(timeout)[0].state.status

    @own_frames_hidden()
    def result(self, timeout: float | str | None = None, *_placed: Any, **upstream: Unpack[ResultKwargs]) -> R:
        """Waits for the job and gives its value, as often as it is asked, in any process.

        A broken connection to the store or the cluster is waited out. Ctrl-C ends the waiting, not the job.

        Args:
            timeout: Seconds to wait, or text such as "90s"; None = without end.
            **upstream: What keras-team/kinetic takes here: `stream_logs`, `on_status_change`, and `cleanup`, which
                removes the job's records after success (only if True is given: values are kept otherwise).

        Raises:
            TimeoutError: No result by then; the job goes on.
            JobFailed: It failed, and no exception of the user's code could be rebuilt.
            JobCancelled: It was cancelled.
            JobTimeout: Its own deadline (`timeout=` of the function) ran out.
            JobLost: Nothing drives it any more.
            Exception: What the user's function raised, with the remote traceback as a note.

        Example:
            >>> import kinetic_ray as kinetic
            >>> kinetic.attach(job_id).result(timeout=60)  # doctest: +SKIP
            0.97
        """
        given: ResultKwargs = named("result", _placed, upstream, ResultKwargs)
        shower = shower_of(given, LogPump(self._store, self._journal.keys))
        value = self._outcome(timeout, shower, 0 if given.get("stream_logs") else None)
        if given.get("cleanup"):
            self.cleanup()
        return value

    @own_frames_hidden()
    def exception(self, timeout: float | str | None = None) -> BaseException | None:
        """Waits for the job and gives what `result()` would raise; None if it succeeded.

        Args:
            timeout: Seconds to wait, or text such as "90s"; None = without end.

        Raises:
            TimeoutError: Not ended by then; the job goes on.
        """
        try:
            ended, patience = self._ended(timeout)
        except (JobLost, SubmissionError) as lost:
            return lost
        return None if ended.succeeded else waited_out(ended.error, patience)

    def follow(self, reporter: Reporter) -> R:
        """Waits as `result()` does, and shows stages and the leader's log meanwhile: what blocking calls do."""
        return self._outcome(None, Reporting(reporter, LogPump(self._store, self._journal.keys)), 0)

    def __await__(self) -> Generator[Any, None, R]:
        """Waits without blocking the event loop; cancelling the wait leaves the job alone."""
        from kinetic_ray.jobs.awaiting import outcome_soon  # asyncio takes its time to be imported

        return outcome_soon(self._journal, self._backend, _told).__await__()

    def _outcome(self, timeout: float | str | None, show: Showing | None, shown: int | None) -> R:
        """The value, or the end that there is instead, raised."""
        ended, patience = self._ended(timeout, show)
        value, error = waited_out(lambda: _told(ended, shown), patience)
        if error is not None:
            raise_told(error)
        return cast(R, value)

    def _ended(self, timeout: float | str | None, show: Showing | None = None) -> tuple[Ended, Until]:
        seconds = waiting_seconds(timeout)
        deadline = None if seconds is None else time.monotonic() + seconds
        watch = Watch(self._journal, self._backend, longest=LOG_PAUSE if show else LONGEST_PAUSE)
        patience = patience_with(self.job_id, deadline)
        with interruptible(self.job_id):
            try:
                state = until_ended(watch, seconds, show)
            except TimeoutError as exc:
                raise TimeoutError(f"{self.job_id}{self._called()}: {exc}") from None
            finally:  # before anything else is written where the display stands
                if show is not None:
                    show.close()
        return Ended(self._journal, waited_out(lambda: self.spec, patience), state), patience

    def _called(self) -> str:
        """The function's name, where it is known: whoever tells of trouble must not meet it anew."""
        with suppress(KineticError, OSError):
            return f" ({self.func_name})"
        return ""

    # Its words.

    @own_frames_hidden()
    def logs(self, follow: bool = False, *, rank: int = 0, attempt: int | None = None) -> str | None:
        """What a rank has printed.

        Args:
            follow: Print it to standard output as it comes, until the job ends, and return None.
            rank: Which rank.
            attempt: Which attempt; None = the newest, and with `follow` those after it.

        Returns:
            "" before the rank has started.
        """
        rank, attempt = which_log(rank, attempt)
        if follow:
            self._ended(None, Shower(LogPump(self._store, self._journal.keys, rank, attempt=attempt)))
            return None
        key = self._log_key(rank, attempt)
        return read_log(self._store, key) if key else ""

    def stream(self, *, rank: int | None = None) -> AsyncGenerator[LogLine]:
        """The lines of the job's ranks as they come, until it ends; how it ended tells `await job`.

        Args:
            rank: Only this rank; None = all. Each rank's lines come in order.

        Example:
            >>> async def watch(job) -> None:
            ...     async for line in job.stream():
            ...         print(line.rank, line.text)
        """
        from kinetic_ray.jobs.streaming import lines_of  # likewise

        return lines_of(self._journal, self._backend, None if rank is None else whole_number("rank", rank))

    def tail(self, n: int = 100, *, rank: int = 0, attempt: int | None = None) -> str:
        """The last `n` lines that a rank has printed."""
        n = whole_number("n", n)
        key = self._log_key(*which_log(rank, attempt))
        return read_tail(self._store, key, n) if key else ""

    def _log_key(self, rank: int, attempt: int | None) -> str | None:
        key = find_log(self._store, self._journal.keys, rank, attempt)
        if key is None:
            state = self._journal.state()
            ranks = len(state.ranks)
            if state.is_terminal and attempt is not None and attempt > state.attempt:
                made = f"made {state.attempt}" if state.attempt else "has made none"
                raise UsageError(f"attempt={attempt}: {self.job_id} {made}")
            if not self._journal.exists() or (ranks and not 0 <= rank < ranks):
                what = f"has ranks 0 to {ranks - 1}, not {rank}" if ranks else "was cleaned up"
                raise UsageError(f"{self.job_id} {what}")
        return key

    # Doing something to it.

    @own_frames_hidden()
    def cancel(self, *_placed: Any, **upstream: Unpack[CancelKwargs]) -> None:
        """Stops the job and waits until it has stopped; does nothing to one that has ended.

        Args:
            **upstream: `cleanup_timeout` (seconds to wait, 60 by default) and `cleanup_poll_interval`.

        Raises:
            TimeoutError: Not stopped by then; the request stands.
        """
        given: CancelKwargs = named("cancel", _placed, upstream, CancelKwargs)
        cancel_job(self._journal, self._backend, given.get("cleanup_timeout") or _CANCEL_WAIT)

    def cleanup(self, *_placed: Any, **upstream: Unpack[CleanupKwargs]) -> None:
        """Cancels the job if it hasn't ended and removes its records; an `output_dir` of one's own stays.

        Args:
            **upstream: `gcs=False` keeps the records; `k8s`, `cleanup_timeout`, `cleanup_poll_interval`.
        """
        given: CleanupKwargs = named("cleanup", _placed, upstream, CleanupKwargs)
        self.cancel(cleanup_timeout=given.get("cleanup_timeout"))
        if given.get("gcs", True):
            self._journal.erase()


def _told(ended: Ended, shown: int | None = None) -> tuple[Any, BaseException | None]:
    """The value, or why there is none: given, not raised, for it may look like trouble with the store."""
    return (ended.value(), None) if ended.succeeded else (None, ended.error(shown))

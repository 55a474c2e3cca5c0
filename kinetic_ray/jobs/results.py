"""From a job that has ended to its value, or to the exception that says why there is none."""

from __future__ import annotations

import io
import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, Any

from kinetic_ray.core.outcome import Blob, Outcome
from kinetic_ray.core.skew import differences
from kinetic_ray.core.spec import JobSpec
from kinetic_ray.core.state import JobState, JobStatus, RankState, Reason
from kinetic_ray.core.terminal import sanitize_text
from kinetic_ray.errors import (
    DataError,
    JobCancelled,
    JobError,
    JobFacts,
    JobFailed,
    JobTimeout,
    PayloadError,
    StoreError,
    add_note,
    is_stand_in,
)
from kinetic_ray.jobs.logs import find_log, read_tail
from kinetic_ray.journal import JobJournal
from kinetic_ray.store import MissingKey

_TAIL_LINES = 20
#: Up to here a value is read at once: a second look costs more than its bytes.
_SMALL = 1 << 20
_INDENT = "    "
#: How the lines of a driver's message begin that tell of other ranks than the first failing one.
_OTHER_RANKS = ("  after it: ", "  stopped with it: ")


@dataclass(frozen=True, slots=True)
class Ended:
    """A job that has ended, with what its records say."""

    journal: JobJournal
    spec: JobSpec
    state: JobState

    @property
    def succeeded(self) -> bool:
        return self.state.status is JobStatus.SUCCEEDED

    def value(self) -> Any:
        """Rank 0's value, or with gather="all" the list of all ranks', each verified by its digest.

        Raises:
            DataError: What is stored isn't what the ranks stored.
            PayloadError: This process can't rebuild the value.
        """
        if self.spec.gather != "all":
            return self._value_of(0)
        return [self._value_of(rank.rank) for rank in sorted(self.state.ranks, key=lambda each: each.rank)]

    def error(self, shown: int | None = None) -> BaseException:
        """Why there is no value: the user's own exception if it can be rebuilt, else one of ours.

        Args:
            shown: The rank whose log the user has just seen, which needs no telling again.
        """
        rank = self.state.failed_rank
        found = None if rank is None else self._outcome(rank)
        outcome = None if found is None else found[1]
        raised, why_not = None, ""
        if found is not None and self.state.status is JobStatus.FAILED and self.state.reason == found[1].reason:
            raised, why_not = self._rebuilt(*found)
        if outcome is not None and isinstance(raised, Exception) and not is_stand_in(raised):
            add_note(raised, self._note(outcome, shown))
            return raised
        tail = self._tail(outcome, rank or 0)
        error = _kind_of(self.state)(self._message(outcome, tail, why_not, shown), **self._facts(outcome, tail))
        if raised is not None:  # it can't travel, or must not be raised here, but what it was raised from can
            error.__cause__, error.__context__ = raised.__cause__, raised.__context__
        return error

    @contextmanager
    def opened(self, rank: int = 0) -> Iterator[IO[bytes]]:
        """A rank's value as it is stored (one pickle), verified by its digest; nothing has to be importable.

        No more of a large one than a piece is held, here and while it is verified.

        Raises:
            DataError: What is stored isn't what the rank stored.
        """
        found = self._outcome(rank)
        job_id = self.spec.job_id
        if found is None or not found[1].ok or found[1].value is None:
            raise DataError(
                f"{job_id} succeeded, but the store has no value of rank {rank}: removed by another program?"
            )
        epoch, outcome = found
        key = self.journal.keys.value(epoch, self.state.attempt, rank)
        try:
            with self._verified(key, outcome.value) as file:
                yield file
        except MissingKey as exc:
            raise DataError(f"the value of {job_id} is missing: {exc}: removed by another program?") from exc

    def _value_of(self, rank: int) -> Any:
        with self.opened(rank) as file:
            try:
                return pickle.load(file)
            except StoreError:  # it went away meanwhile
                raise
            except Exception as exc:
                raise PayloadError(
                    f"the value of {self.spec.job_id} ({self.spec.func_name}) can't be rebuilt in this process: "
                    f"{type(exc).__name__}: {exc}. {self._skew() or 'Read it where its modules can be imported'}"
                ) from exc

    def _skew(self) -> str:
        """What this process has in other versions than the job, or not at all; "" where that explains nothing."""
        from kinetic_ray.payload.versions import fingerprint_like  # what only reads a job needs no pickler

        found = differences(self.spec.client, fingerprint_like(self.spec.client))
        mine = ", ".join(f"{each.what} {each.client}".rstrip() for each in found)
        here = ", ".join(f"{each.what} {each.host}" if each.host else f"no {each.what}" for each in found)
        return f"The job was made with {mine}, and here is {here}: read it where it was made" if found else ""

    def _outcome(self, rank: int) -> tuple[int, Outcome] | None:
        """The outcome that counts, with its epoch: of the driver that ended the job, else of those it took over from.

        What a fenced driver has written late is never read.
        """
        for epoch in self.journal.epochs_that_count(self.state.epoch):
            outcome = self.journal.outcome(epoch, self.state.attempt, rank)
            if outcome is not None:
                return epoch, outcome
        return None

    def _verified(self, key: str, blob: Blob | None) -> IO[bytes]:
        store = self.journal.store
        if blob is not None and blob.size > _SMALL and store.exists(key):
            if store.verify_object(key, blob):
                return store.open_object(key)
        elif blob is not None and blob.matches(data := store.get(key)):
            return io.BytesIO(data)
        raise DataError(f"{key} in the store {store.url} differs from its digest: altered or damaged")

    def _rebuilt(self, epoch: int, outcome: Outcome) -> tuple[BaseException | None, str]:
        """The exception as the user's code raised it, or None where words must do; and what is to be said of that."""
        error = outcome.error
        if error is None or error.pickled is None or outcome.reason == Reason.RESULT_ERROR:
            return None, ""
        try:
            file = self._verified(self.journal.keys.error(epoch, self.state.attempt, outcome.rank), error.pickled)
        except (DataError, MissingKey) as exc:
            return None, f"its pickled form can't be used: {exc}"
        try:
            raised = pickle.load(file)
        except (Exception, SystemExit) as exc:  # noqa: BLE001 - whatever a foreign class raises as it is rebuilt
            why = f"it can't be rebuilt in this process: {type(exc).__name__}: {exc}"
            return None, ". ".join(filter(None, (why, self._skew())))
        # A SystemExit or KeyboardInterrupt from afar must not end this process as if it were its own: see its caller.
        return (raised, "") if isinstance(raised, BaseException) else (None, "")

    def _note(self, outcome: Outcome, shown: int | None) -> str:
        where = f"{self.spec.job_id}, {self._place(outcome.rank)}, phase {outcome.phase}"
        lines = [f"\nRaised in {where} ({outcome.reason}):"]
        lines.append(outcome.error.traceback.rstrip() if outcome.error else outcome.message)
        lines += [line.strip() for line in self.state.message.splitlines() if line.startswith(_OTHER_RANKS)]
        if outcome.rank != shown:
            lines += _last_lines(self._tail(outcome, outcome.rank), outcome, outcome.rank)
        return sanitize_text("\n".join([*lines, self._way_out(outcome.rank)]))

    def _facts(self, outcome: Outcome | None, tail: str) -> JobFacts:
        """What a program can read of the end."""
        facts: JobFacts = {"job_id": self.spec.job_id, "reason": self.state.reason, "log_tail": tail}
        if (rank := self.state.failed_rank) is not None:
            facts |= {"rank": rank, "phase": outcome.phase if outcome else self._rank(rank).phase}
        if outcome is not None:
            facts |= {"exit_code": outcome.exit_code}
            if (error := outcome.error) is not None:
                facts |= {
                    "error_type": error.type_name,
                    "error_message": error.message,
                    "traceback": error.traceback,
                }
        return facts

    def _message(self, outcome: Outcome | None, tail: str, why_not: str, shown: int | None) -> str:
        """What happened, where, the last lines, what to do; each of it once."""
        state, rank = self.state, self.state.failed_rank
        lines = [f"{self.spec.job_id} ({self.spec.func_name} on {self.spec.accelerator}) {_end_of(state)}"]
        if rank is not None:
            phase = outcome.phase if outcome else self._rank(rank).phase
            lines.append(f"first failing host: {self._place(rank)}" + (f", phase {phase}" if phase else ""))
        words = self._words(outcome)
        lines += _told(state, outcome, bool(words)) + words
        if why_not:
            lines.append(why_not)
        if (rank or 0) != shown and (rank is not None or state.status is not JobStatus.STOPPED):
            lines += _last_lines(tail, outcome, rank or 0)
        lines.append(self._way_out(rank))
        return sanitize_text("\n".join(lines))  # Python prints it as it is, on a terminal mostly

    def _words(self, outcome: Outcome | None) -> list[str]:
        """What stands in for an exception or a value that couldn't travel."""
        if outcome is None or outcome.error is None:
            return []
        lines = ["remote traceback:", _indented(outcome.error.traceback)]
        if outcome.error.value_repr is not None:
            lines += ["the value was:", _indented(outcome.error.value_repr)]
        return lines

    def _tail(self, outcome: Outcome | None, rank: int) -> str:
        if outcome is not None and outcome.log_tail:
            return outcome.log_tail
        key = find_log(self.journal.store, self.journal.keys, rank)
        return "" if key is None else read_tail(self.journal.store, key, _TAIL_LINES)

    def _way_out(self, rank: int | None) -> str:
        if self.state.status is JobStatus.STOPPED:
            return "submit it again to get a value"
        job_id = self.spec.job_id
        if find_log(self.journal.store, self.journal.keys, rank or 0) is None:  # it never came to that
            return f"in detail: kinetic jobs status {job_id}"
        return f"full log: kinetic jobs logs {job_id} --rank {rank or 0}"

    def _place(self, rank: int) -> str:
        host = self._rank(rank)
        where = f" ({host.slice_name}, worker {host.worker_id})" if host.slice_name else ""
        return f"rank {rank}{where}"

    def _rank(self, rank: int) -> RankState:
        return next((each for each in self.state.ranks if each.rank == rank), RankState(rank))


def _kind_of(state: JobState) -> type[JobError]:
    if state.status is JobStatus.STOPPED:
        return JobCancelled
    return JobTimeout if state.reason == Reason.DEADLINE_EXCEEDED else JobFailed


def _end_of(state: JobState) -> str:
    """The end in a few words: a cancelled job's message is its reason."""
    if state.status is JobStatus.STOPPED:
        return f"was {state.message}" if state.message.startswith("cancelled") else "was cancelled"
    return f"failed: {state.reason}" if state.reason else "failed"


def _told(state: JobState, outcome: Outcome | None, has_words: bool) -> list[str]:
    """The driver's text, and the rank's unless the driver's quotes it or a traceback that follows ends with it."""
    if state.status is JobStatus.STOPPED:
        return [state.message] if state.message and not state.message.startswith("cancelled") else []
    told = outcome.message.strip() if outcome and outcome.message else ""
    first, _, rest = state.message.partition("\n")
    if told and first.endswith(told.partition("\n")[0]):
        message, told = (rest, "") if has_words else (state.message, told.partition("\n")[2])
        return [text for text in (message, told) if text]
    return [text for text in ("" if has_words and state.message else told, state.message) if text]


def _last_lines(tail: str, outcome: Outcome | None, rank: int) -> list[str]:
    tail = _without(tail, outcome.error.traceback if outcome and outcome.error else "")
    return [f"last log lines of rank {rank}:", _indented(tail)] if tail.strip() else []


def _without(tail: str, trace: str) -> str:
    """The last lines of a log without a traceback that is told anyway."""
    tail, trace = tail.rstrip(), trace.rstrip()
    return "" if trace and trace.endswith(tail) else tail.removesuffix(trace)


def _indented(text: str) -> str:
    return "\n".join(_INDENT + line for line in text.rstrip().split("\n"))

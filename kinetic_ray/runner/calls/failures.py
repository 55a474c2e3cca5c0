"""How a call fails: one exception that travels through Ray, and becomes the user's own where a user reads it."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from kinetic_ray.core.state import Reason
from kinetic_ray.core.terminal import sanitize_text
from kinetic_ray.errors import JobCancelled, JobError, JobFailed, JobTimeout, add_note, is_stand_in
from kinetic_ray.runner.calls.packing import keeps_packed

_KINDS: Mapping[str, type[JobError]] = {
    Reason.CANCELLED: JobCancelled,
    Reason.DEADLINE_EXCEEDED: JobTimeout,
}
_NOT_OF_A_NOTICE = (Reason.PREEMPTED, Reason.NODE_LOST, Reason.CANCELLED, Reason.DEADLINE_EXCEEDED)


@dataclass(eq=False)
class CallFailure(Exception):
    """A call that has ended without a value.

    Agents and the desk see it as itself; in a user's process Ray gives :meth:`for_user` in its place.

    Attributes:
        reason: Why, one of :class:`~kinetic_ray.core.state.Reason`.
        message: What happened, in one line.
        rank: The rank that failed; None where none did.
        where: What ran where, e.g. "train on tpu-v6e-16-0", for people.
        log_tail: The rank's last lines.
        traceback: The remote traceback, where user code raised.
        pickled: The user's exception itself, where it can be rebuilt.
        exit_code: Of the rank's process where it ended; negative for a signal.
        gang: Id of the gang that served the call.
        actor: Id of the instance that is lost; "" for functions, and where it lives on.
    """

    reason: str
    message: str
    rank: int | None = None
    where: str = ""
    log_tail: str = ""
    traceback: str = ""
    pickled: bytes | None = field(default=None, repr=False)
    exit_code: int | None = None
    gang: str = ""
    actor: str = ""

    def __post_init__(self) -> None:
        super().__init__(self.message)

    def __str__(self) -> str:
        return self.words()

    def __reduce__(self) -> tuple[Any, ...]:
        return reopen_failure, tuple(getattr(self, each.name) for each in fields(self))

    def with_fields(self, **changes: Any) -> CallFailure:
        """The same failure with some fields changed."""
        return replace(self, **changes)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def under_notice(self, whose: str = "its host") -> CallFailure:
        """What it is where a host was about to be taken away: whatever a rank fails of then, that is the reason.

        What somebody has asked for, the end or a time limit, stays what it is.

        Args:
            whose: The host, for people.
        """
        if self.reason in _NOT_OF_A_NOTICE:
            return self
        text = f"{whose} was being preempted; {self.message}"
        return self.with_fields(reason=str(Reason.PREEMPTED), message=text, pickled=None)

    @property
    def is_users(self) -> bool:
        """Whether user code raised an exception, so that the process lives on."""
        return self.exit_code is None and bool(self.traceback)

    def words(self) -> str:
        """Everything that is known, for people: on their terminals, so without control codes."""
        lines = [sanitize_text(self._headline())]
        if self.traceback and self.pickled is None:
            lines += ["remote traceback:", _indented(self.traceback)]
        elif self.traceback:
            lines += [_indented(self.traceback)]
        if self.log_tail.strip() and not self.traceback:
            lines += [f"last log lines of rank {self.rank or 0}:", _indented(self.log_tail)]
        return "\n".join(lines)

    def for_user(self) -> BaseException:
        """What the caller gets: its own exception, a dead actor's error, or one of ours in words."""
        if self.actor and self.reason != Reason.DEADLINE_EXCEEDED:
            return self._actor_died()
        if (own := self.users_own()) is not None:
            return own
        error = _KINDS.get(self.reason, JobFailed)(
            self.words(),
            job_id=self.gang,
            reason=self.reason,
            rank=self.rank,
            exit_code=self.exit_code,
            traceback=self.traceback,
            log_tail=self.log_tail,
        )
        if (raised := self._rebuilt()) is not None:  # what it was raised from can travel
            error.__cause__, error.__context__ = raised.__cause__, raised.__context__
        return error

    def users_own(self) -> Exception | None:
        """The exception that user code raised, with the remote traceback as a note; None where it can't be rebuilt."""
        if self.pickled is None or self.reason == Reason.RESULT_ERROR:
            return None
        raised = self._rebuilt()
        # SystemExit or KeyboardInterrupt from afar must not end this process as if they were its own.
        if not isinstance(raised, Exception) or is_stand_in(raised):
            return None
        add_note(raised, sanitize_text(f"\nRaised in {self._place()}:\n{self.traceback.rstrip()}"))
        return raised

    def _rebuilt(self) -> BaseException | None:
        if self.pickled is None:
            return None
        try:
            raised = pickle.loads(self.pickled)
        except (Exception, SystemExit):  # noqa: BLE001 - whatever a foreign class raises: the words must do then
            return None
        return raised if isinstance(raised, BaseException) else None

    def _actor_died(self) -> BaseException:
        from ray.exceptions import ActorDiedError

        error: BaseException = ActorDiedError()
        text = f"{ActorDiedError.BASE_ERROR_MSG}\n{self.words()}"
        error.__dict__["error_msg"] = text  # what its own str() gives
        error.args = ()  # with which it can be pickled again
        return error

    def _headline(self) -> str:
        return f"{self._place()}: {self.message}" if self.where or self.rank is not None else self.message

    def _place(self) -> str:
        rank = "" if self.rank is None else f"rank {self.rank}"
        return ": ".join(part for part in (self.where, rank) if part) or "the call"


def reopen_failure(*values: Any) -> BaseException:
    """What Ray calls for a :class:`CallFailure` that it has carried."""
    failure = CallFailure(*values)
    return failure if keeps_packed() else failure.for_user()


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in sanitize_text(text.rstrip()).split("\n"))

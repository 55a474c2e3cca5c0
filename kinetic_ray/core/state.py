"""What a job is doing: events, and the fold that turns them into a state."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any


class JobStatus(StrEnum):
    """Ray's words for a job, and NOT_FOUND (only after an authoritative look)."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    STOPPED = "STOPPED"
    NOT_FOUND = "NOT_FOUND"

    @property
    def is_terminal(self) -> bool:
        return self not in (JobStatus.PENDING, JobStatus.RUNNING)


class Reason(StrEnum):
    """Why a job or a host ended without a value."""

    USER_ERROR = "UserError"
    PROCESS_DIED = "ProcessDied"
    PEER_LOST = "PeerLost"
    SETUP_ERROR = "SetupError"  # a phase before the call
    RESULT_ERROR = "ResultError"
    PREEMPTED = "Preempted"
    NODE_LOST = "NodeLost"
    OUT_OF_MEMORY = "OutOfMemory"
    UNSCHEDULABLE = "Unschedulable"
    IMAGE_PULL = "ImagePull"
    DEADLINE_EXCEEDED = "DeadlineExceeded"
    HANG = "Hang"
    DRIVER_LOST = "DriverLost"
    CANCELLED = "Cancelled"


class Stage(StrEnum):
    """What users watch: queue > slice > env > run."""

    SUBMITTED = "submitted"
    QUEUE = "queue"
    SLICE = "slice"
    ENV = "env"
    RUN = "run"
    ENDED = "ended"


class RankPhase(StrEnum):
    """The named phases of one rank; an error is reported with its phase."""

    FETCH = "fetch"
    VERIFY = "verify"
    UNPACK = "unpack"
    LOAD = "load"
    INIT = "init"
    CALL = "call"
    STORE = "store"
    FINISH = "finish"


BEFORE_CALL = frozenset({RankPhase.FETCH, RankPhase.VERIFY, RankPhase.UNPACK, RankPhase.LOAD, RankPhase.INIT})


class EventKind(StrEnum):
    """What can happen to a job, in the past tense."""

    DRIVER_STARTED = "DriverStarted"
    QUEUED = "Queued"  # message
    GRANTED = "Granted"  # slices
    PLACED = "Placed"  # hosts: [{rank, slice, worker_id, node_id}]
    ATTEMPT_STARTED = "AttemptStarted"  # attempt
    RANK_PHASE = "RankPhase"  # rank, phase
    RANK_ENDED = "RankEnded"  # rank, ok, reason, message
    PROGRESSED = "Progressed"  # step, total, metrics
    ATTEMPT_FAILED = "AttemptFailed"  # attempt, reason, message, rank, collateral
    WARNED = "Warned"  # message
    ENDED = "Ended"  # status, reason, message, rank, attempt


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened.

    Attributes:
        kind: What.
        at: When, in Unix seconds by the writer's clock.
        fields: JSON values, named beside each kind above.
    """

    kind: EventKind
    at: float
    fields: Mapping[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """JSON values only: a metric that is no finite number becomes a text ("nan", "inf", "-inf")."""
        fields = dict(self.fields)
        if self.kind is EventKind.PROGRESSED and "metrics" in fields:
            fields["metrics"] = {k: v if math.isfinite(v) else str(float(v)) for k, v in fields["metrics"].items()}
        return {"kind": str(self.kind), "at": self.at, **fields}

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> Event:
        """Reads what :meth:`to_dict` wrote."""
        kind = EventKind(data["kind"])
        fields = {key: value for key, value in data.items() if key not in ("kind", "at")}
        if kind is EventKind.PROGRESSED and "metrics" in fields:
            fields["metrics"] = {k: float(v) if isinstance(v, str) else v for k, v in fields["metrics"].items()}
        return Event(kind, float(data["at"]), fields)


@dataclass(frozen=True, slots=True)
class RankState:
    """One rank as last heard of."""

    rank: int
    slice_name: str = ""
    worker_id: int = 0
    node_id: str = ""
    phase: str = ""
    ended: bool = False
    ok: bool = False
    reason: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True)
class Progress:
    """The newest step that every rank has reported."""

    step: int
    total: int | None
    metrics: Mapping[str, float]
    at: float


@dataclass(frozen=True, slots=True)
class JobState:
    """The fold of a job's events; never stored."""

    status: JobStatus = JobStatus.PENDING
    stage: Stage = Stage.SUBMITTED
    reason: str = ""
    message: str = ""
    epoch: int = 0
    attempt: int = 0
    failed_rank: int | None = None
    ranks: tuple[RankState, ...] = ()
    slices: tuple[str, ...] = ()
    progress: Progress | None = None
    started_at: float | None = None
    ended_at: float | None = None
    warnings: tuple[str, ...] = ()

    @property
    def is_terminal(self) -> bool:
        return self.status.is_terminal


def fold(events: Iterable[tuple[int, Event]]) -> JobState:
    """The state after some events.

    Args:
        events: (epoch, event) in order, as :func:`current_events` gives them.

    Example:
        >>> fold([(1, Event(EventKind.QUEUED, 1.0, {"message": "no free slice"}))]).stage
        <Stage.QUEUE: 'queue'>
    """
    state = JobState()
    for epoch, event in events:
        state = advance(state, epoch, event)
    return state


def advance(state: JobState, epoch: int, event: Event) -> JobState:
    """The only state machine: one event further. A terminal state never changes."""
    if state.is_terminal:
        return state
    return _STEPS[event.kind](replace(state, epoch=epoch), event)


def _driver_started(state: JobState, _event: Event) -> JobState:
    return replace(state, status=JobStatus.PENDING, stage=Stage.QUEUE, message="", ranks=())


def _queued(state: JobState, event: Event) -> JobState:
    return replace(state, stage=Stage.QUEUE, message=event.fields.get("message", ""))


def _granted(state: JobState, event: Event) -> JobState:
    return replace(state, stage=Stage.SLICE, message="", slices=tuple(event.fields.get("slices", ())))


def _placed(state: JobState, event: Event) -> JobState:
    ranks = tuple(
        RankState(host["rank"], host.get("slice", ""), host.get("worker_id", 0), host.get("node_id", ""))
        for host in event.fields.get("hosts", ())
    )
    return replace(state, stage=Stage.ENV, message="", ranks=ranks)


def _attempt_started(state: JobState, event: Event) -> JobState:
    fresh = tuple(replace(r, phase="", ended=False, ok=False, reason="", message="") for r in state.ranks)
    started = event.at if state.started_at is None else state.started_at
    return replace(
        state,
        status=JobStatus.RUNNING,
        stage=Stage.ENV,
        attempt=event.fields["attempt"],
        reason="",
        message="",
        failed_rank=None,
        ranks=fresh,
        started_at=started,
    )


def _rank_phase(state: JobState, event: Event) -> JobState:
    ranks = _with_rank(state.ranks, event.fields["rank"], phase=event.fields["phase"])
    running = bool(ranks) and all(r.phase and r.phase not in BEFORE_CALL for r in ranks)
    return replace(state, ranks=ranks, stage=Stage.RUN if running else state.stage)


def _rank_ended(state: JobState, event: Event) -> JobState:
    told = {key: event.fields[key] for key in ("ok", "reason", "message") if key in event.fields}
    return replace(state, ranks=_with_rank(state.ranks, event.fields["rank"], ended=True, **told))


def _progressed(state: JobState, event: Event) -> JobState:
    fields = event.fields
    metrics = {name: float(value) for name, value in fields.get("metrics", {}).items()}  # JSON has no nan: it's a word
    progress = Progress(fields["step"], fields.get("total"), metrics, event.at)
    return replace(state, progress=progress)


def _attempt_failed(state: JobState, event: Event) -> JobState:
    fields = event.fields
    return replace(
        state,
        status=JobStatus.PENDING,
        stage=Stage.QUEUE,
        reason=fields.get("reason", ""),
        message=fields.get("message", ""),
        failed_rank=fields.get("rank"),
    )


def _warned(state: JobState, event: Event) -> JobState:
    return replace(state, warnings=(*state.warnings, event.fields.get("message", "")))


def _ended(state: JobState, event: Event) -> JobState:
    fields = event.fields
    return replace(
        state,
        status=JobStatus(fields["status"]),
        stage=Stage.ENDED,
        reason=fields.get("reason", ""),
        message=fields.get("message", ""),
        attempt=fields.get("attempt", state.attempt),
        failed_rank=fields.get("rank"),
        ended_at=event.at,
    )


_STEPS = {
    EventKind.DRIVER_STARTED: _driver_started,
    EventKind.QUEUED: _queued,
    EventKind.GRANTED: _granted,
    EventKind.PLACED: _placed,
    EventKind.ATTEMPT_STARTED: _attempt_started,
    EventKind.RANK_PHASE: _rank_phase,
    EventKind.RANK_ENDED: _rank_ended,
    EventKind.PROGRESSED: _progressed,
    EventKind.ATTEMPT_FAILED: _attempt_failed,
    EventKind.WARNED: _warned,
    EventKind.ENDED: _ended,
}


def _with_rank(ranks: Sequence[RankState], rank: int, **changes: Any) -> tuple[RankState, ...]:
    return tuple(replace(r, **changes) if r.rank == rank else r for r in ranks)

"""The fold of a job's events."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinetic_ray.core.records import dump_record, load_record
from kinetic_ray.core.state import (
    BEFORE_CALL,
    Event,
    EventKind,
    JobState,
    JobStatus,
    RankPhase,
    Reason,
    Stage,
    advance,
    fold,
)
from tests.unit.events import EVENTS, FIELDS, HISTORIES

HOSTS = [{"rank": rank, "slice": "tpu-v6e-8-0", "worker_id": rank, "node_id": f"n{rank}"} for rank in range(2)]
LIFE = [
    Event(EventKind.DRIVER_STARTED, 1.0),
    Event(EventKind.QUEUED, 2.0, {"message": "all slices are busy"}),
    Event(EventKind.GRANTED, 3.0, {"slices": ["tpu-v6e-8-0"]}),
    Event(EventKind.PLACED, 4.0, {"hosts": HOSTS}),
    Event(EventKind.ATTEMPT_STARTED, 5.0, {"attempt": 1}),
    Event(EventKind.RANK_PHASE, 6.0, {"rank": 0, "phase": "init"}),
    Event(EventKind.RANK_PHASE, 7.0, {"rank": 0, "phase": "call"}),
    Event(EventKind.RANK_PHASE, 8.0, {"rank": 1, "phase": "call"}),
    Event(EventKind.PROGRESSED, 9.0, {"step": 10, "total": 100, "metrics": {"loss": 0.5}}),
    Event(EventKind.WARNED, 10.0, {"message": "rank 1 is silent"}),
    Event(EventKind.RANK_ENDED, 11.0, {"rank": 1, "ok": True}),
    Event(EventKind.RANK_ENDED, 12.0, {"rank": 0, "ok": False, "reason": "UserError", "message": "ValueError: no"}),
    Event(EventKind.ENDED, 13.0, {"status": "FAILED", "reason": "UserError", "message": "rank 0: no", "rank": 0}),
]


def _after(*events: Event) -> JobState:
    return fold((1, event) for event in events)


def test_what_a_user_watches() -> None:
    stages = [(_after(*LIFE[: n + 1]).status, _after(*LIFE[: n + 1]).stage) for n in range(len(LIFE))]
    pending, running, failed = JobStatus.PENDING, JobStatus.RUNNING, JobStatus.FAILED
    assert stages == [
        (pending, Stage.QUEUE),
        (pending, Stage.QUEUE),
        (pending, Stage.SLICE),
        (pending, Stage.ENV),
        (running, Stage.ENV),
        (running, Stage.ENV),
        (running, Stage.ENV),
        (running, Stage.RUN),  # when the last rank reaches the call
        (running, Stage.RUN),
        (running, Stage.RUN),
        (running, Stage.RUN),
        (running, Stage.RUN),
        (failed, Stage.ENDED),
    ]
    assert _after() == JobState()
    assert _after().stage is Stage.SUBMITTED


def test_what_a_state_tells() -> None:
    assert _after(*LIFE[:2]).message == "all slices are busy"
    granted = _after(*LIFE[:3])
    assert (granted.message, granted.slices) == ("", ("tpu-v6e-8-0",))
    placed = _after(*LIFE[:4])
    assert [(r.rank, r.slice_name, r.worker_id, r.node_id) for r in placed.ranks] == [
        (0, "tpu-v6e-8-0", 0, "n0"),
        (1, "tpu-v6e-8-0", 1, "n1"),
    ]
    ended = _after(*LIFE)
    assert (ended.status, ended.reason, ended.message) == (JobStatus.FAILED, Reason.USER_ERROR, "rank 0: no")
    assert (ended.attempt, ended.failed_rank, ended.epoch) == (1, 0, 1)
    assert (ended.started_at, ended.ended_at) == (5.0, 13.0)
    assert ended.warnings == ("rank 1 is silent",)
    assert ended.progress is not None
    assert (ended.progress.step, ended.progress.total, ended.progress.metrics) == (10, 100, {"loss": 0.5})
    assert [(r.phase, r.ended, r.ok, r.reason, r.message) for r in ended.ranks] == [
        ("call", True, False, "UserError", "ValueError: no"),
        ("call", True, True, "", ""),
    ]


def test_the_next_attempt_starts_afresh() -> None:
    failed = _after(*LIFE[:12], Event(EventKind.ATTEMPT_FAILED, 14.0, {"attempt": 1, "reason": "Preempted", "rank": 1}))
    assert (failed.status, failed.stage, failed.reason) == (JobStatus.PENDING, Stage.QUEUE, "Preempted")
    assert failed.failed_rank == 1
    again = advance(failed, 1, Event(EventKind.ATTEMPT_STARTED, 20.0, {"attempt": 2}))
    assert (again.status, again.stage, again.attempt) == (JobStatus.RUNNING, Stage.ENV, 2)
    assert again.started_at == 5.0  # a deadline counts running time over all attempts
    assert [(r.phase, r.ended, r.ok) for r in again.ranks] == [("", False, False)] * 2
    assert [r.node_id for r in again.ranks] == ["n0", "n1"]


@pytest.mark.parametrize("phase", RankPhase)
def test_a_job_runs_once_every_rank_has_reached_the_call(phase: RankPhase) -> None:
    state = _after(*LIFE[:5], *(Event(EventKind.RANK_PHASE, 6.0, {"rank": r, "phase": str(phase)}) for r in (0, 1)))
    assert state.stage is (Stage.ENV if phase in BEFORE_CALL else Stage.RUN)
    assert set(BEFORE_CALL) < set(RankPhase)


@pytest.mark.parametrize("status", JobStatus)
def test_terminal(status: JobStatus) -> None:
    assert status.is_terminal == (status not in {"PENDING", "RUNNING"})


def test_every_kind_of_event_is_tried() -> None:
    assert set(FIELDS) == set(EventKind)


@given(EVENTS)
def test_an_event_comes_back(event: Event) -> None:
    assert Event.from_dict(json.loads(json.dumps(event.to_dict(), allow_nan=False))) == event


def test_a_diverged_loss_is_told_as_it_is() -> None:
    metrics = {"loss": float("nan"), "norm": float("inf"), "low": -float("inf"), "lr": 0.5, "epoch": 3}
    event = Event(EventKind.PROGRESSED, 1.0, {"step": 1, "metrics": metrics})
    stored = load_record("events", dump_record("events", {"first": 1, "events": [event.to_dict()]}))
    assert stored["events"][0]["metrics"] == {"loss": "nan", "norm": "inf", "low": "-inf", "lr": 0.5, "epoch": 3}
    progress = _after(Event.from_dict(stored["events"][0])).progress
    assert progress is not None
    assert math.isnan(progress.metrics["loss"])
    assert {**progress.metrics, "loss": 0} == {**metrics, "loss": 0}
    assert event.fields["metrics"] is metrics  # writing changes nothing


@given(HISTORIES)
def test_the_first_end_stands(history: list[Event]) -> None:
    state = JobState()
    for event in history:
        before, state = state, advance(state, 1, event)
        if before.is_terminal:
            assert state is before
        assert state.is_terminal == (before.is_terminal or event.kind is EventKind.ENDED)
        assert (state.stage is Stage.ENDED) == state.is_terminal
        assert (state.ended_at is None) != state.is_terminal


@given(HISTORIES, st.data())
def test_a_fold_can_stop_anywhere_and_go_on(history: list[Event], data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(history)))
    state = _after(*history[:cut])
    for event in history[cut:]:
        state = advance(state, 1, event)
    assert state == _after(*history)

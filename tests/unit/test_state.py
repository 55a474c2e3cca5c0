"""The fold of a job's events, and which events count when drivers replace each other."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kinetic_ray.core.state import (
    BEFORE_CALL,
    EpochLog,
    Event,
    EventKind,
    JobState,
    JobStatus,
    RankPhase,
    Reason,
    Stage,
    Taken,
    adoption,
    advance,
    current_epoch,
    current_events,
    fold,
    join_segments,
    state_of,
)

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


# Any events, not only sensible ones.

TEXTS = st.text(max_size=6)
RANKS = st.integers(0, 2)
FIELDS: dict[EventKind, st.SearchStrategy[dict[str, Any]]] = {
    EventKind.DRIVER_STARTED: st.just({}),
    EventKind.QUEUED: st.fixed_dictionaries({}, optional={"message": TEXTS}),
    EventKind.GRANTED: st.fixed_dictionaries({"slices": st.lists(TEXTS, max_size=2)}),
    EventKind.PLACED: st.fixed_dictionaries({"hosts": st.sampled_from([[], HOSTS])}),
    EventKind.ATTEMPT_STARTED: st.fixed_dictionaries({"attempt": st.integers(1, 9)}),
    EventKind.RANK_PHASE: st.fixed_dictionaries({"rank": RANKS, "phase": st.sampled_from([str(p) for p in RankPhase])}),
    EventKind.RANK_ENDED: st.fixed_dictionaries({"rank": RANKS, "ok": st.booleans()}, optional={"reason": TEXTS}),
    EventKind.PROGRESSED: st.fixed_dictionaries({"step": st.integers()}, optional={"total": st.integers()}),
    EventKind.ATTEMPT_FAILED: st.fixed_dictionaries({}, optional={"reason": TEXTS, "rank": RANKS}),
    EventKind.WARNED: st.fixed_dictionaries({"message": TEXTS}),
    EventKind.ENDED: st.fixed_dictionaries(
        {"status": st.sampled_from(["SUCCEEDED", "FAILED", "STOPPED"])}, optional={"reason": TEXTS, "rank": RANKS}
    ),
}
EVENTS = st.sampled_from(EventKind).flatmap(
    lambda kind: st.builds(Event, st.just(kind), st.floats(0, 1e10, allow_nan=False), FIELDS[kind])
)
HISTORIES = st.lists(EVENTS, max_size=30)


def test_every_kind_of_event_is_tried() -> None:
    assert set(FIELDS) == set(EventKind)


@given(EVENTS)
def test_an_event_comes_back(event: Event) -> None:
    assert Event.from_dict(json.loads(json.dumps(event.to_dict()))) == event


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


@given(HISTORIES, st.data())
def test_segments_join_however_they_were_cut(history: list[Event], data: st.DataObject) -> None:
    """Any cut, any listing order, and compacted segments beside those that they replace: the events are the same."""
    cuts = sorted(data.draw(st.sets(st.integers(1, len(history) - 1)))) if len(history) > 1 else []
    bounds = list(zip([0, *cuts], [*cuts, len(history)], strict=True))
    segments = [(start + 1, history[start:stop]) for start, stop in bounds]
    for _ in range(data.draw(st.integers(0, 3))):
        first = data.draw(st.integers(0, len(bounds) - 1))
        last = data.draw(st.integers(first, len(bounds) - 1))
        start, stop = bounds[first][0], bounds[last][1]
        segments.append((start + 1, history[start:stop]))
    assert join_segments(data.draw(st.permutations(segments))) == tuple(history)


@given(st.lists(st.lists(EVENTS, min_size=1, max_size=4), min_size=1, max_size=6), st.data())
def test_events_behind_a_gap_wait(parts: list[list[Event]], data: st.DataObject) -> None:
    starts = [1 + sum(map(len, parts[:n])) for n in range(len(parts))]
    missing = data.draw(st.integers(0, len(parts) - 1))
    seen = [(start, part) for n, (start, part) in enumerate(zip(starts, parts, strict=True)) if n != missing]
    assert join_segments(seen) == tuple(event for part in parts[:missing] for event in part)


# Drivers that replace each other.


def _queued(text: str) -> Event:
    return Event(EventKind.QUEUED, 0.0, {"message": text})


def _ended(status: str) -> Event:
    return Event(EventKind.ENDED, 0.0, {"status": status})


def test_only_the_newest_adopted_epoch_counts() -> None:
    one = EpochLog(1, (), (_queued("a"), _ended("FAILED")))
    two = EpochLog(2, (Taken(1, 1),), (_queued("b"), _ended("SUCCEEDED")))
    assert current_epoch([two, one]) == two
    assert current_events([one, two]) == [(1, one.events[0]), *((2, event) for event in two.events)]
    state = state_of([one, two])
    assert (state.status, state.epoch) == (JobStatus.SUCCEEDED, 2)


def test_an_end_that_may_still_be_refused_is_not_shown() -> None:
    one = EpochLog(1, (), (_ended("SUCCEEDED"),))
    claimed = EpochLog(2, None)
    assert state_of([one]).status is JobStatus.SUCCEEDED
    state = state_of([one, claimed])
    assert (state.status, state.message, state.reason) == (JobStatus.PENDING, "driver is being replaced", "")
    adopted = EpochLog(2, adoption([one, claimed], 2))
    assert state_of([one, adopted]).status is JobStatus.SUCCEEDED


def test_what_an_epoch_says_before_it_has_adopted_is_not_heard() -> None:
    early = EpochLog(2, None, (_ended("FAILED"),))
    assert state_of([EpochLog(1, (), (_queued("a"),)), early]).message == "a"
    assert state_of([early]) == JobState()
    assert state_of([]) == JobState()


def test_adoption_goes_back_through_all_drivers() -> None:
    logs = [
        EpochLog(1, (), (_queued("a"),)),
        EpochLog(2, (Taken(1, 1),), (_queued("b"), _queued("c"))),
        EpochLog(3, None),
    ]
    assert adoption(logs, 4) == (Taken(1, 1), Taken(2, 2))
    assert adoption(logs, 2) == (Taken(1, 1),)
    assert adoption(logs, 1) == ()
    assert adoption([], 1) == ()


class Drivers(RuleBasedStateMachine):
    """Drivers claim, adopt, write, and write on after they were replaced, in any order.

    What they may believe is kept beside the logs in the plainest form: the list of events that count.
    """

    def __init__(self) -> None:
        super().__init__()
        self.logs: dict[int, EpochLog] = {}
        self.history: dict[int, list[tuple[int, Event]]] = {}  # by adopted epoch: the events that count for it
        self.shown: JobState | None = None  # the end that an observer has seen

    @property
    def current(self) -> int:
        return max(self.history, default=0)

    @rule()
    def claim(self) -> None:
        number = len(self.logs) + 1
        self.logs[number] = EpochLog(number, None)

    @precondition(lambda self: len(self.history) < len(self.logs))
    @rule(data=st.data())
    def adopt(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(sorted(set(self.logs) - set(self.history))))
        lower = max((epoch for epoch in self.history if epoch < number), default=0)
        self.history[number] = list(self.history.get(lower, []))
        self.logs[number] = EpochLog(number, adoption(list(self.logs.values()), number), self.logs[number].events)

    @precondition(lambda self: self.history)
    @rule(event=EVENTS, data=st.data())
    def write(self, event: Event, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(sorted(self.history)))
        log = self.logs[number]
        self.logs[number] = EpochLog(number, log.taken, (*log.events, event))
        self.history[number].append((number, event))

    @invariant()
    def the_events_that_count(self) -> None:
        logs = list(self.logs.values())
        assert current_events(logs) == self.history.get(self.current, [])
        assert current_events(logs[::-1]) == current_events(logs)

    @invariant()
    def the_state(self) -> None:
        logs = list(self.logs.values())
        state, believed = state_of(logs), fold(self.history.get(self.current, []))
        if believed.is_terminal and len(self.logs) > self.current:
            assert not state.is_terminal
            return
        assert state == believed

    @invariant()
    def an_end_that_was_shown_stays(self) -> None:
        state = state_of(list(self.logs.values()))
        if state.is_terminal:
            assert self.shown is None or self.shown == state
            self.shown = state


TestDrivers = Drivers.TestCase

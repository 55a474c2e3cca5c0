"""Which events count when drivers replace each other."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kinetic_ray.core.epochs import EpochLog, Taken, adoption, current_epoch, current_events, join_segments, state_of
from kinetic_ray.core.state import Event, EventKind, JobState, JobStatus, fold
from tests.unit.events import EVENTS, HISTORIES


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

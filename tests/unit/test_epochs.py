"""Which events count when drivers replace each other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kinetic_ray.core.epochs import (
    EpochLog,
    Folded,
    Part,
    Taken,
    adoption,
    believed,
    current_epoch,
    current_events,
    extend,
    fold_on,
    state_of,
)
from kinetic_ray.core.state import Event, EventKind, JobState, JobStatus, fold
from tests.unit.events import EVENTS, HISTORIES


def _parts(spans: Iterable[tuple[int, int]], *, merged: bool = False) -> list[Part]:
    """Parts of (start, stop) of a history; the name of one that was never merged tells its first event only."""
    return [Part(start + 1, stop if merged else start + 1, f"{start}:{stop}") for start, stop in spans]


def _reader(history: Sequence[Event]) -> Callable[[Part], Sequence[Event]]:
    def read(part: Part) -> Sequence[Event]:
        start, stop = map(int, part.key.split(":"))
        return history[start:stop]

    return read


@given(HISTORIES, st.data())
def test_parts_join_however_they_were_cut(history: list[Event], data: st.DataObject) -> None:
    """Any cut, any listing order, merged parts beside those that they replace, one look or many: all is there once."""
    cuts = sorted(data.draw(st.sets(st.integers(1, len(history) - 1)))) if len(history) > 1 else []
    bounds = list(zip([0, *cuts], [*cuts, len(history)], strict=True))
    parts, merged = _parts(bounds), []
    for _ in range(data.draw(st.integers(0, 3))):
        first = data.draw(st.integers(0, len(bounds) - 1))
        last = data.draw(st.integers(first, len(bounds) - 1))
        merged += _parts([(bounds[first][0], bounds[last][1])], merged=True)
    events: list[Event] = []
    for known in sorted(data.draw(st.sets(st.integers(0, len(parts))))):
        extend(events, parts[:known], _reader(history))
    extend(events, data.draw(st.permutations([*parts, *merged])), _reader(history))
    assert events == history


@given(st.lists(st.lists(EVENTS, min_size=1, max_size=4), min_size=1, max_size=6), st.data())
def test_events_behind_a_gap_wait(cut: list[list[Event]], data: st.DataObject) -> None:
    starts = [sum(map(len, cut[:n])) for n in range(len(cut))]
    missing = data.draw(st.integers(0, len(cut) - 1))
    history = [event for part in cut for event in part]
    spans = [(start, start + len(part)) for start, part in zip(starts, cut, strict=True)]
    events: list[Event] = []
    extend(events, _parts(span for n, span in enumerate(spans) if n != missing), _reader(history))
    assert events == history[: starts[missing]]
    extend(events, _parts(spans), _reader(history))
    assert events == history


def test_only_what_holds_news_is_read() -> None:
    history = [_queued(str(number)) for number in range(6)]
    asked: list[str] = []

    def read(part: Part) -> Sequence[Event]:
        asked.append(part.key)
        return _reader(history)(part)

    events: list[Event] = []
    extend(events, _parts([(0, 2), (2, 3)]), read)
    extend(events, [*_parts([(0, 3)], merged=True), *_parts([(0, 2), (2, 3), (3, 5)])], read)
    extend(events, [*_parts([(0, 5)], merged=True), *_parts([(3, 5), (5, 6)])], read)
    assert (events, asked) == (history, ["0:2", "2:3", "3:5", "5:6"])


@given(HISTORIES, st.data())
def test_a_fold_goes_on_from_any_other(history: list[Event], data: st.DataObject) -> None:
    """Also from one of more events, as another thread may have left it that looked later."""
    folded = None
    for count in data.draw(st.lists(st.integers(0, len(history)), min_size=1, max_size=4)):
        folded = fold_on(folded, [EpochLog(1, (), tuple(history[:count]))])
        assert folded is not None
        assert folded.state == fold((1, event) for event in history[:count])


def test_no_fold_goes_on_from_one_that_lacks_what_was_taken_over() -> None:
    """The store went away between the listing of epochs and that of the older one's events."""
    older = EpochLog(1, (), (Event(EventKind.WARNED, 0.0, {"message": "old"}),))
    newer = EpochLog(2, (Taken(1, 1),), (_queued("new"),))
    half = fold_on(None, [replace(older, events=()), newer])
    assert half is not None
    assert half.state.warnings == ()
    assert fold_on(half, [older, newer]) == fold_on(None, [older, newer])
    assert state_of([older, newer]).warnings == ("old",)


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
        self.folded: Folded | None = None  # what an observer that looks at every step goes on from

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
        state, whole = state_of(logs), fold(self.history.get(self.current, []))
        if whole.is_terminal and len(self.logs) > self.current:
            assert not state.is_terminal
            return
        assert state == whole

    @invariant()
    def a_fold_that_goes_on(self) -> None:
        logs = list(self.logs.values())
        self.folded = fold_on(self.folded, logs)
        if self.folded is not None:
            assert believed(self.folded.state, logs) == state_of(logs)

    @invariant()
    def an_end_that_was_shown_stays(self) -> None:
        state = state_of(list(self.logs.values()))
        if state.is_terminal:
            assert self.shown is None or self.shown == state
            self.shown = state


TestDrivers = Drivers.TestCase

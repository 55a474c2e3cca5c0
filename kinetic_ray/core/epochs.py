"""Which events count when drivers replace each other: epochs, what they take over, and what an observer may believe."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest

from kinetic_ray.core.state import Event, EventKind, JobState, JobStatus, Stage, advance, fold


@dataclass(frozen=True, slots=True)
class Taken:
    """What one epoch took over from a lower one: its first `events` events, and no later ones."""

    epoch: int
    events: int


@dataclass(frozen=True, slots=True)
class EpochLog:
    """One epoch as read from the store.

    Attributes:
        epoch: Its number, from 1.
        taken: What it adopted, lowest epoch first; None while its driver has claimed but not adopted yet.
        events: Its own events, in order.
    """

    epoch: int
    taken: tuple[Taken, ...] | None
    events: tuple[Event, ...] = ()


@dataclass(frozen=True, slots=True)
class Part:
    """A stretch of an epoch's events, as the name of its object tells.

    Attributes:
        first: Number of its first event, from 1.
        last: Number of its last event; its first, where the name doesn't tell.
        key: Where it lies.
    """

    first: int
    last: int
    key: str


def extend(events: list[Event], parts: Iterable[Part], read: Callable[[Part], Sequence[Event]]) -> None:
    """Adds to the events of an epoch what is new.

    Args:
        events: What is known, from number 1 on; grows in place.
        parts: All that there are. They may overlap, as a merged part does with those that it replaces: no part ends
            within another one. What lies behind a gap (a part not visible yet) is left for the next look.
        read: Gives a part's events; only those are asked for that hold news.
    """
    for part in sorted(parts, key=lambda part: (part.first, -part.last)):
        if part.first > len(events) + 1:
            return
        if part.last > len(events):
            events += read(part)[len(events) + 1 - part.first :]


def current_epoch(epochs: Sequence[EpochLog]) -> EpochLog | None:
    """The newest epoch that has adopted: the one that a fold reads."""
    adopted = [log for log in epochs if log.taken is not None]
    return max(adopted, key=lambda log: log.epoch, default=None)


def current_events(epochs: Sequence[EpochLog]) -> list[tuple[int, Event]]:
    """The events that count: those of the newest adopted epoch, after those it took over.

    Everything else, such as what a fenced driver wrote late, is refused.
    """
    newest = current_epoch(epochs)
    if newest is None or newest.taken is None:
        return []
    by_number = {log.epoch: log for log in epochs}
    events: list[tuple[int, Event]] = []
    for taken in newest.taken:
        log = by_number.get(taken.epoch)
        events += [(taken.epoch, event) for event in (log.events[: taken.events] if log else ())]
    return events + [(newest.epoch, event) for event in newest.events]


def adoption(epochs: Sequence[EpochLog], claimed: int) -> tuple[Taken, ...]:
    """What the driver of epoch `claimed` takes over from the lower epochs, as they stand now."""
    lower = current_epoch([log for log in epochs if log.epoch < claimed])
    if lower is None or lower.taken is None:
        return ()
    return (*lower.taken, Taken(lower.epoch, len(lower.events)))


@dataclass(frozen=True, slots=True)
class Folded:
    """A fold that a later one can go on from.

    Attributes:
        epoch: The epoch that it reads; 0 for a fold that none can go on from, as what it took over wasn't there.
        taken: What that took over.
        count: How many of its own events are in.
        state: The state after them.
    """

    epoch: int
    taken: tuple[Taken, ...]
    count: int
    state: JobState


def fold_on(before: Folded | None, epochs: Sequence[EpochLog]) -> Folded | None:
    """The fold of the events that count; those that an earlier one holds are not folded again.

    Returns:
        None while no epoch has adopted.
    """
    newest = current_epoch(epochs)
    if newest is None or newest.taken is None:
        return None
    is_later = before is not None and before.count > len(newest.events)  # of another thread, whose look began later
    if before is None or is_later or (before.epoch, before.taken) != (newest.epoch, newest.taken):
        inherited = current_events([*(log for log in epochs if log is not newest), replace(newest, events=())])
        is_whole = len(inherited) == sum(taken.events for taken in newest.taken)  # else the store is just going away
        before = Folded(newest.epoch if is_whole else 0, newest.taken, 0, fold(inherited))
    state, news = before.state, newest.events[before.count :]
    for event, following in zip_longest(news, news[1:]):
        if not (_is_progress(event) and _is_progress(following)):  # of many reports in a row the last one counts
            state = advance(state, newest.epoch, event)
    return replace(before, count=len(newest.events), state=state)


def _is_progress(event: Event | None) -> bool:
    return event is not None and event.kind is EventKind.PROGRESSED


def state_of(epochs: Sequence[EpochLog]) -> JobState:
    """The state that an observer may believe.

    While a newer epoch is claimed but has not adopted yet, an older epoch's end can still be refused: it is
    reported as "the driver is being replaced", never as terminal.
    """
    folded = fold_on(None, epochs)
    return believed(JobState() if folded is None else folded.state, epochs)


def believed(state: JobState, epochs: Sequence[EpochLog]) -> JobState:
    """A fold of these epochs as an observer may believe it, see :func:`state_of`."""
    newest = max((log.epoch for log in epochs), default=0)
    current = current_epoch(epochs)
    if state.is_terminal and current is not None and newest > current.epoch:
        return replace(
            state, status=JobStatus.PENDING, stage=Stage.QUEUE, reason="", message="driver is being replaced"
        )
    return state

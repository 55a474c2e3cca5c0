"""Which events count when drivers replace each other: epochs, what they take over, and what an observer may believe."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from kinetic_ray.core.state import Event, JobState, JobStatus, Stage, fold


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


def join_segments(segments: Iterable[tuple[int, Sequence[Event]]]) -> tuple[Event, ...]:
    """The events of an epoch from its segments.

    Args:
        segments: (number of the first event from 1, events). They may overlap, as a compacted segment does with
            those that it replaces; events behind a gap (a segment not visible yet) are left for the next look.
    """
    events: list[Event] = []
    for first, segment in sorted(segments, key=lambda part: (part[0], -len(part[1]))):
        if first > len(events) + 1:
            break
        events += segment[len(events) + 1 - first :]
    return tuple(events)


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


def state_of(epochs: Sequence[EpochLog]) -> JobState:
    """The state that an observer may believe.

    While a newer epoch is claimed but has not adopted yet, an older epoch's end can still be refused: it is
    reported as "the driver is being replaced", never as terminal.
    """
    state = fold(current_events(epochs))
    newest = max((log.epoch for log in epochs), default=0)
    current = current_epoch(epochs)
    if state.is_terminal and current is not None and newest > current.epoch:
        return replace(
            state, status=JobStatus.PENDING, stage=Stage.QUEUE, reason="", message="driver is being replaced"
        )
    return state

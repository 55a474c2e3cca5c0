"""Reading a job's epochs, as often as one likes: every record is read once, every event folded once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from kinetic_ray.core.epochs import EpochLog, Folded, Part, Taken, believed, extend, fold_on
from kinetic_ray.core.names import JobKeys, epoch_of, part_of
from kinetic_ray.core.records import load_record
from kinetic_ray.core.state import Event, JobState
from kinetic_ray.store import MissingKey, Store

#: Listings of one epoch's events. Segments are merged once in a minute or so: the second finds what the first missed.
_TRIES = 4


@dataclass(frozen=True, slots=True)
class _Known:
    taken: tuple[Taken, ...] | None = None
    events: tuple[Event, ...] = ()


@dataclass(slots=True)
class Segments:
    """What one observer has read of one job. Its records never change, so only what is new is read.

    Thread-safe: a look goes on from what is known at its beginning, and replaces that in one step.
    """

    _known: dict[int, _Known] = field(default_factory=dict)
    _folded: Folded | None = None

    def epochs(self, store: Store, keys: JobKeys) -> list[EpochLog]:
        """Every epoch, as the store has it now."""
        before = self._known
        found = (epoch_of(key) for key in store.list(keys.drivers))
        numbers = sorted(number for number in found if number is not None)
        known = {number: _read(store, keys, number, before.get(number, _Known())) for number in numbers}
        self._known = known
        return [EpochLog(number, one.taken, one.events) for number, one in known.items()]

    def state(self, epochs: Sequence[EpochLog]) -> JobState:
        """The fold of what :meth:`epochs` gave."""
        folded = self._folded = fold_on(self._folded, epochs)
        return believed(JobState() if folded is None else folded.state, epochs)


def _read(store: Store, keys: JobKeys, number: int, known: _Known) -> _Known:
    taken = read_adopted(store, keys.adopted(number)) if known.taken is None else known.taken
    return _Known(taken, _extended(store, keys.events(number), known.events))


def read_adopted(store: Store, key: str) -> tuple[Taken, ...] | None:
    """What an epoch has taken over; None while it has not said so."""
    data = store.find(key)
    if data is None:
        return None
    body = load_record("adopted", data, where=key)
    return tuple(Taken(each["epoch"], each["events"]) for each in body["taken"])


def _extended(store: Store, folder: str, known: tuple[Event, ...]) -> tuple[Event, ...]:
    def read(part: Part) -> Sequence[Event]:
        body = load_record("events", store.get(part.key), where=part.key)
        return [Event.from_dict(event) for event in body["events"]]

    events = list(known)
    for tries_left in reversed(range(_TRIES)):
        parts = [Part(*span, key) for key in store.list(folder) if (span := part_of(key))]
        try:
            extend(events, parts, read)
        except MissingKey:  # merged with its neighbours since it was listed, or the job was cleaned up
            if not tries_left:
                raise
        else:
            if all(part.first <= len(events) for part in parts):
                break  # no gap, which only a listing has that began before a merge and ended after it
    return known if len(events) == len(known) else tuple(events)

"""The driver's pen: a thread that writes events in batches, beats, and notices that a newer driver has the job."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from kinetic_ray.core.records import canonical
from kinetic_ray.core.state import Event, EventKind
from kinetic_ray.errors import StoreError
from kinetic_ray.journal import DriverLog, Fenced
from kinetic_ray.runner.inbox import Inbox, Stop, StopAsked
from kinetic_ray.store.patience import is_passing, retried

_BEAT = 2.0
#: Progress may come in thousands a second; its segments come once in this time.
_PROGRESS = 1.0
#: Events whose readers can wait for a moment.
_UNHURRIED = frozenset({EventKind.PROGRESSED})
_LOG = logging.getLogger(__name__)


class Recorder:
    """Writes to one epoch. While a segment is being written, what arrives meanwhile becomes the next one.

    A store that is away for a moment ends no job: a segment is written again until it is there, everything else (a
    beat, the index) comes again by itself.
    """

    def __init__(
        self, log: DriverLog, inbox: Inbox, *, persist: Callable[[Callable[[], None]], None] = retried
    ) -> None:
        """Starts the thread.

        Args:
            log: Where to write.
            inbox: Gets word of a newer driver, of a cancel record, and of a store that takes no more.
            persist: Does something again where a blip gets in its way; raises what is no blip.
        """
        self._log = log
        self._inbox = inbox
        self._persist = persist
        self._is_cancelled = self._is_troubled = False
        self._events: list[Event] = []
        self._tasks: list[Callable[[], None]] = []
        self._urgent = False
        self._closing = False
        self._failure: BaseException | None = None
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="kinetic-recorder", daemon=True)
        self._thread.start()

    def add(self, kind: EventKind, **fields: Any) -> None:
        """Notes an event; returns at once."""
        with self._changed:
            self._events.append(Event(kind, time.time(), fields))
            if kind not in _UNHURRIED:
                self._urgent = True
                self._changed.notify()

    def do(self, task: Callable[[], None]) -> None:
        """Runs something else that touches the store, off the driver's own thread, after the events so far.

        It must be safe to repeat, and to lose: while the store is away it is tried now and then, up to the end.
        """
        with self._changed:
            self._tasks.append(task)
            self._urgent = True
            self._changed.notify()

    def close(self) -> None:
        """Writes what is left and stops; safe to repeat.

        Raises:
            Fenced: A newer driver has the job, or it was cleaned up; what was noted since counts for nothing.
            StoreError: The store took no more records, for longer than a blip lasts.
        """
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join()
        if self._failure is not None:
            raise self._failure

    def withdraw(self) -> None:
        """Once nothing of this driver runs: what ranks wrote late of a job that was cleaned up goes as well."""
        self._log.stands()

    def _run(self) -> None:
        try:
            self._write_until_closed()
        except Fenced as exc:
            self._give_up(exc, Stop.FENCED)
        except Exception as exc:  # noqa: BLE001 - the edge of the thread: the driver must stop, whatever it was
            self._give_up(StoreError(f"the job's records can't be written: {type(exc).__name__}: {exc}"), Stop.BROKEN)

    def _write_until_closed(self) -> None:
        next_beat = next_progress = time.monotonic()
        hints: list[Callable[[], None]] = []
        while True:
            with self._changed:
                due = min(next_beat, next_progress) if self._events else next_beat
                self._changed.wait_for(self._is_due, timeout=max(0.0, due - time.monotonic()))
                closing = self._closing
                now = time.monotonic()
                events, tasks = self._collect(closing or now >= next_progress)
            if events:
                self._append(events)
                next_progress = time.monotonic() + _PROGRESS
            if tasks or (hints and (closing or now >= next_beat)):
                hints = [task for task in (*hints, *tasks) if not self._try(task)]
            if closing:
                return
            if now >= next_beat:
                self._try(self._beat)
                next_beat = now + _BEAT

    def _append(self, events: list[Event]) -> None:
        try:
            self._persist(partial(self._log.append, *events))
        except (TypeError, ValueError):  # of one that no record can hold: nothing of them is written yet
            writable = [one for each in events if (one := _writable(each)) is not None]
            self._persist(partial(self._log.append, *writable))

    def _beat(self) -> None:
        self._log.beat()
        self._log.check()
        if not self._is_cancelled and self._log.journal.cancel_requested():  # its push may have been lost
            self._is_cancelled = True
            self._inbox.put(StopAsked(Stop.CANCEL))
        self._log.merge()

    def _try(self, act: Callable[[], None]) -> bool:
        """Does what a blip of the store may well prevent; whether it was done."""
        try:
            act()
        except Exception as exc:
            if not is_passing(exc):
                raise
            if not self._is_troubled:
                _LOG.warning("the store is away, trying again: %s", exc)
            self._is_troubled = True
            return False
        self._is_troubled = False
        return True

    def _is_due(self) -> bool:
        return self._urgent or self._closing

    def _collect(self, all_of_them: bool) -> tuple[list[Event], list[Callable[[], None]]]:
        if not (self._urgent or all_of_them):
            return [], []
        events, self._events = self._events, []
        tasks, self._tasks = self._tasks, []
        self._urgent = False
        return events, tasks

    def _give_up(self, failure: BaseException, stop: Stop) -> None:
        self._failure = failure
        self._inbox.put(StopAsked(stop, str(failure)))


def _writable(event: Event) -> Event | None:
    """An event as a record can hold it: what user code has put into one must never end the driver. None: left out."""
    try:
        json.loads(canonical(event.to_dict()))
    except (TypeError, ValueError) as exc:
        _LOG.warning("%s can't be written as it is: %s: %s", event.kind, type(exc).__name__, exc)
        if event.kind is EventKind.PROGRESSED:
            return None
        return Event(event.kind, event.at, {name: _plain(value) for name, value in event.fields.items()})
    return event


def _plain(value: object) -> object:
    try:
        return json.loads(canonical(value))
    except (TypeError, ValueError):
        return f"({type(value).__name__})"  # its repr is foreign code as well

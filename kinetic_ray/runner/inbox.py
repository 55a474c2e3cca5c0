"""The driver's one queue: answers of actors, word from the supervisor and signals all arrive here, in order."""

from __future__ import annotations

import queue
import time
from concurrent.futures import Future
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Any, Protocol

_LONGEST_WAIT = 3600.0


class Ref(Protocol):
    """What the inbox needs of a Ray object ref."""

    def future(self) -> Future[Any]:
        """Completes when the object is there."""


@dataclass(frozen=True, slots=True)
class Answer:
    """An actor's answer, or its error."""

    tag: object
    value: Any = None
    error: BaseException | None = None


@dataclass(frozen=True, slots=True)
class HostLost:
    """A host is gone, says who watches its process."""

    node_id: str
    slice_name: str
    worker_id: int
    reason: str


@dataclass(frozen=True, slots=True)
class HostGoing:
    """A host is about to be taken away: it has been told, and has a time of grace."""

    node_id: str
    grace: float


class Stop(StrEnum):
    """Why the driver must stop whatever it is doing."""

    CANCEL = "cancel"  # somebody asks for it; the cancel record decides
    TERMINATE = "terminate"  # SIGTERM
    FENCED = "fenced"  # a newer driver has the job
    BROKEN = "broken"  # the store takes no more records


@dataclass(frozen=True, slots=True)
class StopAsked:
    """A stop, and what is known of it."""

    stop: Stop
    message: str = ""


Item = Answer | HostGoing | HostLost | StopAsked


class Stopped(Exception):
    """Raised out of any wait of the driver's by a :class:`StopAsked`."""

    def __init__(self, asked: StopAsked) -> None:
        super().__init__(asked.message or str(asked.stop))
        self.asked = asked


class TimedOut(Exception):
    """A wait's own deadline passed."""


class HostsGone(Exception):
    """Raised out of a wait for answers by the loss of a host that the waiter needs."""

    def __init__(self, lost: HostLost) -> None:
        super().__init__(f"host {lost.worker_id} of {lost.slice_name} was lost: {lost.reason}")
        self.lost = lost


class Inbox:
    """A queue that any thread, and a signal handler, may put to, and one thread takes from."""

    def __init__(self) -> None:
        self._items: queue.SimpleQueue[Item] = queue.SimpleQueue()
        self._lost: list[HostLost] = []
        self._going: list[HostGoing] = []

    def put(self, item: Item) -> None:
        self._items.put(item)

    def watch(self, tag: object, ref: Ref) -> None:
        """Puts an :class:`Answer` with this tag when the ref has its value; doesn't block, and needs no polling."""
        ref.future().add_done_callback(partial(self._deliver, tag))

    def take(self, deadline: float | None = None) -> Answer | HostGoing | HostLost | None:
        """The next item, or None once the monotonic clock has passed the deadline.

        Raises:
            Stopped: It was a :class:`StopAsked`.
        """
        item = self._get(deadline)
        if isinstance(item, StopAsked):
            raise Stopped(item)
        if isinstance(item, HostLost):
            self._lost.append(item)
        if isinstance(item, HostGoing):
            self._going.append(item)
        return item

    def lost_among(self, node_ids: frozenset[str]) -> HostLost | None:
        """The first loss so far of one of these nodes."""
        return next((lost for lost in self._lost if lost.node_id in node_ids), None)

    @property
    def going(self) -> tuple[HostGoing, ...]:
        """All notices so far."""
        return tuple(self._going)

    def gather(
        self, refs: dict[Any, Ref], deadline: float | None = None, needed: frozenset[str] = frozenset()
    ) -> dict[Any, Any]:
        """The values of all refs.

        Args:
            refs: By a key of the caller's.
            deadline: On the monotonic clock.
            needed: Nodes without which the answers will not come.

        Raises:
            TimedOut: The deadline passed.
            HostsGone: A needed node was lost, before or while waiting.
            Stopped: See :meth:`take`.
            BaseException: The first error among the answers.
        """
        waiting = object()
        for key, ref in refs.items():
            self.watch((waiting, key), ref)
        values: dict[Any, Any] = {}
        while len(values) < len(refs):
            if lost := self.lost_among(needed):
                raise HostsGone(lost)
            item = self.take(deadline)
            if item is None:
                raise TimedOut
            if isinstance(item, Answer) and isinstance(item.tag, tuple) and item.tag[0] is waiting:
                if item.error is not None:
                    raise item.error
                values[item.tag[1]] = item.value
        return values

    def await_loss(self, node_ids: frozenset[str], deadline: float) -> HostLost | None:
        """The loss of one of these nodes, if word of it comes in time."""
        while (lost := self.lost_among(node_ids)) is None:
            if self.take(deadline) is None:
                return None
        return lost

    def pause(self, seconds: float) -> None:
        """Waits, but not through a stop."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self.take(deadline)

    def _get(self, deadline: float | None) -> Item | None:
        """In steps, for a queue refuses to wait for centuries, which a deadline may lie away."""
        while True:
            left = _LONGEST_WAIT if deadline is None else deadline - time.monotonic()
            try:
                return self._items.get(timeout=min(max(0.0, left), _LONGEST_WAIT))
            except queue.Empty:
                if left <= _LONGEST_WAIT and deadline is not None:
                    return None

    def _deliver(self, tag: object, future: Future[Any]) -> None:
        error = future.exception()
        self._items.put(Answer(tag, error=error) if error is not None else Answer(tag, future.result()))

"""Lines of children on their way from an agent to the desk: one batch at a time, each until it has arrived. No Ray."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple

_LOG = logging.getLogger(__name__)

#: Seconds for a desk that is out of reach, and between two tries.
_PATIENCE, _RETRY = 60.0, 1.0


class Source(NamedTuple):
    """Where lines come from.

    Attributes:
        client: Who gets them.
        name: The call that has printed them, for people.
        rank: Its rank.
        where: Its host, for people.
    """

    client: str
    name: str
    rank: int
    where: str = ""


class Courier:
    """Passes lines on. Thread-safe; whoever has lines waits until they have arrived.

    So a child prints no faster than its lines are taken, as at a slow terminal.
    """

    def __init__(
        self,
        send: Callable[[int, Source, Sequence[str]], Future[Any]],
        *,
        patience: float = _PATIENCE,
        retry: float = _RETRY,
    ) -> None:
        """Begins with nothing.

        Args:
            send: Sends a batch with its number; done once it has arrived. A number that comes again is no news there.
            patience: Seconds for a receiver that is out of reach.
            retry: Seconds between two tries.
        """
        self._send = send
        self._patience = patience
        self._retry = retry
        self._number = 0
        self._unsaid: Counter[Source] = Counter()
        self._turn = threading.Lock()

    def carry(self, source: Source, lines: Sequence[str]) -> None:
        """Returns when the lines have arrived; those that can't be passed on are counted, and told with the next."""
        with self._turn:
            self._number += 1
            missing = self._unsaid.pop(source, 0)
            told = [f"[kinetic: {missing} earlier lines could not be passed on]", *lines] if missing else lines
            try:
                self._deliver(source, told)
            except Exception as exc:  # noqa: BLE001 - no desk any more; the agent's own output has the lines
                self._unsaid[source] = missing + len(lines)
                _LOG.warning("%d lines of %s could not be passed on: %s", len(lines), source.name, exc)

    def _deliver(self, source: Source, lines: Sequence[str]) -> None:
        until = time.monotonic() + self._patience
        while True:
            try:
                self._send(self._number, source, lines).result()
            except Exception:
                if time.monotonic() >= until:
                    raise
            else:
                return
            threading.Event().wait(self._retry)

"""What an agent has to say about one attempt, waiting for the driver to ask."""

from __future__ import annotations

import threading
from typing import Any

#: Reports kept for a driver that doesn't ask; the oldest go first. Phases and the end are never dropped.
REPORTS_KEPT = 4096

Message = dict[str, Any]


class Feed:
    """Messages of one attempt in order; the one about its end is the last, and is given at every later asking."""

    def __init__(self) -> None:
        self._messages: list[Message] = []
        self._reports = 0
        self._ended: Message | None = None
        self._changed = threading.Condition()

    @property
    def ended(self) -> bool:
        return self._ended is not None

    def put(self, message: Message) -> None:
        """Adds a message; anything behind the end is ignored."""
        with self._changed:
            if self._ended is not None:
                return
            if message["t"] == "ended":
                self._ended = message
            else:
                self._messages.append(message)
                self._drop_oldest_report(message["t"] == "report")
            self._changed.notify_all()

    def take(self, timeout: float) -> list[Message]:
        """What has come since the last call; waits up to `timeout` seconds for something."""
        with self._changed:
            self._changed.wait_for(lambda: self._messages or self._ended, timeout)
            taken, self._messages, self._reports = self._messages, [], 0
            return [*taken, self._ended] if self._ended is not None else taken

    def await_end(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._ended is not None)

    def _drop_oldest_report(self, added: bool) -> None:
        self._reports += added
        if self._reports > REPORTS_KEPT:
            oldest = next(place for place, message in enumerate(self._messages) if message["t"] == "report")
            del self._messages[oldest]
            self._reports -= 1

"""For how long a driver has given no sign of life."""

from __future__ import annotations

import math

#: Seconds of watching without a heartbeat, which comes every 2, after which the driver is said to be silent.
_SILENT_AFTER = 15.0
_BLIND = 10.0  # seconds without a look after which the watch starts over: it was the observer that slept


class Silence:
    """For how long a driver has shown no life to one observer, by that observer's clock alone."""

    def __init__(self) -> None:
        self._beat = (0, 0)  # the epoch and the number of its newest heartbeat
        self._since = self._noted = 0.0

    def note(self, now: float, epoch: int, beat: int) -> None:
        """Takes the heartbeat as just read; one of number 0 was never there, and its driver is not judged."""
        if (epoch, beat) != self._beat or now - self._noted > _BLIND or not beat:
            self._beat, self._since = (epoch, beat), now
        self._noted = now

    @property
    def seconds(self) -> float:
        """15, 30, 60, ...: the last of them that the silence has reached, so that news of it are few; 0 before."""
        silent = self._noted - self._since
        return 0.0 if silent < _SILENT_AFTER else _SILENT_AFTER * 2 ** int(math.log2(silent / _SILENT_AFTER))

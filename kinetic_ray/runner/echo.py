"""Rank 0's words on the driver's own standard output, which is what Ray shows as the log of the job."""

from __future__ import annotations

import codecs
import os
import threading
import time
from collections import deque
from dataclasses import dataclass, field

from kinetic_ray.core.names import JobKeys
from kinetic_ray.errors import StoreError
from kinetic_ray.store import MissingKey, Store

_CHUNK = 1 << 18
#: Between looks at a log: so soon after it has grown, so late while it doesn't.
_SOON, _LATE = 0.1, 1.0
#: How long the end of a job waits for a reader that takes nothing.
_PATIENCE = 5.0


@dataclass
class _Log:
    """One attempt's log, and how far it is told.

    Attributes:
        key: Where it is.
        over: Set when its rank is gone: what it holds then is all of it.
        offset: Bytes told.
        decoder: Of a character that was read in two parts.
    """

    key: str
    over: threading.Event = field(default_factory=threading.Event)
    offset: int = 0
    decoder: codecs.IncrementalDecoder = field(default_factory=codecs.getincrementaldecoder("utf-8")("replace").__class__)


class Echo:
    """Copies logs from the store, in a thread of its own: whoever reads, or doesn't, never holds the driver up."""

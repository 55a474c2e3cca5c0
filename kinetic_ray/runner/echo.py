"""Rank 0's words on the driver's own standard output, which Ray shows as the log of the job."""

from __future__ import annotations

import codecs
import os
import queue
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from kinetic_ray.core.names import JobKeys
from kinetic_ray.errors import StoreError
from kinetic_ray.store import Growing, MissingKey, Store

#: Not the stream: a thread that is stuck in that holds a lock which the interpreter's end needs.
_STDOUT = 1
_CHUNK = 1 << 18
#: What is written at once: a part of a full pipe's room that one can see go.
_PIECE = 1 << 15
#: Between two looks at a log that has just grown, and at most, while it doesn't; longer where looks are paid for.
_SOON, _LATE = 0.1, 1.0


@dataclass(frozen=True, slots=True)
class _Log:
    """The log of one attempt; `over` is set once its rank is gone: what it holds then is all of it."""

    key: str
    over: threading.Event = field(default_factory=threading.Event)


class Echo:
    """Copies logs from the store in a thread of its own, so that no reader, and no lack of one, holds the driver up.

    Ray reads what is written here as UTF-8 text, and fails where it isn't: other bytes are replaced.
    """

    def __init__(self, store: Store, keys: JobKeys, epoch: int, out: int = _STDOUT, *, patience: float = 5.0) -> None:
        """Starts the thread.

        Args:
            store: Where the logs are.
            keys: The job's.
            epoch: The driver's.
            out: The file descriptor to write to.
            patience: Seconds for which the end waits for a reader that takes nothing.
        """
        self._store = store
        self._keys = keys
        self._epoch = epoch
        self._out = out
        self._patience = patience
        self._soon, self._late = max(_SOON, store.pace), max(_LATE, 2 * store.pace)
        self._waiting: queue.SimpleQueue[_Log | str | None] = queue.SimpleQueue()
        self._written = 0
        self._at_line_start = True
        self._thread = threading.Thread(target=self._run, name="kinetic-echo", daemon=True)
        self._thread.start()

    @property
    def is_busy(self) -> bool:
        """Whether something is still to be written, or may come."""
        return self._thread.is_alive()

    @contextmanager
    def attempt(self, number: int) -> Iterator[None]:
        """Within this block rank 0 of the attempt may run; after it, it is gone."""
        log = _Log(self._keys.log(self._epoch, number, 0))
        self._waiting.put(log)
        try:
            yield
        finally:
            log.over.set()

    def say(self, sentence: str) -> None:
        """A word of the driver's own, after all that was echoed so far."""
        self._waiting.put(f"kinetic: {sentence}\n")

    def close(self) -> None:
        """Waits until all is written, or nobody takes any of it; safe to repeat."""
        self._waiting.put(None)
        seen = -1
        while self._thread.is_alive() and seen != self._written:
            seen = self._written
            self._thread.join(self._patience)

    def _run(self) -> None:
        with suppress(OSError):  # nobody reads any more, which is no concern of the job's
            while (item := self._waiting.get()) is not None:
                if isinstance(item, _Log):
                    self._copy(item)
                else:
                    self._write(item)

    def _copy(self, log: _Log) -> None:
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        offset, pause = 0, self._soon
        while True:
            over = log.over.is_set()  # before the look, which then is the last one
            data = self._read(log.key, offset)
            offset += len(data or b"")
            self._write(decoder.decode(data or b""))
            if over and data is not None and len(data) < _CHUNK:
                break
            if data is None or len(data) < _CHUNK:
                pause = self._soon if data else min(2 * pause, self._late)
                time.sleep(pause) if over else log.over.wait(pause)
        self._write(decoder.decode(b"", final=True))
        if not self._at_line_start:
            self._write("\n")

    def _read(self, key: str, offset: int) -> bytes | None:
        """What a log holds from there on; None while the store can't be asked."""
        try:
            return Growing(self._store, key).read(offset, _CHUNK)
        except MissingKey:  # not there yet, or cleaned up
            return b""
        except StoreError:
            return None

    def _write(self, text: str) -> None:
        data = memoryview(text.encode("utf-8", "replace"))
        while data:
            count = os.write(self._out, data[:_PIECE])
            self._written += count
            data = data[count:]
        if text:
            self._at_line_start = text.endswith("\n")

"""Who is told what happens: open connections of drivers and of the broker."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from kinetic_ray import wire

#: A reader that has let this much pile up is taken for dead, and its connection closed.
_BACKLOG = 4 * 2**20


class Hub:
    """Pushes events to streams. Nothing here waits for a reader."""

    def __init__(self) -> None:
        self._streams: set[asyncio.StreamWriter] = set()

    def join(self, stream: asyncio.StreamWriter) -> None:
        """From now on `stream` is told everything that is published."""
        self._streams.add(stream)

    def leave(self, stream: asyncio.StreamWriter) -> None:
        self._streams.discard(stream)

    def publish(self, event: str, **fields: object) -> None:
        """Tells everybody."""
        for stream in tuple(self._streams):
            push(stream, {"event": event, **fields})


def push(stream: asyncio.StreamWriter, message: Mapping[str, Any]) -> None:
    """Sends to one, if it is still there."""
    if stream.is_closing():
        return
    if stream.transport.get_write_buffer_size() > _BACKLOG:
        stream.transport.abort()
    else:
        stream.write(wire.encode(message))

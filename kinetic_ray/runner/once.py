"""What has to be done once before anything else can be."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any


class Once:
    """Done by whoever needs it first; the others wait. What has failed is tried again by the next. In one event loop.

    Example:
        >>> done = []
        >>> async def twice() -> list[int]:
        ...     async def begin() -> None:
        ...         done.append(1)
        ...
        ...     once = Once(begin)
        ...     await asyncio.gather(once.ensure(), once.ensure())
        ...     return done
        >>> asyncio.run(twice())
        [1]
    """

    def __init__(self, begin: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._begin = begin
        self._task: asyncio.Task[None] | None = None

    async def ensure(self) -> None:
        """Returns when it is done.

        Raises:
            Exception: It failed; all that have waited for this try are told.
        """
        task = self._task
        if task is None or (task.done() and (task.cancelled() or task.exception() is not None)):
            task = self._task = asyncio.create_task(self._begin())
        if task.done():
            return
        await asyncio.shield(task)

"""Letting an event loop go round, and waiting in it for something to become true."""

import asyncio
from collections.abc import Callable

PATIENCE = 20.0


async def turn() -> None:
    """Lets the loop go round once."""
    loop = asyncio.get_running_loop()
    over = loop.create_future()
    loop.call_soon(over.set_result, None)
    await over


async def until(condition: Callable[[], bool]) -> None:
    """Returns when the condition holds; fails where it takes too long."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + PATIENCE
    while not condition():
        assert loop.time() < deadline
        await turn()

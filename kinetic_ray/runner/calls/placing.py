"""A gang's place: the groups of its lease, made so that nothing of them stays behind."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from kinetic_ray.runner.queue import Lease
from kinetic_ray.runner.slices import Misplaced, Placement

#: Seconds until granted hosts must have been placed: they are up, and a predecessor's processes need time to go.
PLACED_WITHIN = 120


async def take_place(lease: Lease, make: Callable[[Lease], Placement] = Placement) -> Placement:
    """Asks for the groups of a lease. Who is cancelled meanwhile leaves none.

    Args:
        lease: What was granted.
        make: Asks; blocks.
    """
    making = asyncio.ensure_future(asyncio.to_thread(make, lease))
    try:
        return await asyncio.shield(making)
    except asyncio.CancelledError:  # the thread goes on: groups that nobody knew of would hold their hosts for ever
        with contextlib.suppress(Exception):
            placement = await making
            await asyncio.to_thread(placement.remove)
        raise


async def await_place(placement: Placement) -> tuple[str, ...]:
    """Waits until the groups are held; gives the nodes by rank.

    Raises:
        Misplaced: It takes too long.
    """
    if not await asyncio.to_thread(placement.wait, PLACED_WITHIN):
        raise Misplaced(f"granted, but not placed within {PLACED_WITHIN} s: something else holds those hosts")
    return await asyncio.to_thread(placement.nodes)

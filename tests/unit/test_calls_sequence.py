"""Calls that Ray delivers in another order are served in the one in which they were made."""

import asyncio
import random

from hypothesis import given
from hypothesis import strategies as st

from kinetic_ray.runner.calls.sequence import Sequence


@given(st.permutations(range(6)), st.permutations(range(4)), st.randoms(use_true_random=False))
def test_each_process_is_served_in_its_own_order(first: list[int], second: list[int], dice: random.Random) -> None:
    arrivals = [*(("a", n) for n in first), *(("b", n) for n in second)]
    dice.shuffle(arrivals)

    async def serve() -> list[tuple[str, int]]:
        sequence, turn, served = Sequence(), asyncio.Lock(), []

        async def turned() -> None: ...

        async def one(client: str, number: int) -> None:
            await sequence.enter(client, number, patience=60)
            async with turn:
                served.append((client, number))
                await asyncio.wait({asyncio.ensure_future(turned())})

        await asyncio.gather(*(one(*arrival) for arrival in arrivals))
        return served

    served = asyncio.run(serve())
    assert [n for client, n in served if client == "a"] == [*range(6)]
    assert [n for client, n in served if client == "b"] == [*range(4)]


def test_one_that_never_comes_holds_up_nobody_for_ever() -> None:
    async def enter() -> None:
        sequence = Sequence()
        await asyncio.gather(*(sequence.enter("a", number, patience=0.05) for number in (1, 3, 4, 2)))
        await sequence.enter("a", 5, patience=60)
        await sequence.enter("a", 0, patience=60)  # late, and let through
        await sequence.enter("a", -1, patience=60)

    asyncio.run(asyncio.wait_for(enter(), 30))

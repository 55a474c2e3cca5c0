"""What is done once: by the first, for all; again where it failed."""

import asyncio

import pytest

from kinetic_ray.runner.once import Once
from tests.unit.loops import turn


class Flaky:
    """Fails so many times."""

    def __init__(self, failures: int = 0) -> None:
        self.left = failures
        self.tries = 0

    async def begin(self) -> None:
        self.tries += 1
        await turn()
        if self.left:
            self.left -= 1
            raise ConnectionError("not yet")


def test_all_wait_for_one_try() -> None:
    async def scenario() -> None:
        there = Flaky()
        once = Once(there.begin)
        await asyncio.gather(*(once.ensure() for _ in range(5)))
        await once.ensure()
        assert there.tries == 1

    asyncio.run(scenario())


def test_a_failure_is_told_to_all_that_waited_and_tried_again_by_the_next() -> None:
    async def scenario() -> None:
        there = Flaky(failures=2)
        once = Once(there.begin)
        told = await asyncio.gather(once.ensure(), once.ensure(), return_exceptions=True)
        assert [type(one) for one in told] == [ConnectionError, ConnectionError]
        with pytest.raises(ConnectionError):
            await once.ensure()
        await once.ensure()
        assert there.tries == 3

    asyncio.run(scenario())


def test_who_stops_waiting_stops_nobody_else() -> None:
    async def scenario() -> None:
        there = Flaky()
        once = Once(there.begin)
        impatient = asyncio.create_task(once.ensure())
        patient = asyncio.create_task(once.ensure())
        await turn()
        impatient.cancel()
        await patient
        assert there.tries == 1

    asyncio.run(scenario())

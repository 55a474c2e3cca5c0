"""A broker without Ray: a scaler of the test's own, tickets, and a loop to run a scenario in."""

import asyncio
import queue
import threading
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any

from kinetic_ray.errors import ConfigError
from kinetic_ray.runner.broker import SliceBroker, Table, Times
from kinetic_ray.runner.queue import Slice, Ticket
from kinetic_ray.runner.scaling import Event, NeverFits, Offer

V6E = ("tpu-v6e-16", 4)
PATIENCE = 20.0


class FixedPool:
    """A scaler with a fixed number of slices, all up; events are the test's to send."""

    def __init__(
        self,
        size: int,
        broken: int = 0,
        together: int = 1,
        *,
        shared: bool = False,
        error: Exception | None = None,
    ) -> None:
        """The first `broken` questions fail; none is answered before `together` of them have been asked."""
        self.size = size
        self._shared = shared
        self._together = together
        self._enough = threading.Event()
        self.incarnation = [0] * size
        self.asked: list[tuple[int, tuple[str, ...]]] = []
        self.leased: list[tuple[str, ...]] = []
        self.books: dict[str, Any] = {}
        self.events: queue.SimpleQueue[Event | None] = queue.SimpleQueue()
        self._broken = broken
        self._trouble = error or ConfigError("hosts can't be started: out of processes")

    def let_go(self) -> None:
        """Answers what has been asked."""
        self._enough.set()

    def slice(self, number: int) -> Slice:
        return Slice(f"v6e-{number}", tuple(f"node-{number}.{self.incarnation[number]}.{i}" for i in range(4)))

    def slices(self, kind: tuple[str, int], count: int, exclude: Sequence[str], *, start: bool = True) -> Offer:
        assert kind == V6E
        if not start:
            return self._at_hand(count, exclude)
        self.asked.append((count, tuple(exclude)))
        if len(self.asked) >= self._together:
            self._enough.set()
        self._enough.wait(PATIENCE)
        if self._broken:
            self._broken -= 1
            raise self._trouble
        self.check(kind, count)
        free = [self.slice(n) for n in range(self.size) if f"v6e-{n}" not in exclude][:count]
        return Offer(tuple(free)) if len(free) == count else Offer(tuple(free), "all slices are busy", self._shared)

    def _at_hand(self, count: int, exclude: Sequence[str]) -> Offer:
        free = [self.slice(n) for n in range(self.size) if f"v6e-{n}" not in exclude][:count]
        return Offer(tuple(free), shared=self._shared and len(free) < count)

    def check(self, kind: tuple[str, int], count: int) -> None:
        if count > self.size:
            raise NeverFits(f"there are {self.size} slices of tpu-v6e-16, {count} were asked for")

    def leases(self, names: Sequence[str], books: Mapping[str, Any]) -> None:
        self.leased.append(tuple(names))
        self.books = dict(books)

    def follow(self, tell: Callable[[Event], None]) -> None:
        while (event := self.events.get()) is not None:
            tell(event)


def tpu(job_id: str, slices: int = 1, epoch: int = 1, **more: Any) -> dict[str, Any]:
    return Ticket(job_id, epoch, V6E[0], chips_per_host=4, slices=slices, **more).to_dict()


def cpu(job_id: str, cpus: float = 1.0, **more: Any) -> dict[str, Any]:
    return Ticket(job_id, 1, "cpu", hosts=1, cpus=cpus, **more).to_dict()


def run(
    pool: FixedPool,
    scenario: Callable[[SliceBroker], Coroutine[Any, Any, None]],
    table: Table | None = None,
    times: Times | None = None,
    *,
    restarted: bool = False,
    capacity: Callable[[], tuple[float, int]] = lambda: (2.0, 1 << 30),
) -> None:
    async def main() -> None:
        broker = SliceBroker(pool, capacity, table, times, restarted=restarted)
        await asyncio.wait_for(scenario(broker), PATIENCE)

    try:
        asyncio.run(main())
    finally:
        pool.events.put(None)


async def until(waiting: Callable[[], Awaitable[dict[str, Any]]], state: str) -> dict[str, Any]:
    """Polls an acquire as a driver does, until it is answered with a state."""
    while (answer := await waiting())["state"] != state:
        assert answer["state"] == "waiting"
    return answer


async def granted(broker: SliceBroker, ticket: dict[str, Any]) -> dict[str, Any]:
    """The grant of what is free; the first answer may be another where the machine is busy."""
    return await until(lambda: broker.acquire(ticket), "granted")


async def until_told(broker: SliceBroker, ticket: dict[str, Any], words: str) -> str:
    """Polls an acquire until its reason for waiting has some words in it; gives the whole."""
    reason = ""
    while words not in reason:
        reason = (await broker.acquire(ticket, reason, 5.0))["reason"]
    return reason


async def reason_of(broker: SliceBroker, job_id: str) -> str:
    """Why one waits; "" if it doesn't."""
    waiting = {one["holder"]: one["reason"] for one in (await broker.snapshot())["queue"]}
    return str(waiting.get(job_id, ""))


def names(answer: dict[str, Any]) -> list[str]:
    assert answer["state"] == "granted", answer
    return [one["name"] for one in answer["slices"]]

"""Hosts that serve calls, without Ray: each CallHost is a host, all in this process."""

import hashlib
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from kinetic_ray.runner.calls.courier import Source
from kinetic_ray.runner.calls.heads import call_head
from kinetic_ray.runner.calls.host import CallHost
from kinetic_ray.runner.calls.packing import Packed, opened, pack_arguments, pack_function
from kinetic_ray.runner.calls.wish import Order, Wish
from kinetic_ray.runner.task import Limits, RankTask


def by_name(_module: str) -> bool:
    return False


class Hosts:
    """Some hosts, and one gang after another on them."""

    def __init__(self, count: int = 1, chips: int = 0) -> None:
        self.forwarded: list[tuple[Order, Packed]] = []
        self.lines: list[tuple[str, int, str]] = []
        self.named: list[tuple[str, str]] = []  # the same, by the call that printed them
        self.changed = threading.Condition()
        self.agents = [CallHost(say=self._hear, forward=self._forward) for _ in range(count)]
        self.chips = chips
        self.wish = Wish(runtime="jax" if chips else "plain", hosts=count, chips_per_host=chips)
        self.gang, self.client = "call-1", "client-1"
        self.pool = ThreadPoolExecutor(16)

    def open(self, archive: bytes | None = None, **changes: Any) -> list[dict[str, Any]]:
        """Opens a gang on all hosts; `changes` are the wish's."""
        if changes:
            self.wish = Wish.from_dict({**self.wish.to_dict(), **changes})
        many = len(self.agents) > 1
        coordinator = f"127.0.0.1:{self.agents[0].free_port()}" if many else ""
        seats = [
            {
                "gang": self.gang,
                "client": self.client,
                "wish": self.wish.to_dict(),
                "task": RankTask(
                    store_url="",
                    job_id=self.gang,
                    epoch=1,
                    attempt=1,
                    rank=rank,
                    world_size=len(self.agents),
                    payload=None,
                    runtime=self.wish.runtime,
                    chips=self.chips,
                    simulated=True,
                    coordinator=coordinator,
                    limits=Limits(initialize=60, barrier=60),
                ).to_dict(),
            }
            for rank in range(len(self.agents))
        ]
        return list(self.pool.map(lambda pair: pair[0].open(pair[1], archive), zip(self.agents, seats, strict=True)))

    def head(self, function: Any, **order: Any) -> bytes:
        order = {"wish": self.wish, "function": function, "name": function, "client": self.client, **order}
        return call_head(gang=self.gang, client=self.client, order=Order(**order), keeps=True)

    def teach(self, function: Any) -> str:
        packed, _ = pack_function(function, lambda name: name == "__main__")
        digest = hashlib.sha256(packed.data).hexdigest()
        for agent in self.agents:
            agent.learn(digest, packed)
        return digest

    def start(self, function: Any, *args: Any, **order: Any) -> list[Any]:
        """Calls on all hosts at once; gives futures by rank."""
        name = getattr(function, "__name__", str(function))
        head = self.head(self.teach(function), **{"name": name, **order})
        packed = pack_arguments(args, {}, by_name)
        return [self.pool.submit(agent.call, head, packed) for agent in self.agents]

    def run(self, function: Any, *args: Any, **order: Any) -> Any:
        """The value of a call; of several hosts the list by rank."""
        values = [opened(future.result(90)) for future in self.start(function, *args, **order)]
        return values[0] if len(values) == 1 else values

    def method(self, actor: str, method: str, *args: Any, **order: Any) -> Any:
        head = self.head("", kind="method", actor=actor, method=method, name=f"Counter.{method}", **order)
        return opened(self.agents[0].call(head, pack_arguments(args, {}, by_name).light()))

    def texts(self) -> list[str]:
        return [text for _, _, text in self.lines]

    def stop(self) -> None:
        for agent in self.agents:
            agent.stop()
        self.pool.shutdown()

    def _hear(self, source: Source, lines: Sequence[str]) -> None:
        with self.changed:
            self.lines += [(source.client, source.rank, line) for line in lines]
            self.named += [(source.name, line) for line in lines]
            self.changed.notify_all()

    def _forward(self, order: bytes, packed: Packed) -> str:
        self.forwarded.append((Order.from_bytes(order), packed))
        return "forwarded"

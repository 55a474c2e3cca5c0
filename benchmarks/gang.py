"""Gangs of JAX processes on the hosts of a simulated slice: ours by host agents, others as one would write them.

Runs inside the embedded cluster, in a driver that has attached to its Ray.
"""

import os
import pickle
import socket
import time
from collections.abc import Callable, Sequence
from typing import Any

import ray

from benchmarks.all_reduce import first_all_reduce
from kinetic_ray.core.names import JobKeys, make_id
from kinetic_ray.core.outcome import Outcome
from kinetic_ray.core.spec import JobSpec
from kinetic_ray.journal import JobJournal
from kinetic_ray.payload import dump_call
from kinetic_ray.payload.versions import fingerprint
from kinetic_ray.runner.agent import HostAgent
from kinetic_ray.runner.broker import find_broker
from kinetic_ray.runner.queue import Ticket
from kinetic_ray.runner.scaling import supervisor_socket
from kinetic_ray.runner.task import HostPlan, RankTask
from kinetic_ray.store import open_store

HOSTS, CHIPS, ACCELERATOR = 4, 4, "tpu-v6e-16"
DEADLINE = 120.0  # for anything that a gang is asked to do


class GangFailed(RuntimeError):
    """A clean gang that did not end well."""


def attach() -> None:
    """Joins the embedded cluster that has started this process."""
    address = os.environ["KINETIC_RAY_ADDRESS"]
    ray.init(address=address, namespace="kinetic", log_to_driver=False, logging_level="warning")


class Slice:
    """A slice that the broker has granted to this benchmark."""

    def __init__(self) -> None:
        self.job_id = make_id("job", time.time_ns() // 1_000_000, os.urandom(10))
        self._broker = find_broker(supervisor_socket())
        ticket = Ticket(self.job_id, 1, ACCELERATOR, CHIPS, slices=1)
        answer: dict[str, Any] = {"state": "waiting"}
        while answer["state"] == "waiting":
            answer = ray.get(self._broker.acquire.remote(ticket.to_dict(), patience=10.0))
        if answer["state"] != "granted":
            raise GangFailed(f"the broker said {answer}")
        self.name = answer["slices"][0]["name"]

    def actors(self, kind: Any) -> list[Any]:
        """One actor per host by worker id. They take no chips, so that contenders can stand beside each other."""
        places = [{"ray.io/tpu-slice-name": self.name, "ray.io/tpu-worker-id": str(i)} for i in range(HOSTS)]
        made = ray.remote(kind)
        return [made.options(num_cpus=0, label_selector=place, max_concurrency=8).remote() for place in places]

    def release(self) -> None:
        """Gives the slice back."""
        ray.get(self._broker.release.remote(self.job_id, 1))


class AgentGang:
    """Host agents on a slice, as a driver of kinetic_ray has them, and one attempt after another on them."""

    def __init__(self, place: Slice, store_url: str) -> None:
        self._store = open_store(store_url)
        self._place = place
        self._job_id = make_id("job", time.time_ns() // 1_000_000, os.urandom(10))
        self._payload = self._store.put_blob(dump_call(first_all_reduce, (), {}))
        spec = JobSpec(self._job_id, "first_all_reduce", time.time(), ACCELERATOR, self._payload, fingerprint())
        JobJournal(self._store, self._job_id).create(spec, {})  # of a job that isn't there nothing is kept
        self._attempt = 0
        self._agents = place.actors(HostAgent)
        plan = HostPlan("jax", CHIPS, simulated=True).to_dict()
        self._each(lambda agent: agent.prepare.remote(plan))

    def run(self) -> float:
        """Starts all ranks, waits for the clean end of all; gives the time at which the last one had the sum.

        Raises:
            GangFailed: A rank ended without a value.
        """
        self._attempt += 1
        coordinator = f"127.0.0.1:{self._get([self._agents[0].free_port.remote()])[0]}"
        self._get([agent.start.remote(self._task(rank, coordinator)) for rank, agent in enumerate(self._agents)])
        outcomes = self._outcomes()
        if bad := [outcome for outcome in outcomes if not outcome.ok]:
            self._each(lambda agent: agent.fence.remote(self._attempt))
            raise GangFailed("; ".join(f"rank {o.rank}, {o.phase}: {o.message}\n{o.log_tail}" for o in bad))
        return max(self._value(rank) for rank in range(HOSTS))

    def stop(self) -> None:
        """Ends the agents and all below them."""
        self._each(lambda agent: agent.stop.remote())
        for agent in self._agents:
            ray.kill(agent)

    def _outcomes(self) -> list[Outcome]:
        """Listens to all agents until each has told the end of its rank."""
        asked = {agent.next.remote(self._attempt, 30.0): rank for rank, agent in enumerate(self._agents)}
        found: dict[int, Outcome] = {}
        while asked:
            told, _ = ray.wait(list(asked), timeout=DEADLINE)
            if not told:
                raise GangFailed(f"ranks {sorted(asked.values())} were silent for {DEADLINE:g} s")
            rank = asked.pop(told[0])
            ends = [message for message in ray.get(told[0]) if message["t"] == "ended"]
            if ends:
                found[rank] = Outcome.from_dict(ends[0]["outcome"])
            else:
                asked[self._agents[rank].next.remote(self._attempt, 30.0)] = rank
        return [found[rank] for rank in range(HOSTS)]

    def _value(self, rank: int) -> float:
        return float(pickle.loads(self._store.get(JobKeys(self._job_id).value(1, self._attempt, rank))))

    def _task(self, rank: int, coordinator: str) -> dict[str, Any]:
        return RankTask(
            store_url=self._store.url,
            job_id=self._job_id,
            epoch=1,
            attempt=self._attempt,
            rank=rank,
            world_size=HOSTS,
            payload=self._payload,
            runtime="jax",
            chips=CHIPS,
            simulated=True,
            slice_name=self._place.name,
            coordinator=coordinator,
        ).to_dict()

    def _each(self, ask: Callable[[Any], Any]) -> list[Any]:
        return self._get([ask(agent) for agent in self._agents])

    def _get(self, refs: Sequence[Any]) -> list[Any]:
        return list(ray.get(list(refs), timeout=DEADLINE))


class RawRank:
    """What one would write without kinetic_ray: an actor that is one rank of a JAX program."""

    def free_port(self) -> int:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            return int(probe.getsockname()[1])

    def run(self, coordinator: str, rank: int) -> float:
        simulate_devices()
        import jax

        jax.distributed.initialize(coordinator, HOSTS, rank)
        seconds = first_all_reduce()
        jax.distributed.shutdown()
        return seconds


def simulate_devices() -> None:
    """Gives JAX in this process as many CPU devices as the host has chips."""
    os.environ.update(JAX_PLATFORMS="cpu", XLA_FLAGS=f"--xla_force_host_platform_device_count={CHIPS}")


def raw_gang(place: Slice) -> float:
    """Four new actors, one JAX program; gives the time at which the last one had the sum."""
    actors = place.actors(RawRank)
    try:
        coordinator = f"127.0.0.1:{ray.get(actors[0].free_port.remote(), timeout=DEADLINE)}"
        sums = ray.get([actor.run.remote(coordinator, i) for i, actor in enumerate(actors)], timeout=DEADLINE)
        return float(max(sums))
    finally:
        for actor in actors:
            ray.kill(actor)

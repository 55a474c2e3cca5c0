"""Gangs of host agents without Ray: each agent is a host, all in this process."""

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kinetic_ray import payload
from kinetic_ray.core.names import JobKeys, make_id
from kinetic_ray.core.outcome import Blob, Outcome
from kinetic_ray.core.spec import Fingerprint, JobSpec
from kinetic_ray.journal import JobJournal
from kinetic_ray.runner.agent import HostAgent
from kinetic_ray.runner.task import HostPlan, Limits, RankTask
from kinetic_ray.store import Store

JOB_ID = make_id("job", 1, bytes(10))
DEADLINE = 90.0
_SPEC = JobSpec(JOB_ID, "f", 0.0, "cpu", Blob("0" * 64, 0), Fingerprint("3.11.9", "2.60.0", "3.1.0", "0.1.0"))


class Gang:
    """Some hosts, and one attempt after another on them."""

    def __init__(self, store: Store, hosts: int = 1, chips: int = 0, **plan: Any) -> None:
        self.store = store
        JobJournal(store, JOB_ID).create(_SPEC, {})  # nothing is kept of a job that isn't there
        self.agents = [HostAgent() for _ in range(hosts)]
        self.plan = HostPlan("jax" if chips else "plain", chips, True, plan.pop("env_vars", {}))
        self.attempt = 0
        self.coordinator = ""
        for agent in self.agents:
            agent.prepare(self.plan.to_dict())

    def start(self, function: Callable[..., Any], *args: Any, ranks: list[int] | None = None, **task: Any) -> list[int]:
        """Starts an attempt on all hosts (or only some ranks of it) and gives the children's pids."""
        self.attempt += 1
        port = self.agents[0].free_port()
        self.coordinator = f"127.0.0.1:{port}" if len(self.agents) > 1 else ""
        self.call = task.pop("payload", None) or self.store.put_blob(payload.dump_call(function, args, {}))
        self.options = task
        return self.start_ranks(range(len(self.agents)) if ranks is None else ranks)

    def start_ranks(self, ranks: Any) -> list[int]:
        return [self.agents[rank].start(self.task(rank))["pid"] for rank in ranks]

    def task(self, rank: int) -> dict[str, Any]:
        return RankTask(
            store_url=self.store.url,
            job_id=JOB_ID,
            epoch=1,
            attempt=self.attempt,
            rank=rank,
            world_size=len(self.agents),
            payload=self.call,
            runtime=self.plan.runtime,
            chips=self.plan.chips,
            simulated=True,
            coordinator=self.coordinator,
            **{"limits": Limits(initialize=60, barrier=60), **self.options},
        ).to_dict()

    def messages(self, rank: int) -> list[dict[str, Any]]:
        """All messages of a rank up to its end."""
        found: list[dict[str, Any]] = []
        while not found or found[-1]["t"] != "ended":
            more = self.agents[rank].next(self.attempt, DEADLINE)
            assert more, f"rank {rank} was silent for {DEADLINE} s; its log:\n{self.log(rank)}"
            found += more
        return found

    def outcomes(self) -> list[Outcome]:
        return [Outcome.from_dict(self.messages(rank)[-1]["outcome"]) for rank in range(len(self.agents))]

    def outcome(self) -> Outcome:
        return self.outcomes()[0]

    def run(self, function: Callable[..., Any], *args: Any, **task: Any) -> list[Any]:
        """The values of a new attempt by rank."""
        self.start(function, *args, **task)
        outcomes = self.outcomes()
        assert [o.message + o.log_tail for o in outcomes if not o.ok] == []
        return [self.value(rank) for rank in range(len(outcomes))]

    def value(self, rank: int) -> Any:
        return pickle.loads(self.store.get(JobKeys(JOB_ID).value(1, self.attempt, rank)))

    def error(self, rank: int = 0) -> BaseException:
        """The stored exception."""
        found: BaseException = pickle.loads(self.store.get(JobKeys(JOB_ID).error(1, self.attempt, rank)))
        return found

    def log(self, rank: int = 0) -> str:
        return self.store.get(JobKeys(JOB_ID).log(1, self.attempt, rank)).decode()

    def fence(self) -> None:
        for agent in self.agents:
            agent.fence(self.attempt)

    def stop(self) -> None:
        for agent in self.agents:
            agent.stop()


def alive(pid: int) -> bool:
    """Whether a process runs (a zombie doesn't)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except FileNotFoundError:
        return False

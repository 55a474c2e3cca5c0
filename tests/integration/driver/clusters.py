"""An embedded cluster for the driver's tests, and jobs made by hand: records in a store, no client in between."""

import os
import pickle
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from kinetic_ray import payload
from kinetic_ray.backends.local import backend as local
from kinetic_ray.core.names import make_id
from kinetic_ray.core.records import load_record
from kinetic_ray.core.spec import JobSpec
from kinetic_ray.core.state import Event, EventKind, JobState, RankPhase
from kinetic_ray.journal import JobJournal, list_entries, new_env_id
from kinetic_ray.payload.versions import fingerprint
from kinetic_ray.store import Store
from tests.waiting import wait_until

V6E = "tpu-v6e-16"
DEADLINE = 120.0


@dataclass(frozen=True)
class Job:
    """One submitted job."""

    cluster: "Cluster"
    journal: JobJournal

    @property
    def job_id(self) -> str:
        return self.journal.job_id

    def wait(self) -> JobState:
        """Its state once it has ended."""
        return self.wait_until(lambda state: state.is_terminal, "its end")

    def wait_until(self, predicate: Callable[[JobState], bool], what: str) -> JobState:
        def look() -> JobState | None:
            state = self.journal.state()
            if state.is_terminal and not predicate(state):
                raise AssertionError(f"{self.job_id} ended before {what}: {state}\n{self.logs()}")
            return state if predicate(state) else None

        return wait_until(look, DEADLINE, f"{self.job_id}: {what}") or self.journal.state()

    def wait_until_it_calls(self) -> None:
        """Until every rank runs the function."""
        self.wait_until(lambda s: bool(s.ranks) and all(r.phase == RankPhase.CALL for r in s.ranks), "the call")

    def value(self, rank: int = 0) -> Any:
        state = self.wait()
        assert state.status == "SUCCEEDED", f"{state}\n{self.logs()}"
        return pickle.loads(self.journal.store.get(self.journal.keys.value(state.epoch, state.attempt, rank)))

    def events(self, kind: EventKind, epoch: int | None = None) -> list[Event]:
        logs = [log for log in self.journal.epochs() if epoch in (None, log.epoch)]
        return [event for log in logs for event in log.events if event.kind is kind]

    def index(self) -> list[str]:
        return [entry.state for entry in list_entries(self.journal.store) if entry.job_id == self.job_id]

    def driver_pid(self, epoch: int = 1) -> int:
        key = self.journal.keys.claim(epoch)
        wait_until(lambda: self.journal.store.exists(key), DEADLINE, "the driver")
        return int(load_record("claim", self.journal.store.get(key))["pid"])

    def cancel(self) -> None:
        self.journal.request_cancel({"by": "the test"})
        self.cluster.backend.cancel(self.journal.store.url, self.job_id)

    def logs(self) -> str:
        """All ranks' logs, for a test's failure."""
        store = self.journal.store
        return "\n".join(f"{key}:\n{store.get(key).decode()}" for key in store.walk(self.journal.keys.logs))


@dataclass(frozen=True)
class Cluster:
    """A running embedded cluster."""

    home: Path
    store: Store

    @property
    def backend(self) -> local.LocalBackend:
        return local.LocalBackend(self.home)

    def record(self, function: Callable[..., Any], *args: Any, env: dict[str, str] | None = None, **spec: Any) -> Job:
        """A job that is recorded, and not submitted yet."""
        now = time.time()
        made = JobSpec(
            job_id=make_id("job", int(now * 1000), os.urandom(10)),
            func_name=function.__name__,
            created_at=now,
            payload=spec.pop("payload", None) or self.store.put_blob(payload.dump_call(function, args)),
            client=spec.pop("client", None) or fingerprint(),
            env_names=tuple(env or ()),
            env_id=new_env_id() if env else None,
            **{"accelerator": "cpu", "cpus": 0.5, **spec},
        )
        journal = JobJournal(self.store, made.job_id)
        journal.create(made, env or {})
        return Job(self, journal)

    def submit(self, function: Callable[..., Any], *args: Any, **spec: Any) -> Job:
        job = self.record(function, *args, **spec)
        self.backend.submit(self.store.url, job.job_id)
        return job

    def slice(self, **spec: Any) -> dict[str, Any]:
        """Spec fields of a JAX job on the slice."""
        return {"accelerator": V6E, "runtime": "jax", **spec}

    def hosts(self) -> list[dict[str, Any]]:
        """The slice's hosts, by worker id."""
        found = local.status(self.home)
        assert found is not None
        (only,) = [one for one in found["slices"] if one["state"] == "up"]
        return sorted(only["hosts"], key=lambda host: int(host["worker_id"]))

    def agent_pid(self, job: Job) -> int:
        """The process of the one host agent of the job that runs."""
        found = [p.pid for p in psutil.process_iter() if self._is_agent(p)]
        assert len(found) == 1, f"{job.job_id} has one host, but there are agents {found}"
        return found[0]

    def _is_agent(self, process: psutil.Process) -> bool:
        try:
            mine = process.environ().get("KINETIC_HOME") == str(self.home)
            title = " ".join(process.cmdline())  # such as "ray::stay on host 0, attempt 1: next"
            return mine and title.startswith("ray::") and " on host " in title and alive(process.pid)
        except psutil.Error:
            return False

    @contextmanager
    def drive(self, *argv: str) -> "Iterator[subprocess.Popen[str]]":
        """A driver started by hand, as the supervisor would start it; it doesn't outlive the block."""
        found, ray = local.status(self.home), local.environment(self.home)
        assert found is not None
        assert ray is not None
        env = {**os.environ, **ray, "KINETIC_SUPERVISOR": found["socket"], "KINETIC_RAY_ADDRESS": ray["RAY_ADDRESS"]}
        env |= {"RAY_USAGE_STATS_ENABLED": "0", "KINETIC_SIMULATED": "1"}
        command = [sys.executable, "-m", "kinetic_ray.runner", *argv]
        pipe = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        with subprocess.Popen(command, env=env, text=True, **pipe) as driver:
            try:
                yield driver
            finally:
                driver.kill()


def alive(pid: int) -> bool:
    """Whether a process runs (a zombie doesn't)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except FileNotFoundError:
        return False


def pids_of(folder: Path, ranks: int) -> list[int]:
    """The pids that the ranks have told, of their children too."""
    files = [folder / str(rank) for rank in range(ranks)]
    wait_until(lambda: all(file.exists() for file in files), DEADLINE, "every rank's pid")
    return [int(word) for file in files for word in file.read_text().split()]


def wait_until_dead(pids: list[int]) -> None:
    wait_until(lambda: not any(map(alive, pids)), DEADLINE, f"the end of {pids}")

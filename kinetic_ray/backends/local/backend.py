"""The embedded backend: jobs are handed to a supervisor on this machine, which is started when there is none."""

from __future__ import annotations

import builtins
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from kinetic_ray.backends.base import Entrance, Liveness, Need, Observation
from kinetic_ray.backends.local import client, env, pool
from kinetic_ray.backends.local.need import check_need
from kinetic_ray.backends.local.paths import runtime_of
from kinetic_ray.backends.local.siblings import answers_of_others
from kinetic_ray.config import Target
from kinetic_ray.vault import Vault

_DRIVEN = frozenset(state for state in Liveness if state.is_driven)


class LocalBackend:
    """Ray on this machine, with simulated TPU slices."""

    def __init__(self, home: Path, slices: str | None = None) -> None:
        """Does nothing yet.

        Args:
            home: The folder of state.
            slices: The pool that the cluster pretends to have, as JSON; None = as KINETIC_LOCAL_SLICES says.
        """
        self._home = home
        self._slices = slices

    @classmethod
    def of_target(cls, target: Target) -> LocalBackend:
        """The backend of a target."""
        return cls(Path(target.home), target.local_slices)

    def check(self, need: Need) -> None:
        """Refuses what can never run here, and settings that can't work; starts nothing."""
        client.check_settings(self._home, self._slices)
        Vault.of(self._home).check(need.secrets)
        wish = asdict(need)
        if client.ask(self._home, {"op": "check", **wish}) is None:
            check_need(pool.Limits(pool.parse_pool(self._slices or env.local_slices())), wish)

    def submit(self, store_url: str, job_id: str) -> None:
        """Hands the job to the supervisor."""
        runtime = client.ensure(self._home, self._slices)
        client.tell(runtime, {"op": "submit", "store": store_url, "job_id": job_id})

    def observe(self, store_url: str, job_id: str) -> Observation:
        """What the supervisor knows of the job, or that of another environment, which may share the store."""
        question = {"op": "observe", "store": store_url, "job_id": job_id}
        answer = client.ask(self._home, question, client.OBSERVE_S)
        if answer is None:
            seen = Observation(Liveness.DOWN, "no embedded cluster runs")
        else:
            seen = Observation(Liveness(answer["state"]), answer.get("message", ""))
        if seen.state in (Liveness.DOWN, Liveness.UNKNOWN):
            for other in answers_of_others(runtime_of(self._home), question):
                if other.get("state") in _DRIVEN:
                    return Observation(Liveness(other["state"]), other.get("message", ""))
        return seen

    def cancel(self, store_url: str, job_id: str) -> None:
        """Has the supervisor stop the job."""
        client.ask(self._home, {"op": "cancel", "store": store_url, "job_id": job_id})

    def list(self) -> Mapping[str, Liveness]:
        """The jobs that the supervisor works on."""
        answer = client.ask(self._home, {"op": "status"})
        jobs = answer["jobs"] if answer else ()
        found = {job["job_id"]: Liveness(job["state"]) for job in jobs}
        return {job_id: state for job_id, state in found.items() if state.is_driven}

    def join(self, *, start: bool = True) -> Entrance | None:
        """The way into the cluster; without `start` None where none lives."""
        runtime = client.ensure(self._home, self._slices) if start else runtime_of(self._home)
        found = environment(self._home)
        if found is None and start:  # it was just stopping
            runtime = client.ensure(self._home, self._slices)
            found = environment(self._home)
        return None if found is None else Entrance(found["RAY_ADDRESS"], str(runtime.sock), found)

    def dashboard_url(self) -> str | None:
        """Ray's dashboard of the embedded cluster; it asks for the token that `environment` tells of."""
        answer = client.ask(self._home, {"op": "status"})
        return answer["dashboard_url"] if answer else None


def status(home: Path) -> dict[str, Any] | None:
    """Everything that the supervisor tells of itself; None when none lives."""
    return client.ask(home, {"op": "status"})


def environment(home: Path) -> dict[str, str] | None:
    """What the `ray` command needs in its environment to speak to the embedded cluster; None when none lives."""
    answer = client.ask(home, {"op": "env"}, None)
    return dict(answer["env"]) if answer else None


def stop(home: Path, *, force: bool = False) -> bool:
    """Stops the embedded cluster, with everything that it started; False when none lives.

    Raises:
        UsageError: Jobs have not ended, and `force` was not given.
    """
    return client.stop(home, force)


def start(home: Path) -> builtins.dict[str, Any]:
    """Starts the embedded cluster where none lives, and tells what :func:`status` does."""
    runtime = client.ensure(home)
    return client.tell(runtime, {"op": "status"})

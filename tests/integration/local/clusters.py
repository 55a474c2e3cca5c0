"""What the tests of the embedded cluster share: asking it, looking at its processes and nodes."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil

from kinetic_ray import wire
from kinetic_ray.backends.local import backend, client, leftovers
from kinetic_ray.backends.local.paths import Runtime, runtime_of
from kinetic_ray.backends.local.rest import TERMINAL, JobsApi
from tests.waiting import wait_until

START_S = 120.0
_ANSWER = "answer: "


def start(home: Path) -> Runtime:
    """Starts the embedded cluster of a home and waits until its head is up."""
    runtime = client.ensure(home)
    backend.environment(home)  # waits for the head
    return runtime


def slices(runtime: Runtime, name: str, count: int = 1, leased: tuple[str, ...] = ()) -> dict[str, Any]:
    """Asks for slices as the broker does."""
    request = {"op": "slices", "accelerator": name, "chips_per_host": 0, "count": count, "exclude": leased}
    return wire.call(runtime.sock, request, START_S)


def numbers_in(folder: Path, ranks: int) -> list[int]:
    """What each rank has written into a file of its own, which has the rank's name as soon as it is whole."""
    files = [folder / str(rank) for rank in range(ranks)]
    wait_until(lambda: all(file.exists() for file in files), 200, "every rank's number")
    return [int(file.read_text()) for file in files]


def processes(runtime: Runtime) -> list[psutil.Process]:
    """All living processes of a cluster, its supervisor first."""
    try:
        supervisor = [json.loads(runtime.info.read_text())["pid"]]
    except (OSError, ValueError):
        supervisor = []
    found = []
    for pid in [*supervisor, *leftovers.members(runtime)]:
        try:
            found.append(psutil.Process(pid))
        except psutil.NoSuchProcess:
            continue  # it ended while we looked
    return found


def api_of(home: Path) -> JobsApi:
    """The cluster's Jobs API, with the token that its file holds."""
    status = backend.status(home)
    assert status is not None
    token = runtime_of(home).token.read_text()
    return JobsApi(status["dashboard_url"].removeprefix("http://"), token)


def run_job(home: Path, entrypoint: str, job_id: str = "raw-1") -> str:
    """Runs a command as a Ray job; its status at the end."""
    api = api_of(home)
    api.submit(entrypoint, job_id)

    def ended() -> str:
        job = api.job(job_id)
        assert job is not None
        return job["status"] if job["status"] in TERMINAL else ""

    return wait_until(ended, 60, f"the job {job_id} to end")


def ask_ray(home: Path, expression: str) -> Any:
    """Evaluates an expression of `ray` in a process of its own that is connected to the cluster."""
    environment = backend.environment(home)
    assert environment is not None
    script = (
        "import json, os, ray\n"
        "ray.init(address=os.environ['RAY_ADDRESS'], namespace='kinetic', log_to_driver=False, logging_level='error')\n"
        f"print('{_ANSWER}' + json.dumps({expression}))\n"
    )
    kept = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    words = [sys.executable, "-c", script]
    done = subprocess.run(words, env={**kept, **environment}, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-3000:]
    (answer,) = (line for line in done.stdout.splitlines() if line.startswith(_ANSWER))  # Ray talks there too
    return json.loads(answer.removeprefix(_ANSWER))

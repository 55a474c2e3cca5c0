"""A job that was submitted elsewhere: how long until a process knows its status, and has its result."""

import itertools
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import kinetic_ray as kinetic
from benchmarks.cluster import jobs_client
from benchmarks.harness import Aim, Contender, Limit, interleave, table, timed
from benchmarks.programs import run_python

ATTACH, ENDED, RUNNING = "kinetic", "kinetic, a job that has ended", "kinetic, a job that runs"
RAY, SUBMITIT = "JobSubmissionClient", "submitit"
AIM = 0.1  # seconds, of status()
_LOOK_AGAIN = 0.02
_SCRIPTS = {
    ATTACH: """
import sys
import kinetic_ray as kinetic
job = kinetic.attach(sys.argv[2])
print(job.status() if sys.argv[1] == "status" else job.result())
""",
    RAY: """
import os, sys
from ray.job_submission import JobSubmissionClient
client = JobSubmissionClient(os.environ["RAY_API_SERVER_ADDRESS"])
print(client.get_job_status(sys.argv[2]) if sys.argv[1] == "status" else client.get_job_logs(sys.argv[2]))
""",
    SUBMITIT: """
import sys
from submitit.local.local import LocalJob
folder, _, name = sys.argv[2].rpartition("/")
job = LocalJob(folder=folder, job_id=name)
print(job.state if sys.argv[1] == "status" else job.result())
""",
}


@kinetic.remote
def no_op() -> int:
    """Does nothing."""
    return 1


@kinetic.remote
def wait_for(path: str) -> None:
    """Runs until there is such a file."""
    while not Path(path).exists():
        time.sleep(_LOOK_AGAIN)


def run(rounds: int) -> str:
    """Compares attaching from a new process, and `status()` in one that is there, with submitit and Ray's Job API."""
    with tempfile.TemporaryDirectory(prefix="krh", dir="/tmp") as folder:
        ended = {ATTACH: _ended_job(), RAY: _ended_raw_job()}
        if find_spec("submitit"):
            ended[SUBMITIT] = _ended_submitit(Path(folder))
        tables = [_attached(ended, "status", rounds), _attached(ended, "result", rounds)]
        tables.append(_statuses(ended, Path(folder) / "end", 10 * rounds))
    return "\n\n".join(tables)


def _attached(ended: dict[str, str], what: str, rounds: int) -> str:
    contenders = [
        Contender(name, timed(partial(run_python, "-c", _SCRIPTS[name], what, job))) for name, job in ended.items()
    ]
    aims = [Aim(ATTACH, name, 1.0) for name in ended if name != ATTACH]
    of = " (Ray's: its log)" if what == "result" else ""
    return table(f"a new process to the {what} of a job that has ended{of}", interleave(contenders, rounds), aims)


def _statuses(ended: dict[str, str], end: Path, rounds: int) -> str:
    """In a process that has everything imported; each look is by a new handle."""
    running = wait_for.run_async(str(end))
    _until(lambda: running.status() == kinetic.JobStatus.RUNNING)
    client = jobs_client()
    contenders = [
        Contender(ENDED, timed(lambda: kinetic.attach(ended[ATTACH]).status())),
        Contender(RUNNING, timed(lambda: kinetic.attach(running.job_id).status())),
        Contender(RAY, timed(lambda: client.get_job_status(ended[RAY]))),
    ]
    try:
        samples = interleave(contenders, rounds)
    finally:
        end.touch()
        running.wait()
    return table("attach and status() where all is imported", samples, [Limit(ENDED, AIM), Limit(RUNNING, AIM)])


def _ended_job() -> str:
    job = no_op.run_async()
    job.result()
    return job.job_id


def _ended_raw_job() -> str:
    client = jobs_client()
    job_id = client.submit_job(entrypoint=f"{sys.executable} -c 'print(1)'")
    _until(lambda: client.get_job_status(job_id).is_terminal())
    return str(job_id)


def _ended_submitit(folder: Path) -> str:
    import submitit

    job: Any = submitit.LocalExecutor(folder=folder / "submitit").submit(abs, -1)
    job.result()
    return f"{folder}/submitit/{job.job_id}"


def _until(holds: Callable[[], bool], seconds: float = 120.0) -> None:
    deadline = time.monotonic() + seconds
    for _ in itertools.takewhile(lambda _: not holds(), itertools.count()):
        if time.monotonic() > deadline:
            raise RuntimeError(f"not within {seconds:g} s")
        time.sleep(_LOOK_AGAIN)

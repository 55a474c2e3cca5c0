"""From the moment at which a job prints a line until someone who follows its log has it."""

import asyncio
import shlex
import sys
import time
from typing import Any

import kinetic_ray as kinetic
from benchmarks.cluster import ROOT, jobs_client
from benchmarks.harness import Aim, Limit, Samples, table

STREAM, COMMAND = "kinetic, job.stream()", "kinetic jobs logs -f"
RAY = "JobSubmissionClient.tail_job_logs"
AIM = 0.2  # seconds
_FIRST = 5  # lines that don't count: who follows has only just begun
_PAUSE, _MORE = 0.1, 0.0137  # seconds between lines, never the same, so that no follower's own beat fits it
_MARK = "printed at"


def say(lines: int) -> None:
    """Prints lines that tell when they were printed."""
    for number in range(lines):
        print(_MARK, time.time(), flush=True)
        time.sleep(_PAUSE + _MORE * (number % 17))


def run(rounds: int) -> str:
    """Compares followers of a kinetic job with Ray's own follower of a raw job that prints the same."""
    samples = asyncio.run(_follow_all(rounds + _FIRST))
    aims: list[Aim | Limit] = [
        Limit(STREAM, AIM),
        Limit(COMMAND, AIM),
        Aim(STREAM, RAY, 0.5),
        Aim(STREAM, RAY, 0.5, percentile=99),
    ]
    return table("a printed line until it is seen", samples, aims)


async def _follow_all(lines: int) -> Samples:
    job = kinetic.remote(say).run_async(lines)
    code = f"from benchmarks.logs import say; say({lines})"
    command = shlex.join(["env", f"PYTHONPATH={ROOT}", sys.executable, "-c", code])
    client = jobs_client()
    raw = client.submit_job(entrypoint=command)
    delays = await asyncio.gather(_stream(job), _command(job.job_id), _tail(client, raw))
    return {name: each[_FIRST:] for name, each in zip((STREAM, COMMAND, RAY), delays, strict=True)}


async def _stream(job: Any) -> list[float]:
    return [delay async for line in job.stream() for delay in _delays(line.text)]


async def _command(job_id: str) -> list[float]:
    words = ("-m", "kinetic_ray", "jobs", "logs", "-f", job_id)
    process = await asyncio.create_subprocess_exec(sys.executable, *words, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    found = [delay async for line in process.stdout for delay in _delays(line.decode())]
    if await process.wait():
        raise RuntimeError(f"kinetic jobs logs -f ended with {process.returncode}")
    return found


async def _tail(client: Any, job_id: str) -> list[float]:
    return [delay async for text in client.tail_job_logs(job_id) for delay in _delays(text)]


def _delays(text: str) -> list[float]:
    now = time.time()
    return [now - float(line.rpartition(_MARK)[2]) for line in text.splitlines() if _MARK in line]

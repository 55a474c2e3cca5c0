"""A durable call of a function that does nothing, against a raw Ray job that does the same work by hand."""

import itertools
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import kinetic_ray as kinetic
from benchmarks.cluster import jobs_client, run_raw_job
from benchmarks.harness import Aim, Contender, interleave, table, timed

AT_ONCE = 8


@kinetic.remote(accelerator="cpu")
def no_op() -> int:
    """Does nothing."""
    return 1


def run(rounds: int) -> str:
    """Compares `run_async` to `result` with submitting a job, polling for its file every 10 ms and reading it.

    One at a time, and some submitted at once until the last is done.
    """
    client, numbers = jobs_client(), itertools.count()
    with tempfile.TemporaryDirectory() as folder:

        def raw() -> None:
            run_raw_job(client, "benchmarks.raw_job", result=Path(folder) / f"{next(numbers)}")

        ours = Contender("run_async -> result", timed(lambda: no_op.run_async().result()))
        theirs = Contender("raw Ray job", timed(raw))
        one = interleave([ours, theirs], rounds)
        with ThreadPoolExecutor(AT_ONCE) as pool:
            many = Contender(ours.name, timed(_ours_at_once))
            raw_many = Contender(theirs.name, timed(lambda: [*pool.map(lambda _: raw(), range(AT_ONCE))]))
            eight = interleave([many, raw_many], max(1, rounds // 3))
    return "\n\n".join(
        (
            table("a durable no-op, warm cluster", one, [Aim(ours.name, theirs.name, 1.3)]),
            table(f"{AT_ONCE} durable no-ops at once", eight, [Aim(ours.name, theirs.name, 1.1)]),
        )
    )


def _ours_at_once() -> None:
    jobs = [no_op.run_async() for _ in range(AT_ONCE)]
    for job in jobs:
        job.result()

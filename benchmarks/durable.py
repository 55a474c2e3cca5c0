"""A durable call of a function that does nothing, against a raw Ray job that does the same work by hand."""

import itertools
import tempfile
from pathlib import Path

import kinetic_ray as kinetic
from benchmarks.cluster import jobs_client, run_raw_job
from benchmarks.harness import Aim, Contender, interleave, table, timed


@kinetic.remote(accelerator="cpu")
def no_op() -> int:
    """Does nothing."""
    return 1


def run(rounds: int) -> str:
    """Compares `run_async` to `result` with submitting a job, polling for its file every 10 ms and reading it."""
    client, numbers = jobs_client(), itertools.count()
    with tempfile.TemporaryDirectory() as folder:

        def raw() -> None:
            run_raw_job(client, "benchmarks.raw_job", result=Path(folder) / f"{next(numbers)}")

        ours = Contender("run_async -> result", timed(lambda: no_op.run_async().result()))
        theirs = Contender("raw Ray job", timed(raw))
        samples = interleave([ours, theirs], rounds)
    return table("a durable no-op, warm cluster", samples, [Aim(ours.name, theirs.name, 1.3)])

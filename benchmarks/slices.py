"""From the start of a gang of 4 hosts and 16 devices to its first all-reduce."""

import json
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.cluster import jobs_client, run_raw_job
from benchmarks.harness import Aim, table

WARM, COLD, RAW, TRAINER = "host agents, a further gang", "host agents, the first gang", "four Ray actors", "JaxTrainer"


def run(rounds: int) -> str:
    """Compares host agents with four plain Ray actors and with Ray Train's JaxTrainer."""
    found = in_the_cluster("start", rounds, timeout=120 + 120 * (rounds + 1))
    aims = [Aim(WARM, RAW, 0.12), Aim(COLD, RAW, 0.45), Aim(COLD, TRAINER, 1 / 3)]
    return "\n".join([table("16 devices of 4 hosts to the first all-reduce", found["samples"], aims), *found["notes"]])


def in_the_cluster(what: str, count: int, timeout: float) -> dict[str, Any]:
    """Runs a part of `benchmarks.slice_job` as a Ray job; gives its samples and notes."""
    with tempfile.TemporaryDirectory() as folder:
        store, result = Path(folder) / "store", Path(folder) / "result.json"
        text = run_raw_job(
            jobs_client(), "benchmarks.slice_job", what, str(store), str(count), result=result, timeout=timeout
        )
        found: dict[str, Any] = json.loads(text)
        return found

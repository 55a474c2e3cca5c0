"""An embedded cluster of the benchmarks' own, and raw Ray jobs on it."""

import os
import shlex
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import kinetic_ray as kinetic
from kinetic_ray.backends.local import backend

ROOT = Path(__file__).resolve().parents[1]
_LOOK_AGAIN = 0.01  # seconds between two looks at a raw job's result


@contextmanager
def own_cluster() -> Iterator[None]:
    """Starts an embedded cluster under a KINETIC_HOME of its own and ends it afterwards.

    Ray reads how to authenticate when it is imported, so the variables are set before anyone imports it here.
    """
    with tempfile.TemporaryDirectory(prefix="krb", dir="/tmp") as home:
        os.environ["KINETIC_HOME"] = home
        os.environ["KINETIC_PACKAGE_ROOT"] = str(ROOT / "benchmarks")  # a project of 20 files, not all of this one
        backend.start(Path(home))
        try:
            os.environ.update(backend.environment(Path(home)) or {})
            yield
        finally:
            kinetic.shutdown()
            backend.stop(Path(home), force=True)


def jobs_client() -> Any:
    """Ray's own client of the cluster's Job API."""
    from ray.job_submission import JobSubmissionClient

    return JobSubmissionClient(os.environ["RAY_API_SERVER_ADDRESS"])


def run_raw_job(client: Any, module: str, *words: str, result: Path, timeout: float = 300.0) -> str:
    """Runs a module as a raw Ray job and gives the text of its result file as soon as that is there.

    The job writes it whole (another name, then a rename).
    """
    command = shlex.join(["env", f"PYTHONPATH={ROOT}", sys.executable, "-m", module, *words, str(result)])
    job_id = client.submit_job(entrypoint=command)
    pause, deadline = threading.Event(), time.monotonic() + timeout
    next_look = time.monotonic() + 1.0
    while not result.exists():
        if time.monotonic() > next_look:
            status = client.get_job_status(job_id)
            if status.is_terminal() and not result.exists():
                raise RuntimeError(f"{module} ended as {status} without a result:\n{_last_words(client, job_id)}")
            next_look = time.monotonic() + 1.0
        if time.monotonic() > deadline:
            client.stop_job(job_id)
            raise RuntimeError(f"{module} gave no result in {timeout:g} s:\n{_last_words(client, job_id)}")
        pause.wait(_LOOK_AGAIN)
    return result.read_text(encoding="utf-8")


def _last_words(client: Any, job_id: str) -> str:
    return str(client.get_job_logs(job_id))[-4000:]

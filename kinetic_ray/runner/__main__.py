"""`python -m kinetic_ray.runner STORE_URL JOB_ID`: the entrypoint of every job's driver."""

from __future__ import annotations

import logging
import os
import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from types import FrameType

from kinetic_ray.core.state import JobStatus
from kinetic_ray.errors import KineticError
from kinetic_ray.runner.inbox import Inbox, Stop, StopAsked
from kinetic_ray.runner.opening import OpenJob, open_job
from kinetic_ray.runner.scaling import RAY_HEAD, is_simulated, supervisor_socket

_USAGE = "usage: python -m kinetic_ray.runner STORE_URL JOB_ID   (started by a kinetic cluster, not by hand)\n"
_EX_USAGE, _EX_BROKEN = 64, 70
_LOG = logging.getLogger("kinetic_ray.runner")


def main(argv: list[str]) -> int:
    """Drives one job; returns the exit code, zero only if it succeeded."""
    if len(argv) != 2:
        sys.stderr.write(_USAGE)
        return _EX_USAGE
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    store_url, job_id = argv
    inbox = Inbox()
    _stop_on_sigterm(inbox)
    try:
        supervisor = supervisor_socket()
        with ThreadPoolExecutor(1) as pool:  # the store is read while Ray is attached
            opening = pool.submit(open_job, store_url, job_id, inbox)
            _attach()
            job = opening.result()
        _stop_on_sigterm(inbox)  # ray.init sets its own
        if isinstance(job, JobStatus):
            _LOG.warning("%s is %s already", job_id, job)
            return int(job is not JobStatus.SUCCEEDED)
        return _drive(job, inbox, supervisor)
    except KineticError as exc:
        sys.stderr.write(f"kinetic: {exc}\n")
        return _EX_USAGE


def _drive(job: OpenJob, inbox: Inbox, supervisor: str) -> int:
    from kinetic_ray.runner.driver import Driver

    try:
        return int(Driver(job, inbox, supervisor, simulated=is_simulated()).run())
    except Exception:  # noqa: BLE001 - the edge of the process
        _LOG.exception("the driver of %s broke", job.spec.job_id)  # the log is all that is left to tell of it
        return _EX_BROKEN


def _attach() -> None:
    import ray

    address = os.environ.get(RAY_HEAD) or "auto"
    ray.init(address=address, namespace="kinetic", log_to_driver=False, logging_level="warning")


def _stop_on_sigterm(inbox: Inbox) -> None:
    def note(_signum: int, _frame: FrameType | None) -> None:
        inbox.put(StopAsked(Stop.TERMINATE, "SIGTERM"))

    signal.signal(signal.SIGTERM, note)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

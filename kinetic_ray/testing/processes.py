"""Finds the processes behind a job on this machine."""

from __future__ import annotations

from typing import Any

import psutil

from kinetic_ray.core.names import JobKeys
from kinetic_ray.core.records import load_record
from kinetic_ray.errors import UsageError
from kinetic_ray.jobs import JobHandle
from kinetic_ray.jobs.logs import find_log
from kinetic_ray.journal import JobJournal
from kinetic_ray.testing.waiting import wait_until

#: A rank is born holding its log, and makes it its standard output a moment later.
_BIRTH_S = 5.0
#: macOS doesn't tell which descriptor a file is open at.
_STDOUT = (1, -1)


def rank_process(job: JobHandle[Any], rank: int) -> psutil.Process:
    """The process of a rank in the newest attempt; what it has started is not meant.

    Raises:
        UsageError: It has none, now.
    """
    keys = JobKeys(job.job_id)

    def look() -> psutil.Process | None:
        key = find_log(job.store, keys, rank)
        return _writer_of(job.store.uri(key)) if key else None

    try:
        found = wait_until(look, _BIRTH_S, "the rank's process")
    except AssertionError:
        phase = job.phase()
        hint = f"wait_for(job, 'call', rank={rank}) waits until it runs"
        raise UsageError(f"rank {rank} of {job.job_id} has no process now ({phase.phase}): {hint}") from None
    assert found is not None
    return found


def _writer_of(log: str) -> psutil.Process | None:
    """Who has a log as its standard output, and has not got it from a parent who has."""
    writers = {process.pid: process for process in psutil.process_iter() if _prints_to(process, log)}
    tops = [process for process in writers.values() if _parent_of(process) not in writers]
    return tops[0] if tops else None


def _prints_to(process: psutil.Process, log: str) -> bool:
    try:
        return any(file.path == log and file.fd in _STDOUT for file in process.open_files())
    except psutil.Error:  # it has ended, or is another user's
        return False


def _parent_of(process: psutil.Process) -> int | None:
    try:
        return int(process.ppid())
    except psutil.Error:
        return None


def driver_process(job: JobHandle[Any]) -> psutil.Process:
    """The process of a job's newest driver.

    Raises:
        UsageError: It has none, now.
    """
    journal = JobJournal(job.store, job.job_id)
    epoch = journal.newest_claim()
    try:
        claim = load_record("claim", job.store.get(journal.keys.claim(epoch))) if epoch else {}
        process = psutil.Process(claim["pid"])
        if any(word == job.job_id for word in process.cmdline()):
            return process
    except (KeyError, psutil.Error):
        pass
    raise UsageError(f"no driver of {job.job_id} runs now ({job.phase().phase}): wait_for(job, 'queue') waits for one")

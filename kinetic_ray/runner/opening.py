"""Opening a job: the driver's first look at the store, done while Ray is still being attached."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass, field

from kinetic_ray.core.spec import JobSpec
from kinetic_ray.core.state import EventKind, JobStatus
from kinetic_ray.journal import JobJournal
from kinetic_ray.runner.inbox import Inbox
from kinetic_ray.runner.recorder import Recorder
from kinetic_ray.store import open_store
from kinetic_ray.store.patience import retried


@dataclass(frozen=True, slots=True)
class OpenJob:
    """A job that this process drives now.

    Attributes:
        journal: Its records.
        spec: What was called.
        env: Its variables, with their values.
        epoch: Of this driver.
        recorder: Writes its events, and beats already.
    """

    journal: JobJournal
    spec: JobSpec
    env: dict[str, str] = field(repr=False)
    epoch: int
    recorder: Recorder


def open_job(store_url: str, job_id: str, inbox: Inbox) -> OpenJob | JobStatus:
    """Claims a job.

    Returns:
        The job, or its status where it has ended already: there is nothing to drive then.

    Raises:
        UsageError: The store has no such job.
        ConfigError: The store can't be read.
        StoreError: The same, for longer than a blip lasts.
    """
    journal = JobJournal(open_store(store_url, create=False), job_id)
    return retried(lambda: _open(journal, inbox))


def _open(journal: JobJournal, inbox: Inbox) -> OpenJob | JobStatus:
    spec = journal.spec()
    if (state := journal.state()).is_terminal:
        return state.status
    log = journal.claim({"role": "driver", "host": socket.gethostname(), "pid": os.getpid()})
    if log.epoch > 1 and (state := journal.state()).is_terminal:  # it was closed between look and claim
        return state.status
    env = journal.env(spec)
    recorder = Recorder(log, inbox)
    recorder.add(EventKind.DRIVER_STARTED)
    return OpenJob(journal, spec, env, log.epoch, recorder)

"""What the submit loop reads and writes of jobs' records, through blips of their stores."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from kinetic_ray.core.state import JobStatus, Reason
from kinetic_ray.errors import ConfigError
from kinetic_ray.journal import JobJournal
from kinetic_ray.store import Store, open_store
from kinetic_ray.store.patience import Trouble, waited_out_aside

T = TypeVar("T")


def open_shared(store_url: str) -> Store:
    """The store that a client names.

    Raises:
        ConfigError: It can't be read, or lies in one process's memory.
    """
    if store_url.startswith("memory:"):
        raise ConfigError(f"{store_url}: a store in one process's memory can't be shared with a cluster")
    return open_store(store_url, create=False)


def is_finished(journal: JobJournal) -> bool:
    """Whether nothing is left to do for a job: it was cleaned up, or has ended.

    What a driver that was killed just after its end has left undone, is done.
    """
    if not journal.exists():
        return True
    if not journal.state().is_terminal:
        return False
    journal.settle()
    return True


def is_unwanted(journal: JobJournal) -> bool:
    """Whether nobody wants a job to start any more: its cancel record is there, or it was cleaned up."""
    return journal.cancel_requested() or not journal.exists()


def close_job(journal: JobJournal, status: JobStatus, reason: Reason, message: str) -> None:
    """Ends a job now; see :meth:`JobJournal.close`."""
    journal.close(status, reason, message, time.time())


def close_lost(journal: JobJournal, why: str) -> None:
    """Ends a job that nobody drives any more; as cancelled, if that was asked for."""
    if journal.cancel_requested():
        close_job(journal, JobStatus.STOPPED, Reason.CANCELLED, "cancelled")
    else:
        close_job(journal, JobStatus.FAILED, Reason.DRIVER_LOST, why)


async def surely(budget: float, act: Callable[..., T], *args: Any) -> T:
    """Does something to a store from a thread, again for as long as the store is away, up to `budget` seconds."""
    return await waited_out_aside(partial(act, *args), Trouble(budget, what="a job's records can't be reached"))

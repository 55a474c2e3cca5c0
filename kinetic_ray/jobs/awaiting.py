"""`await job`: waiting in an event loop, with every look at the store in a thread."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from kinetic_ray.backends.base import Backend
from kinetic_ray.frames import own_frames_hidden, raise_told
from kinetic_ray.interrupts import goes_on, interruptible
from kinetic_ray.jobs.patience import patience_with
from kinetic_ray.jobs.results import Ended
from kinetic_ray.jobs.watching import Watch
from kinetic_ray.journal import JobJournal
from kinetic_ray.store.patience import waited_out_aside


async def outcome_soon(
    journal: JobJournal, backend: Backend, told: Callable[[Ended], tuple[Any, BaseException | None]]
) -> Any:
    """Waits for the end without blocking the loop, then gives the value or raises what there is instead.

    Args:
        journal: Of the job.
        backend: What runs it.
        told: Reads what an ended job has left: its value, or the error.
    """
    with own_frames_hidden():
        with awaited(journal.job_id):
            value, error = await _outcome(journal, backend, told)
        if error is not None:
            raise_told(error)
        return value


async def _outcome(
    journal: JobJournal, backend: Backend, told: Callable[[Ended], tuple[Any, BaseException | None]]
) -> tuple[Any, BaseException | None]:
    watch = Watch(journal, backend)
    # There is no event to wait for: another process ends the job.
    while not (state := await asyncio.to_thread(watch.look)).is_terminal:  # noqa: ASYNC110
        await asyncio.sleep(watch.pause)
    return await waited_out_aside(lambda: told(Ended(journal, journal.spec(), state)), patience_with(journal.job_id))


@contextmanager
def awaited(job_id: str) -> Iterator[None]:
    """Says that the job goes on where Ctrl-C ends the waiting; a task that its program cancels needs no telling."""
    try:
        with interruptible(job_id):
            yield
    except asyncio.CancelledError:
        if _is_interrupted():
            sys.stderr.write(goes_on(job_id))
        raise


def _is_interrupted() -> bool:
    """Whether Ctrl-C has cancelled the tasks: that is what `asyncio.run` makes of it, and it alone knows."""
    handler = signal.getsignal(signal.SIGINT)
    runner = getattr(getattr(handler, "func", None), "__self__", None)
    return isinstance(runner, asyncio.Runner) and getattr(runner, "_interrupt_count", 0) > 0

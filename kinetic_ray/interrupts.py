"""Ctrl-C while a job is made, handed over or waited for: what it ends, and what is told of it."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType


@contextmanager
def interruptible(job_id: str, told: str = "") -> Iterator[None]:
    """Ctrl-C ends the waiting, not the job: says so, and how to go on or stop it.

    Args:
        job_id: The job.
        told: What to say instead.
    """
    try:
        yield
    except KeyboardInterrupt:
        sys.stderr.write(told or goes_on(job_id))
        raise


def goes_on(job_id: str) -> str:
    """What is told to who no longer waits for a job."""
    return (
        f"\n{job_id} goes on without you.\n"
        f"  its result, also from another process:  kinetic jobs result {job_id}\n"
        f"  its log:                                kinetic jobs logs {job_id} --follow\n"
        f"  to stop it:                             kinetic jobs cancel {job_id}\n"
    )


@dataclass(slots=True)
class Begun:
    """How far a call has come on its way to become a job.

    Attributes:
        job_id: Once it is recorded.
        is_handed_over: Whether somebody has it run.
    """

    job_id: str = ""
    is_handed_over: bool = False

    def told(self, func_name: str) -> str:
        """What is said to who interrupts it here."""
        if not self.job_id:
            return f"\n{func_name}: interrupted before its job was recorded; nothing was created\n"
        if self.is_handed_over:
            return goes_on(self.job_id)
        return (
            f"\n{self.job_id} is recorded, but nothing runs it yet.\n"
            f"  to have it run:  kinetic jobs result {self.job_id}\n"
            f"  to remove it:    kinetic jobs cleanup {self.job_id}\n"
        )


@contextmanager
def beginning(func_name: str, begun: Begun | None = None) -> Iterator[Begun]:
    """Ctrl-C while a job is made: says how far it has come.

    Args:
        func_name: What is called.
        begun: Of whoever has said before that it begins, and tells that then.
    """
    if begun is not None:
        yield begun
        return
    begun = Begun()
    try:
        yield begun
    except KeyboardInterrupt:
        sys.stderr.write(begun.told(func_name))
        raise


@contextmanager
def interrupts_held() -> Iterator[None]:
    """Has a Ctrl-C wait until this is done; a second one is raised at once.

    Only where Ctrl-C means what it does by default, and in the main thread, which is the only one that it reaches.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    came: list[int] = []

    def hold(signum: int, frame: FrameType | None) -> None:
        came.append(signum)
        if len(came) > 1:
            signal.default_int_handler(signum, frame)

    signal.signal(signal.SIGINT, hold)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if came:
        raise KeyboardInterrupt

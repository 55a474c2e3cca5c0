"""What user code can ask and tell while it runs: `context()` and `report()`."""

from __future__ import annotations

import collections
import operator
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, SupportsFloat

from kinetic_ray.errors import UsageError

#: Of steps: more than a 64-bit number holds is a mistake.
_TOO_MANY = 1 << 63

#: Reports waiting to be sent; with this many waiting the oldest are dropped, since a newer step says more.
QUEUE_LENGTH = 1024


@dataclass(frozen=True, slots=True)
class Context:
    """Where this code runs.

    Attributes:
        job_id: The job; "" outside of one.
        rank: This process among the job's, from 0.
        world_size: Ranks in the job.
        slice_index: This process's slice, from 0.
        num_slices: Slices in the job.
        role: The rank's role.
        attempt: From 1; 0 outside of a job.
        output_dir: A local folder for results. In a job it is kept in the store.
        output_uri: The same place as seen from elsewhere.
        checkpoint: The last committed checkpoint to resume from; always None in this version.
        coordinator: "host:port" of rank 0, or None for a single rank.
    """

    job_id: str
    rank: int
    world_size: int
    slice_index: int
    num_slices: int
    role: str
    attempt: int
    output_dir: Path
    output_uri: str
    checkpoint: Path | None = None
    coordinator: str | None = None


class Reporter:
    """Sends reports from a thread of its own, so that `report()` waits for nothing: no socket, no device."""

    def __init__(self, send: Callable[[dict[str, Any]], None]) -> None:
        self._send = send
        self._pid = os.getpid()
        self._waiting: collections.deque[dict[str, Any]] = collections.deque(maxlen=QUEUE_LENGTH)
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._busy = False

    def put(self, report: dict[str, Any]) -> None:
        """Queues a report; drops the oldest waiting one when the queue is full."""
        if os.getpid() != self._pid:
            raise UsageError("report() was called in a process that the rank has forked: call it in the rank's own")
        with self._changed:
            self._waiting.append(report)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="kinetic-reports", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def drain(self, timeout: float) -> bool:
        """Waits until everything is sent; False if that took longer than `timeout` seconds."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._waiting and not self._busy, timeout)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting)
                report = self._waiting.popleft()
                self._busy = True
            try:
                self._send({**report, "metrics": _as_floats(report["metrics"])})
            except OSError:  # the agent is gone, and so will this process be
                return
            finally:
                with self._changed:
                    self._busy = False
                    self._changed.notify_all()


@dataclass(slots=True)
class Session:
    """The process's session: who it is, and where its reports go."""

    context: Context | None = None
    reporter: Reporter | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)


#: One a process by nature, as `os.environ` is: a rank is a process. Set once by the child before user code runs.
CURRENT = Session()


def context() -> Context:
    """Where this code runs: in a job its rank and folders, elsewhere rank 0 of 1.

    Returns:
        The context. Outside of a job `output_dir` is `$KINETIC_OUTPUT_DIR`, or `kinetic_output` in the current folder.

    Example:
        >>> context().world_size
        1
    """
    if CURRENT.context is not None:
        return CURRENT.context
    folder = Path(os.environ.get("KINETIC_OUTPUT_DIR") or "kinetic_output").absolute()
    folder.mkdir(parents=True, exist_ok=True)
    return Context("", 0, 1, 0, 1, "worker", 0, folder, str(folder))


def report(
    step: int, *, total: int | None = None, checkpoint: str | os.PathLike[str] | None = None, **metrics: SupportsFloat
) -> None:
    """Tells the job how far this rank is. Never blocks; outside of a job, and in a call, it only checks.

    Reports wait in a queue of 1,024; when it is full the oldest are dropped. A metric that a device is still
    computing is waited for by the sending thread, not by the caller.

    Args:
        step: Steps done, from 0. A step counts once every rank has reported it or a later one.
        total: Steps in all, for progress and ETA.
        checkpoint: Not in this version: will be a folder that holds what is needed to go on from this step.
        **metrics: Numbers, by name.

    Raises:
        UsageError: A step, total or metric that is no number; a checkpoint, which would be lost.

    Example:
        >>> report(10, total=100, loss=0.5)
    """
    if checkpoint is not None:
        raise UsageError(
            "report(checkpoint=): not available yet in this version of kinetic_ray; leave it out for now. A job may "
            "write checkpoints into context().output_dir, which is kept; a .remote() call keeps no files"
        )
    message = {
        "t": "report",
        "at": time.time(),
        "step": _whole("step", step),
        "total": None if total is None else _whole("total", total),
        "metrics": {name: _number(name, value) for name, value in metrics.items()},
    }
    if CURRENT.reporter is not None:
        CURRENT.reporter.put(message)


def _whole(name: str, value: int) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        raise UsageError(f"report({name}=): expected a whole number, got {type(value).__name__}") from None
    if number < 0:
        raise UsageError(f"report({name}=): expected 0 or more, got {number}")
    if number >= _TOO_MANY:
        raise UsageError(f"report({name}=): expected less than 2**63")
    return number


def _number(name: str, value: SupportsFloat) -> SupportsFloat:
    if not isinstance(value, SupportsFloat):
        raise UsageError(f"report({name}=): expected a number, got {type(value).__name__}")
    return value


def _as_floats(metrics: Mapping[str, SupportsFloat]) -> dict[str, float]:
    """In the sending thread: waits for values on devices; what turns out to be no number is dropped with a warning."""
    floats = {}
    for name, value in metrics.items():
        try:
            floats[name] = float(value)
        except Exception as exc:  # noqa: BLE001 - whatever a foreign __float__ raises must not end reporting
            sys.stderr.write(f"kinetic: metric {name!r} was dropped: {type(exc).__name__}: {exc}\n")
    return floats

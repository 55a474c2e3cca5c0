"""Questions to a backend that hold nobody up: each in a thread of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import TypeVar

from kinetic_ray.backends.base import Backend, Observation

T = TypeVar("T")


def asked(ask: Callable[[], T]) -> Future[T]:
    """Asks in a daemon thread: nobody has to wait for the answer, not even the end of this process.

    Example:
        >>> asked(lambda: 42).result(timeout=60)
        42
    """
    answer: Future[T] = Future()

    def run() -> None:
        try:
            answer.set_result(ask())
        except BaseException as exc:  # noqa: BLE001 - whoever takes the answer raises it
            answer.set_exception(exc)

    threading.Thread(target=run, name="kinetic-question", daemon=True).start()
    return answer


def answer_within(ask: Callable[[], T], seconds: float) -> T:
    """The answer, where it comes in time.

    Raises:
        TimeoutError: It doesn't; it is waited for no longer.
    """
    answer = asked(ask)
    wait([answer], max(seconds, 0.0))
    if not answer.done():
        raise TimeoutError(f"the backend has not answered within {seconds:.3g} s")
    return answer.result()


def observe_within(backend: Backend, store_url: str, job_id: str, seconds: float) -> Observation:
    """One look of a backend's at a job's driver.

    Raises:
        TimeoutError: No answer by then.
    """
    return answer_within(lambda: backend.observe(store_url, job_id), seconds)

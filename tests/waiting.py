"""Waiting for something to become true, with a deadline and a reason in the failure."""

import threading
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def wait_until(predicate: Callable[[], T], timeout: float = 30.0, what: str = "", every: float = 0.02) -> T:
    """Calls `predicate` until it gives something true and returns that; fails the test after `timeout` seconds.

    `what` completes the sentence "waited N s for ..." in the failure.
    """
    deadline = time.monotonic() + timeout
    pause = threading.Event()
    while True:
        value = predicate()
        if value:
            return value
        if time.monotonic() >= deadline:
            raise AssertionError(f"waited {timeout:g} s for {what or predicate!r}; last value: {value!r}")
        pause.wait(every)

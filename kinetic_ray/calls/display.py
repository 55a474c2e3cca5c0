"""What the desk tells a process while its calls run: lines that they print, and gangs that it wants back."""

from __future__ import annotations

import contextlib
import logging
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from typing import Any, TextIO

from kinetic_ray.core.noise import is_noise

_LOG = logging.getLogger("kinetic_ray")

#: Seconds that the desk may take to answer where there is nothing to tell.
_PATIENCE = 30.0
#: Seconds between looks after what this process still holds of its calls, and until a desk that is gone is asked again.
_TICK, _RETRY = 0.5, 1.0
#: At the end: seconds in which nothing more was printed (agents pass lines on every twentieth of a second), and the
#: longest that is waited for that.
_QUIET, _LONGEST = 0.3, 3.0


def prefixed(line: Sequence[Any]) -> str:
    """A line as people see it.

    Args:
        line: The call's name, its rank, where it runs, and what it printed.

    Example:
        >>> prefixed(("train", 2, "tpu-v6e-16-0", "step 3"))
        '(train rank=2 tpu-v6e-16-0) step 3'
        >>> prefixed(("double", 0, "", "hello"))
        '(double rank=0) hello'
    """
    name, rank, where, text = line
    place = f" {where}" if where else ""
    return f"({name} rank={rank}{place}) {text}"


def show(lines: Iterable[Sequence[Any]]) -> None:
    """Prints lines of calls where the process prints now (a notebook's cell, say), kinetic's own as its errors.

    As of jobs, gloo's words at each connection are left out.
    """
    lines = [line for line in lines if not is_noise(line[3])]
    _print(sys.stdout, [prefixed(line) for line in lines if line[0]])
    _print(sys.stderr, [line[3] for line in lines if not line[0]])


def _print(stream: TextIO | None, lines: Sequence[str]) -> None:
    if lines and stream is not None:
        with contextlib.suppress(OSError, ValueError):  # closed, or a broken pipe: the calls themselves go on
            stream.write("".join(f"{line}\n" for line in lines))
            stream.flush()


class Listener:
    """Listens to the desk in a thread of its own, from the first call on.

    Args:
        desk: The cluster's desk.
        client: This process, as the desk knows it.
        recall: Gets ids of gangs that the desk wants back.
        tidy: Called now and then, to look after what this process holds.
        is_over: Whether the cluster has gone, so that there is nothing to listen to any more.
        show: Gets lines.
    """

    def __init__(
        self,
        desk: Any,
        client: str,
        *,
        recall: Callable[[Sequence[str]], None],
        tidy: Callable[[], None],
        is_over: Callable[[], bool],
        show: Callable[[Iterable[Sequence[Any]]], None] = show,
    ) -> None:
        self._desk = desk
        self._client = client
        self._recall = recall
        self._tidy = tidy
        self._is_over = is_over
        self._show = show
        self._answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._asked: Future[dict[str, Any]] | None = None  # and not taken yet

    def start(self) -> None:
        """Begins; does nothing when it has begun."""
        if self._thread is None and not self._stopping.is_set():
            self._thread = threading.Thread(target=self._run, name="kinetic-calls", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Ends it, after the lines that calls have printed up to now."""
        if self._thread is None or self._stopping.is_set():
            return
        self._stopping.set()
        self._answers.put(None)
        self._thread.join(_LONGEST)
        self._drain()

    def _run(self) -> None:
        while not self._stopping.is_set() and not self._is_over():
            try:
                self._ask().add_done_callback(self._answers.put)
                self._take(self._await_answer())
            except Exception as exc:  # noqa: BLE001 - the desk is gone, or Ray is: calls tell of that, not this thread
                _LOG.debug("listening to the desk broke off: %s", exc)
                self._stopping.wait(_RETRY)

    def _ask(self) -> Future[dict[str, Any]]:
        asked: Future[dict[str, Any]] = self._desk.listen.remote(self._client, _PATIENCE).future()
        self._asked = asked
        return asked

    def _await_answer(self) -> dict[str, Any] | None:
        while True:
            try:
                answer = self._answers.get(timeout=_TICK)
            except queue.Empty:
                if self._is_over():
                    return None
                self._tidy()
                continue
            return None if answer is None else answer.result()

    def _take(self, answer: dict[str, Any] | None) -> None:
        if answer is not None:
            self._asked = None
            self._recall(answer["recalled"])
            self._show(answer["lines"])

    def _drain(self) -> None:
        """Shows what comes in the last moment: a call's lines may be a little behind its value.

        The question that is on its way is the one that gets them.
        """
        deadline = time.monotonic() + _LONGEST
        try:
            while (left := deadline - time.monotonic()) > 0:
                self._take((self._asked or self._ask()).result(timeout=min(left, _QUIET)))
        except TimeoutError:
            return
        except Exception as exc:  # noqa: BLE001 - as above: the end must not fail over a few lines
            _LOG.debug("the last lines of this process's calls were lost: %s", exc)

"""What the desk tells a process while its calls run: lines that they print, and gangs that it wants back."""

from __future__ import annotations

import contextlib
import logging
import queue
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from typing import Any, TextIO

from kinetic_ray import config
from kinetic_ray.core.noise import is_noise
from kinetic_ray.core.terminal import encodable, is_terminal, sanitize

_LOG = logging.getLogger("kinetic_ray")

#: Seconds that the desk may take to answer where there is nothing to tell.
_PATIENCE = 30.0
#: Seconds between looks after what this process still holds of its calls, and until a desk that is gone is asked again.
_TICK, _RETRY = 0.5, 1.0
#: At the end: seconds in which nothing comes and nothing is shown, though more is to be expected.
_LONGEST = 5.0
_REPLACED = (
    "kinetic: what passes on the lines of calls was lost, and has begun anew: lines that were printed just before may "
    "be missing here"
)
_UNHEARD = "kinetic: the cluster does not answer: the last lines of this process's calls may be missing here"


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

    As of jobs, a terminal gets no control codes, and gloo's words at each connection are left out.
    """
    lines = [line for line in lines if not is_noise(line[3])]
    _print(sys.stdout, [line for line in lines if line[0]])
    _print(sys.stderr, [line for line in lines if not line[0]])


def _print(stream: TextIO | None, lines: Sequence[Sequence[Any]]) -> None:
    if not lines or stream is None:
        return
    with contextlib.suppress(OSError, ValueError):  # closed, or a broken pipe: the calls themselves go on
        text = "".join(f"{line}\n" for line in _printable(lines, is_terminal(stream)))
        stream.write(encodable(text, stream))
        stream.flush()


def _printable(lines: Sequence[Sequence[Any]], for_terminal: bool) -> list[str]:
    """Lines as they are printed; for a terminal without control codes, and what was drawn over is left out."""
    color = for_terminal and config.color()
    shown = [(*line[:3], sanitize(line[3], color=color)) if for_terminal else line for line in lines]
    return [prefixed(line) if line[0] else line[3] for line in shown]


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
        self._got = ("", 0)  # box and number of the last answer
        self._heard = 0  # answers

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
        seen = -1
        while self._thread.is_alive() and seen != self._heard:  # as long as there is something, however slow
            seen = self._heard
            self._thread.join(_LONGEST + 1)

    def _run(self) -> None:
        while not self._stopping.is_set() and not self._is_over():
            try:
                self._ask().add_done_callback(self._answers.put)
                self._take(self._await_answer())
            except Exception as exc:  # noqa: BLE001 - the desk is gone, or Ray is: calls tell of that, not this thread
                _LOG.debug("listening to the desk broke off: %s", exc)
                self._asked = None
                self._stopping.wait(_RETRY)
        if not self._is_over():
            self._drain()

    def _ask(self) -> Future[dict[str, Any]]:
        asked: Future[dict[str, Any]] = self._desk.listen.remote(self._client, _PATIENCE, self._got).future()
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
        if answer is None:
            return
        self._asked = None
        self._heard += 1
        got = (answer["box"], answer["number"])
        self._recall(answer["recalled"])
        if self._got[0] not in ("", got[0]):
            self._show([["", 0, "", _REPLACED]])
        if got != self._got:  # else it has come before
            self._got = got
            self._show(answer["lines"])

    def _drain(self) -> None:
        """Shows what comes in the last moment: a call's lines may be a little behind its value.

        The desk fetches what agents still have. The question that is on its way is the one that gets it.
        """
        try:
            flushed = self._desk.flush.remote(self._client).future()
            is_last, answer = False, self._last_answer()
            while not is_last or answer["lines"]:
                is_last = flushed.done()  # then there is no more than the next answers have
                self._ask()
                answer = self._last_answer()
        except Exception as exc:  # noqa: BLE001 - as above: the end must not fail over a few lines
            if not self._is_over():
                _LOG.debug("the last lines of this process's calls were lost: %s", exc)
                self._show([["", 0, "", _UNHEARD]])

    def _last_answer(self) -> dict[str, Any]:
        answer = (self._asked or self._ask()).result(timeout=_LONGEST)
        self._take(answer)
        return answer

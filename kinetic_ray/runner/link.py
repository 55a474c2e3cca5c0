"""The agent's end of a zygote: starts it, asks it for children, hears of their ends."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kinetic_ray.errors import ConfigError
from kinetic_ray.runner.lines import Lines
from kinetic_ray.runner.process import kill_group_quietly, kill_quietly
from kinetic_ray.runner.task import HostPlan

START_TIMEOUT = 300.0
_STOP_TIMEOUT = 10.0
#: What a zygote and its interpreter say lies in this file of its scratch folder.
_WORDS = "zygote.log"
#: What is read of that at most, and of that the lines that go into a message.
_MOST_WORDS, _LINES_TOLD = 64 * 1024, 20

#: Has a zygote begin for a plan, with its end of a socket pair and the folder that it removes when it ends.
Begin = Callable[[HostPlan, int, Path], None]


@dataclass(frozen=True, slots=True)
class Child:
    """A process of a zygote; `ended` gives its exit code once it and all below it are gone, None if unknown."""

    pid: int
    ended: Future[int | None] = field(default_factory=Future, compare=False)


class NotReady(ConfigError):
    """A host's zygote could not be made ready.

    Attributes:
        words: All that it has said; the message has the end of that.
    """

    words: str = ""


def words_path(scratch: Path) -> Path:
    """Where a zygote's standard output and error go."""
    return scratch / _WORDS


class ZygoteLink:
    """A running zygote. Thread-safe.

    Attributes:
        plan: What it was made for.
        scratch: The folder that it removes when it ends.
        pid: Its process.
        forks: Whether its children are forked; else each is a new interpreter.
    """

    def __init__(self, plan: HostPlan, scratch: Path, begin: Begin, patience: float = START_TIMEOUT) -> None:
        """Starts the zygote and waits until it has imported its runtime.

        Args:
            plan: What to make it for.
            scratch: A folder that the zygote removes when it ends.
            begin: How it begins.
            patience: Seconds until it must be ready.

        Raises:
            NotReady: The runtime can't be imported, or the interpreter ended, or it took too long.
            ConfigError: The host lacks what the plan names.
            OSError: It could not begin.
        """
        self.plan = plan
        self.scratch = scratch
        self._socket, theirs = socket.socketpair()
        self._lines = Lines(self._socket)
        self._answer: Future[Child] | None = None
        self._children: dict[int, Child] = {}
        self._lock = threading.Lock()
        self._starting = threading.Lock()
        self._gone = False
        try:
            with theirs:
                begin(plan, theirs.fileno(), scratch)
            self.pid, self.forks = self._await_ready(patience)
        except BaseException:
            self._lines.close()
            raise
        self._listener = threading.Thread(target=self._listen, name="kinetic-zygote", daemon=True)
        self._listener.start()

    @property
    def alive(self) -> bool:
        return not self._gone

    def start_child(self, control: int, log: int) -> Child:
        """A new child that owns the two descriptors.

        Raises:
            ConnectionError: The zygote is gone.
        """
        with self._starting:
            answer: Future[Child] = Future()
            with self._lock:
                if self._gone:
                    raise ConnectionError(f"the zygote (pid {self.pid}) is gone")
                self._answer = answer
            self._lines.send({"op": "start"}, (control, log))
            return answer.result()

    def kill(self, child: Child) -> None:
        """Ends a child and all below it; returns when they are gone. A zygote that doesn't answer goes with them."""
        try:
            self._lines.send({"op": "kill", "pid": child.pid})
            child.ended.result(_STOP_TIMEOUT)
        except (OSError, TimeoutError):
            kill_quietly(self.pid)
            child.ended.result()

    def close(self) -> None:
        """Ends the zygote and its child; returns when they are gone."""
        with contextlib.suppress(OSError):  # it is gone already
            self._socket.shutdown(socket.SHUT_WR)
        self._listener.join(_STOP_TIMEOUT)  # it ends with the zygote
        if self._listener.is_alive():
            kill_quietly(self.pid)
            self._listener.join()
        self._lines.close()

    def _await_ready(self, patience: float) -> tuple[int, bool]:
        self._socket.settimeout(patience)
        problem = "its process ended before it was ready"
        try:
            answer = self._lines.receive()
        except TimeoutError:
            answer, problem = None, f"it was not ready after {patience:g} s"
        if answer is not None and answer["ready"]:
            self._socket.settimeout(None)
            return int(answer["pid"]), bool(answer["forks"])
        if answer is not None:
            problem = answer["error"]
        raise _not_ready(f"this host can't prepare the runtime {self.plan.runtime!r}: {problem}", self.scratch)

    def _listen(self) -> None:
        try:
            while (message := self._lines.receive()) is not None:
                self._take(message)
        finally:  # whatever ended the conversation, nobody may wait for an answer that can't come
            self._lose_all()

    def _take(self, message: Mapping[str, Any]) -> None:
        if "pid" in message:
            child = Child(message["pid"])
            with self._lock:
                self._children[child.pid] = child
                answer, self._answer = self._answer, None
            if answer is not None:
                answer.set_result(child)
        elif "exit" in message:
            with self._lock:
                child = self._children.pop(message["exit"])
            child.ended.set_result(message["code"])

    def _lose_all(self) -> None:
        """The zygote is gone, and cannot end what its child has started: what shares the child's session, we can."""
        with self._lock:
            self._gone = True
            lost, self._children = list(self._children.values()), {}
            answer, self._answer = self._answer, None
        if answer is not None:
            answer.set_exception(ConnectionError(f"the zygote (pid {self.pid}) is gone"))
        for child in lost:
            kill_group_quietly(child.pid)
            child.ended.set_result(None)


def _not_ready(problem: str, scratch: Path) -> NotReady:
    words = _words(scratch)
    last = words.strip("\n").split("\n")[-_LINES_TOLD:]
    told = "" if last == [""] else "; it said:\n" + "\n".join(f"  {line}" for line in last)
    error = NotReady(problem + told)
    error.words = words
    return error


def _words(scratch: Path) -> str:
    """What a zygote has said; "" where it has removed that with its folder."""
    try:
        with words_path(scratch).open("rb") as file:
            file.seek(max(0, words_path(scratch).stat().st_size - _MOST_WORDS))
            return file.read().decode(errors="replace")
    except OSError:
        return ""

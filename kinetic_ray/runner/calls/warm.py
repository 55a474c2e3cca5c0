"""A warm child as its agent sees it: one process that serves one call after the other until it ends."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import socket
import threading
import time
from concurrent.futures import Future
from typing import Any

from kinetic_ray.core.state import Reason
from kinetic_ray.runner.calls import live
from kinetic_ray.runner.calls.failures import CallFailure
from kinetic_ray.runner.calls.frames import Frame, FrameError, Frames
from kinetic_ray.runner.calls.heads import Head
from kinetic_ray.runner.calls.output import Output, Take, Whose
from kinetic_ray.runner.calls.packing import Packed
from kinetic_ray.runner.calls.simple import read_simple
from kinetic_ray.runner.calls.words import SIMPLE, Kind, from_parts, to_parts
from kinetic_ray.runner.deaths import cause_of_death
from kinetic_ray.runner.lines import Lines
from kinetic_ray.runner.link import ZygoteLink
from kinetic_ray.runner.shortage import MemoryGuard
from kinetic_ray.runner.task import RankTask

_LOG = logging.getLogger(__name__)
#: Until a child that has closed its socket, but lives on, is ended.
_LAST_BREATH = 2.0
#: For last words on their way through the pipe.
_LAST_WORDS = 1.0
#: Functions that a child keeps; the one that was used longest ago goes.
_FUNCTIONS = 64
_CALL, _VALUE = int(Kind.CALL), int(Kind.VALUE)  # a member of an enumeration takes longer to look up
#: Numbers of calls, which begin anew then.
_MOST_CALLS = (1 << 32) - 1


class WarmChild:
    """One process. :meth:`call` is for one thread at a time, the rest for any.

    Attributes:
        task: What it was told at its start.
        actors: Instances that live in it.
    """

    def __init__(self, zygote: ZygoteLink, task: RankTask, facts: tuple[dict[str, Any], bytes], take: Take) -> None:
        """Starts it; its set-up goes on while this returns.

        Args:
            zygote: Forks it.
            task: Its rank.
            facts: What it has to know beyond, and the project's archive.
            take: Gets its lines, and whose they are.

        Raises:
            ConnectionError: The zygote is gone.
        """
        self.task = task
        self.actors: set[str] = set()
        self._zygote = zygote
        self._ready = False
        self._is_going = False
        self._noticing = threading.Lock()
        self._phase = ""
        self._number = 0  # of the last call
        self._verdict: tuple[str, str] | None = None
        self._known: dict[str, None] = {}
        self._held: list[Packed] = []
        self._head: Head | None = None
        self._talking = threading.Lock()
        self._settled: Future[None] = Future()
        self._output = Output(take)
        ours, theirs = socket.socketpair()
        self._frames = Frames(ours)
        try:
            self._child = zygote.start_child(theirs.fileno(), self._output.give_writer())
        except BaseException:
            self._frames.close()
            raise
        finally:
            theirs.close()
            os.close(self._output.give_writer())
        self._memory = MemoryGuard(zygote.pid, self._child, lambda: zygote.kill(self._child))
        self._memory.begin()
        self._child.ended.add_done_callback(lambda _: self._frames.hang_up())
        threading.Thread(target=self._tell, args=(ours, facts), name="kinetic-settling", daemon=True).start()

    @property
    def pid(self) -> int:
        return self._child.pid

    @property
    def alive(self) -> bool:
        return not self._child.ended.done() and self._verdict is None

    def call(self, head: Head, packed: Packed | bytes, function: Packed | None) -> Any:
        """Runs a call; gives its value, packed unless it is a simple one.

        Args:
            head: Which.
            packed: Its arguments, as :meth:`Packed.light` gives them or not.
            function: What it calls; None for a method, and where the child has it already.

        Raises:
            CallFailure: It has no value.
        """
        with self._talking:
            try:
                if not self._ready:
                    self._await_ready(head)
                if head is not self._head:  # the same one is kept for many calls
                    self._turn_to(head, function)
                number = self._number = self._number % _MOST_CALLS + 1
                if isinstance(packed, bytes):
                    self._frames.send_short(_CALL, number, head.route, b"", packed)
                else:
                    self._frames.send(_CALL, [head.route, *to_parts(packed, live.name_of)], number)
                frame = self._hear(head.order.timeout)
                self._output.finish()
                value = self._answer(head, frame)
            except OSError:  # it could not be told: it has just died
                raise self._gone(head, "before it could be called") from None
            except (FrameError, ValueError, LookupError, TypeError) as exc:
                self.kill(str(Reason.PROCESS_DIED), f"the host agent could not understand it, and has ended it: {exc}")
                raise self._gone(head, "") from None
        if head.order.actor and not isinstance(packed, bytes) and packed.live:
            self._held.append(packed)  # an instance may keep the refs that it was given
        return value

    def knows(self, digest: str) -> bool:
        """Whether it has that function already."""
        return digest in self._known

    def flush(self, client: str, patience: float) -> bool:
        """Has what it has printed by now passed on, see :meth:`Output.flush`."""
        return self._output.flush(client, patience)

    @property
    def is_silent(self) -> bool:
        """Whether it has ended, and all that it has printed is passed on."""
        return self._output.is_over

    def kill(self, reason: str, message: str) -> None:
        """Ends it with all below it; returns when they are gone. A running call fails for the reason given."""
        if self._verdict is None and not self._child.ended.done():
            self._verdict = (reason, message)
        self._zygote.kill(self._child)
        self._output.await_end(_LAST_WORDS)

    def terminate(self) -> None:
        """Sends it SIGTERM, and does no more; whatever its calls fail of from now on is the loss of its host.

        Before it is ready it could still have the zygote's handler: then it gets the signal later.
        """
        with self._noticing:
            self._is_going = True
            if self._ready:
                self._send_notice()

    def leave(self, patience: float) -> None:
        """Lets an idle one end well: exit handlers, the gang's barrier. After `patience` seconds it is killed."""
        self._verdict = (str(Reason.CANCELLED), "it was told to end")
        try:
            self._frames.send(Kind.LEAVE, [])
            self._child.ended.result(patience)
        except (OSError, TimeoutError):
            self._zygote.kill(self._child)

    def close(self) -> None:
        """Gives back what this process holds of one that has ended."""
        with self._talking:
            self._frames.close()
            self._held.clear()

    # Telling.

    def _tell(self, link: socket.socket, facts: tuple[dict[str, Any], bytes]) -> None:
        """In a thread of its own: a large archive needs a reader."""
        told, archive = facts
        try:
            Lines(link).send(self.task.to_dict())
            self._frames.send(Kind.SETTLE, [json.dumps(told).encode(), archive])
        except OSError as exc:  # dead already, of which its caller hears
            _LOG.info("a child could not be told its task: %s", exc)
        finally:
            self._settled.set_result(None)

    def _turn_to(self, head: Head, function: Packed | None) -> None:
        self._head = None  # should the telling fail
        self._output.turn_to(Whose(head.prints_for, head.order.name))
        self._teach(head.order.function, function)
        self._head = head

    def _teach(self, digest: str, function: Packed | None) -> None:
        if digest in self._known:
            self._known[digest] = self._known.pop(digest)
        elif function is not None:
            while len(self._known) >= _FUNCTIONS:
                oldest = next(iter(self._known))
                del self._known[oldest]
                self._frames.send(Kind.FORGET, [oldest.encode()])
            self._frames.send(Kind.LEARN, [digest.encode(), *to_parts(function, live.name_of)])
            self._known[digest] = None

    # Hearing.

    def _await_ready(self, head: Head) -> None:
        self._settled.result()
        frame = self._hear(None)
        if frame is None:
            raise self._gone(head, f"while it was set up (phase {self._phase or 'fetch'})")
        if frame.kind == Kind.FAILED:
            self._output.finish()
            raise self._failure(head, frame)
        with self._noticing:
            self._ready = True
            if self._is_going:
                self._send_notice()

    def _send_notice(self) -> None:
        if not self._child.ended.done():
            with contextlib.suppress(ProcessLookupError):  # it has just ended
                os.kill(self.pid, signal.SIGTERM)

    def _hear(self, timeout: float | None) -> Frame | None:
        """The next answer; what else the child says is passed over. One that takes too long ends the child."""
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            try:
                if (frame := self._frames.receive(until)) is not None and frame.kind == _VALUE:
                    return frame
            except TimeoutError:
                self.kill(str(Reason.DEADLINE_EXCEEDED), f"it ran longer than timeout={timeout:g} s, and was ended")
                return None
            if frame is None or frame.kind != Kind.SAYS:
                return frame
            self._heed(json.loads(bytes(frame.parts[0])))

    def _heed(self, message: dict[str, Any]) -> None:
        if message.get("t") == "phase":
            self._phase = str(message["phase"])

    def _answer(self, head: Head, frame: Frame | None) -> Any:
        if frame is None:
            raise self._gone(head, "before the function returned")
        if frame.number != self._number and (frame.kind != Kind.FAILED or frame.number):
            raise FrameError("an answer to another call")
        if frame.kind != _VALUE and frame.kind == Kind.FAILED:
            raise self._failure(head, frame)
        if frame.kind != _VALUE:
            raise FrameError(f"an answer of no known kind, {frame.kind}")
        if head.order.kind == "create":
            self.actors.add(head.order.actor)
        if frame.parts[0] == SIMPLE:
            return read_simple(bytes(frame.parts[1]))
        return from_parts(frame.parts[1:], live.as_told)

    def _failure(self, head: Head, frame: Frame) -> CallFailure:
        told = json.loads(bytes(frame.parts[0]))
        failure = self._fail(head, told["reason"], told["message"])
        return self._read(failure.with_fields(traceback=told["traceback"], pickled=bytes(frame.parts[1]) or None))

    def _gone(self, head: Head, when: str) -> CallFailure:
        """The failure of a child that doesn't answer any more; returns when it is gone."""
        try:
            code = self._child.ended.result(_LAST_BREATH)
        except TimeoutError:  # user code has closed what isn't its own
            self.kill(str(Reason.PROCESS_DIED), "the process closed its connection to kinetic, and was ended")
            code = self._child.ended.result()
        self._output.await_end(_LAST_WORDS)
        if self._verdict is not None:
            reason, message = self._verdict
        else:
            reason, message = cause_of_death(code, self._output.words(), when, self._memory.cause(code))
        return self._read(self._fail(head, reason, message).with_fields(exit_code=code, actor=head.order.actor))

    def _read(self, failure: CallFailure) -> CallFailure:
        return failure.under_notice() if self._is_going else failure

    def _fail(self, head: Head, reason: str, message: str) -> CallFailure:
        where = f"{head.order.name} on {self.task.slice_name or 'cpu'}"
        tail = self._output.tail()
        return CallFailure(str(reason), message, self.task.rank, where=where, log_tail=tail, gang=head.gang)

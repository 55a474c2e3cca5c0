"""The serving child: a rank that, once it has settled in, runs one call after the other until its agent lets it go.

What the calls of one function share, they share here as in one process: modules, globals, instances of classes. Its
agent hands it functions, arguments and instances packed; refs to objects of Ray's reach it as names, and only then
does it join the cluster itself, see :mod:`~kinetic_ray.runner.calls.live`.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import FunctionType
from typing import Any

from kinetic_ray.core.state import RankPhase
from kinetic_ray.payload.calls import place_main
from kinetic_ray.runner import distributed, session
from kinetic_ray.runner.calls import live
from kinetic_ray.runner.calls.frames import Frame, Frames
from kinetic_ray.runner.calls.heads import Route, read_route
from kinetic_ray.runner.calls.packing import Packed, pack_value, unpack, unpack_arguments
from kinetic_ray.runner.calls.simple import is_simple
from kinetic_ray.runner.calls.words import SIMPLE, Kind, from_parts, to_parts
from kinetic_ray.runner.capture import describe_error, dump_exception, reason_of, unsendable
from kinetic_ray.runner.settling import (
    await_threads,
    call,
    check_python,
    code_root,
    pose_as_main,
    run_exit_handlers,
    settle_in,
)
from kinetic_ray.runner.task import RankTask

# A member of an enumeration takes longer to look up.
_CALL, _VALUE = int(Kind.CALL), int(Kind.VALUE)
_LOADING, _CALLING, _STORING = RankPhase.LOAD, RankPhase.CALL, RankPhase.STORE
_DRAIN = 1.0
_EXIT_HANDLERS = 5.0


class Server:
    """A child's life; :meth:`run` gives the exit code."""

    def __init__(self, task: RankTask, link: Frames) -> None:
        self._task = task
        self._link = link
        self._phase = RankPhase.FETCH
        self._main: str | None = None
        self._packed: dict[str, Packed] = {}
        self._functions: dict[str, Any] = {}
        self._instances: dict[str, Any] = {}
        self._posed: Any = None
        self._under = ""
        self._last: tuple[bytes, Route, Callable[..., Any]] | None = None  # a call's, for others like it
        self._reporter = session.Reporter(self._say)

    def run(self) -> int:
        """All of it. Never raises: this is the process's edge."""
        try:
            if (first := self._link.receive()) is None:
                return 0
            self._settle(first)
            del first
            self._link.send(Kind.READY, [])
            while self._step():
                pass
            return self._part()
        except OSError:  # the agent is gone
            return 0
        except BaseException as exc:  # noqa: BLE001
            with contextlib.suppress(OSError):
                self._fail(exc)
            return 1

    def _settle(self, first: Frame) -> None:
        facts = json.loads(bytes(first.parts[0]))
        archive = bytes(first.parts[1])
        self._enter(RankPhase.VERIFY)
        if facts["python"]:
            check_python(facts["python"])
        self._main = facts["main"]
        self._enter(RankPhase.UNPACK)
        settle_in(self._task, archive or None, self._reporter)
        self._enter(RankPhase.INIT)
        if self._task.runtime == "jax":
            distributed.join(self._task)

    def _step(self) -> bool:
        """One message. Nothing of it stays in a variable here while the next one is waited for."""
        frame = self._link.receive()
        if frame is not None and frame.kind == _CALL:
            self._serve(frame)
            return True
        if frame is None or frame.kind == Kind.LEAVE:
            return False
        if frame.kind == Kind.LEARN:
            self._packed[bytes(frame.parts[0]).decode()] = from_parts(frame.parts[1:], live.as_told)
        elif frame.kind == Kind.FORGET:
            digest = bytes(frame.parts[0]).decode()
            self._packed.pop(digest, None)
            self._functions.pop(digest, None)
            self._last = None
        return True

    def _serve(self, frame: Frame) -> None:
        try:
            parts = self._run(frame.parts)
        except BaseException as exc:  # noqa: BLE001 - whatever user code raises is an answer
            _flush()
            self._fail(exc, frame.number)
            return
        _flush()
        if parts[0] == SIMPLE:
            self._link.send_short(_VALUE, frame.number, *parts)
        else:
            self._link.send(_VALUE, parts, frame.number)

    def _run(self, told: Sequence[bytes | memoryview]) -> list[Any]:
        self._phase = _LOADING
        last = self._last
        route, function = last[1:] if last is not None and last[0] == told[0] else self._turn_to(bytes(told[0]))
        args, kwargs = _arguments(told)
        del told, last
        self._phase = _CALLING
        value = call(function, args, kwargs)
        if route.kind == "create":
            self._instances[route.actor] = value
            value = None
        del args, kwargs, function
        self._phase = _STORING
        if not route.keeps:
            value = None
        if is_simple(value):
            return [SIMPLE, pickle.dumps(value, 5)]
        return [b"", *to_parts(live.put_to_sleep(_pack(value)), live.name_of)]

    def _turn_to(self, told: bytes) -> tuple[Route, Callable[..., Any]]:
        self._last = None
        route = read_route(told)
        self._come_under(route.ancestors)
        function = self._function(route)
        if route.kind == "function":  # an instance may get other methods, and may be gone
            self._last = (told, route, function)
        return route, function

    def _function(self, route: Route) -> Callable[..., Any]:
        """What to call: the function, the class, or an instance's method."""
        if route.kind == "method":
            return getattr(self._instances[route.actor], route.method)  # type: ignore[no-any-return]
        function = self._functions.get(route.function)
        if function is None:
            # Kept packed as well only until it could be rebuilt: an import that fails may work the next time.
            function = unpack(live.awaken(self._packed[route.function]))
            if self._main is not None:
                place_main(_face(function), code_root(self._task) / self._main)
            self._functions[route.function] = function
            del self._packed[route.function]
        if self._posed is not function:
            pose_as_main(_face(function))
            self._posed = function
        return function  # type: ignore[no-any-return]

    def _come_under(self, ancestors: str) -> None:
        """The leases under which this call runs, its own gang's last: calls from here must not wait for them."""
        if ancestors == self._under:
            return
        self._under = ancestors
        gang = ancestors.rpartition(" ")[2]
        os.environ.update(KINETIC_ANCESTORS=ancestors, KINETIC_JOB_ID=gang)
        if session.CURRENT.context is not None:
            session.CURRENT.context = replace(session.CURRENT.context, job_id=gang)

    def _part(self) -> int:
        """The clean end: what was registered for it, then the barrier."""
        self._phase = RankPhase.FINISH
        self._reporter.drain(_DRAIN)
        await_threads(_EXIT_HANDLERS)
        run_exit_handlers(_EXIT_HANDLERS)
        if self._task.runtime == "jax":
            distributed.leave(self._task)
        return 0

    def _fail(self, exc: BaseException, number: int = 0) -> None:
        error = describe_error(exc)
        pickled = dump_exception(exc) or b""
        message = f"{error.type_name}: {error.message}" if error.message else error.type_name
        if error.value_repr is not None:
            message += f"\nthe value was: {error.value_repr}"
        told = {
            "reason": str(reason_of(exc, self._phase)),
            "message": message,
            "traceback": error.traceback,
            "phase": str(self._phase),
        }
        self._link.send(Kind.FAILED, [json.dumps(told).encode(), pickled], number)

    def _enter(self, phase: RankPhase) -> None:
        self._phase = phase
        self._say({"t": "phase", "phase": str(phase)})

    def _say(self, message: dict[str, Any]) -> None:
        self._link.send(Kind.SAYS, [json.dumps(message).encode()])


def _arguments(told: Sequence[bytes | memoryview]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """From a call's parts: its route, and what :func:`to_parts` made."""
    _route, alive, data, *buffers = told
    if not alive and not buffers:  # nothing but a pickle, as nearly always
        args, kwargs = pickle.loads(data)
        return args, kwargs
    return unpack_arguments(live.awaken(from_parts(told[1:], live.as_told)))


def _pack(value: object) -> Packed:
    try:
        return pack_value(value)
    except Exception as exc:
        raise unsendable(value, exc) from exc


def _face(function: Any) -> Any:
    """Something whose namespace is the function's; of a class, one of its methods."""
    if not isinstance(function, type):
        return function
    return next((each for each in vars(function).values() if isinstance(each, FunctionType)), function)


def _flush() -> None:
    """What user code has printed is out before its value is, also half a line."""
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except Exception:  # noqa: BLE001 - the user's own stream, perhaps closed by now
        with contextlib.suppress(Exception):
            sys.stderr.flush()

"""The Ray actor around a :class:`CallHost`: what it hears from the desk and from clients, what it tells the desk."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar, cast

import ray
from ray._private.worker import global_worker

from kinetic_ray.core.state import Reason
from kinetic_ray.runner.calls.again import Again, is_to_be_kept
from kinetic_ray.runner.calls.courier import Courier, Source
from kinetic_ray.runner.calls.failures import CallFailure
from kinetic_ray.runner.calls.functions import Functions
from kinetic_ray.runner.calls.heads import Head, read_head, split
from kinetic_ray.runner.calls.host import CallHost
from kinetic_ray.runner.calls.packing import Packed
from kinetic_ray.runner.calls.wish import Order

#: Seconds that a call that came too late waits for its function, to be passed on with it.
_ON_ITS_WAY = 5.0

Method = TypeVar("Method", bound=Callable[..., Any])


def _control(method: Method) -> Method:
    """Of those that have threads of their own, so that no call holds them up."""
    return cast(Method, ray.method(concurrency_group="control")(method))


def _direct(method: Method) -> Method:
    """Of those that clients call: few threads, which stay warm, and none that the desk's own calls might wait for."""
    return cast(Method, ray.method(concurrency_group="direct")(method))


class RemoteCallHost:
    """A :class:`CallHost` in its actor. Speaks to the desk, and knows when it was last used."""

    def __init__(self, title: str, desk: Any, place: str) -> None:
        """Does nothing yet.

        Args:
            title: What Ray shows for this actor.
            desk: The desk's handle.
            place: By what name the desk knows this agent.
        """
        self._host = CallHost(title, Courier(self._say).carry, self._forward, in_actor=True)
        self._desk = desk
        self._place = place
        self._running: set[int] = set()  # threads
        self._for_desk: set[int] = set()  # those of them that run the desk's own calls
        self._used_at = time.monotonic()
        self._functions = Functions()
        self._again = Again()
        self._archive: tuple[str, Any] = ("", None)

    def __repr__(self) -> str:
        return repr(self._host)

    @_control
    def describe(self) -> dict[str, Any]:
        return self._host.describe()

    @_control
    def free_port(self) -> int:
        return self._host.free_port()

    @_control
    def hold(self) -> None:
        self._host.hold()

    @_control
    def open(self, seat: dict[str, Any], bundle: bytes | None = None) -> dict[str, Any]:
        if bundle is not None:
            self._archive = (seat["wish"]["bundle"], bundle)
        self._used_at = time.monotonic()
        return self._host.open(seat, bundle)

    @_control
    def retire(self, gang: str) -> None:
        self._host.retire(gang)

    @_control
    def end(self, gang: str, reason: str = "", message: str = "") -> None:
        self._host.end(gang, reason, message)

    @_control
    def announce_end(self, gang: str) -> None:
        self._host.announce_end(gang)

    @_control
    def flush(self, client: str, patience: float) -> None:
        self._host.flush(client, patience)

    @_control
    def stop(self) -> None:
        self._host.stop()

    @_control
    def unused_for(self) -> float:
        """Seconds since the last call ended; 0 while one runs."""
        return 0.0 if self._running else time.monotonic() - self._used_at

    def learn(self, digest: str, function: Packed) -> None:
        self._functions.add(digest, function)
        self._host.learn(digest, function)

    @_direct
    def direct(self, head: bytes, packed: Packed | bytes | None = None) -> Packed:
        """A call from the client to whom this host is lent."""
        if packed is not None:
            return self._serve(read_head(head), packed)
        head, data = split(head)
        told = read_head(head)
        if is_to_be_kept(name := _name_of_call()):
            self._again.keep(name, (told, data))
        return self._serve(told, data)

    @_direct
    def again(self) -> Packed:
        """The call that came under the same name before; see :class:`Again`."""
        told = self._again.get(name := _name_of_call())
        if told is None:
            raise CallFailure(str(Reason.SETUP_ERROR), f"this host knows nothing of {name} any more: call it again")
        return self._serve(*told)

    def call(self, head: bytes, packed: Packed | bytes | None = None) -> Packed:
        if packed is None:
            head, packed = split(head)
        told = read_head(head)
        if told.client != "":
            return self._serve(told, packed)
        self._for_desk.add(threading.get_ident())
        try:
            return self._serve(told, packed)
        finally:
            self._for_desk.discard(threading.get_ident())

    def _serve(self, head: Head, packed: Packed | bytes) -> Packed:
        thread = threading.get_ident()
        self._running.add(thread)
        try:
            return cast(Packed, self._host.serve(head, packed))
        finally:
            self._used_at = time.monotonic()
            self._running.discard(thread)

    def _say(self, number: int, source: Source, lines: Sequence[str]) -> Future[Any]:
        future: Future[Any] = self._desk.say.remote(self._place, number, tuple(source), list(lines)).future()
        return future

    def _forward(self, order: bytes, packed: Packed) -> Packed:
        """A call that came too late for this host goes to the desk, with the code that it needs."""
        told = Order.from_bytes(order)
        if threading.get_ident() in self._for_desk:  # its gang is served with it: passed on, it would wait for itself
            text = f"{told.name}: its gang is not open on this host any more"
            raise CallFailure(str(Reason.SETUP_ERROR), text)
        # It may be on its way still: Ray keeps no order in an actor with threads.
        function = self._functions.get(told.function, _ON_ITS_WAY if told.kind == "function" else 0.0)
        digest, archive = self._archive
        has_archive = archive is not None and digest == told.wish.bundle
        code = [None if function is None else ray.put(function), ray.put(archive) if has_archive else None]
        value: Packed = ray.get(self._desk.call.remote(order, code, packed))
        return value


def _name_of_call() -> str:
    """What `ray.get_runtime_context().get_task_name()` says, in a tenth of the time."""
    return str(global_worker.core_worker.get_current_task_name())

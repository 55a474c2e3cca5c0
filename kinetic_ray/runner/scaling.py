"""Where the broker gets hosts from: it asks a scaler, which on the embedded cluster is the supervisor."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from kinetic_ray import wire
from kinetic_ray.errors import ConfigError, KineticError, UsageError
from kinetic_ray.runner.queue import Slice

#: The supervisor's socket, the address of Ray's head, and "1" where chips are simulated: in the environment of
#: everything that a supervisor starts.
SUPERVISOR, RAY_HEAD, SIMULATED = "KINETIC_SUPERVISOR", "KINETIC_RAY_ADDRESS", "KINETIC_SIMULATED"

#: Seconds until a scaler that failed is asked again, and until a broken event stream is opened again.
RETRY = 1.0

Event = dict[str, Any]
_LOG = logging.getLogger(__name__)


class NeverFits(KineticError):
    """The cluster can't ever have what was asked for; the message says what it has."""


@dataclass(frozen=True, slots=True)
class Offer:
    """A scaler's answer.

    Attributes:
        slices: Slices that are up and were not excluded, at most as many as asked for.
        note: Where they are fewer, though they were to be started: why.
        shared: Where they are fewer: whether all kinds share the hosts, which are started on demand.
    """

    slices: tuple[Slice, ...]
    note: str = ""
    shared: bool = False


class Scaler(Protocol):
    """Starts hosts on demand. All methods block, and may be called from several threads at once."""

    def slices(self, kind: tuple[str, int], count: int, exclude: Sequence[str], *, start: bool = True) -> Offer:
        """Slices of a kind, started if they are missing and there is room.

        Args:
            kind: Canonical name of the accelerator, chips per host.
            count: How many are wanted.
            exclude: Names of slices that are taken.
            start: Whether missing ones are started; else only those are offered that are up.

        Raises:
            NeverFits: There can't be so many at all.
            KineticError: Not this time.
        """

    def check(self, kind: tuple[str, int], count: int) -> None:
        """Does nothing where there can be so many slices of a kind at once.

        Raises:
            NeverFits: There can't.
            KineticError: Not known this time.
        """

    def leases(self, names: Sequence[str], books: Mapping[str, Any]) -> None:
        """Told whenever leases or queue have changed.

        Args:
            names: All slices that are taken; others may be stopped.
            books: For people: see :meth:`Ledger.snapshot`.
        """

    def follow(self, tell: Callable[[Event], None]) -> None:
        """Calls `tell` with each event (`driver_gone`, `host_lost`, `slice_up`); returns when the stream ends.

        The first event of a stream is `following`: what happened before it was not told.
        """


class SocketScaler:
    """Speaks to the embedded cluster's supervisor."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._shares_hosts: bool | None = None

    def slices(self, kind: tuple[str, int], count: int, exclude: Sequence[str], *, start: bool = True) -> Offer:
        request: dict[str, Any] = {"accelerator": kind[0], "chips_per_host": kind[1], "count": count}
        request |= {"exclude": list(exclude), "start": start}
        try:
            answer = wire.call(self._path, {"op": "slices", **request}, timeout=None)
        except UsageError as exc:
            raise NeverFits(str(exc)) from exc
        found = tuple(_slice(one) for one in answer["slices"])
        return Offer(found, str(answer.get("wait") or ""), len(found) < count and self._is_shared())

    def check(self, kind: tuple[str, int], count: int) -> None:
        try:
            wire.call(
                self._path, {"op": "check", "accelerator": kind[0], "chips_per_host": kind[1], "num_slices": count}
            )
        except UsageError as exc:
            raise NeverFits(str(exc)) from exc

    def leases(self, names: Sequence[str], books: Mapping[str, Any]) -> None:
        wire.call(self._path, {"op": "leases", "names": list(names), **books})

    def _is_shared(self) -> bool:
        """Whether kinds share hosts: where no pool is fixed, which is so for as long as the supervisor lives."""
        if self._shares_hosts is None:
            self._shares_hosts = wire.call(self._path, {"op": "hello"})["pool"] is None
        return self._shares_hosts

    def follow(self, tell: Callable[[Event], None]) -> None:
        with wire.connect(self._path) as peer:
            peer.send({"op": "events"})
            while (message := peer.recv()) is not None:
                if "event" in wire.checked(message):
                    tell(message)


def _slice(told: Mapping[str, Any]) -> Slice:
    hosts = sorted(told["hosts"], key=lambda host: int(host["worker_id"]))
    return Slice(told["name"], tuple(host["node_id"] for host in hosts))


def follow(scaler: Scaler, loop: asyncio.AbstractEventLoop, hear: Callable[[Event], Coroutine[Any, Any, None]]) -> None:
    """Has a loop hear a scaler's events, from a thread of their own, for as long as the loop lives."""
    threading.Thread(target=_listen, args=(scaler, loop, hear), name="kinetic-events", daemon=True).start()


def _listen(
    scaler: Scaler, loop: asyncio.AbstractEventLoop, hear: Callable[[Event], Coroutine[Any, Any, None]]
) -> None:
    pause = threading.Event()
    hearing: set[asyncio.Task[None]] = set()  # a loop alone doesn't keep its tasks
    while not loop.is_closed():
        try:
            scaler.follow(partial(_hand_over, loop, hear, hearing))
        except (KineticError, OSError) as exc:
            _LOG.warning("the supervisor's events broke off: %s", exc)
        pause.wait(RETRY)


def _hand_over(
    loop: asyncio.AbstractEventLoop,
    hear: Callable[[Event], Coroutine[Any, Any, None]],
    hearing: set[asyncio.Task[None]],
    event: Event,
) -> None:
    """Has the loop hear an event; one that comes as the loop ends is heard by nobody."""

    def begin() -> None:
        task = loop.create_task(hear(event))
        hearing.add(task)
        task.add_done_callback(hearing.discard)

    with contextlib.suppress(RuntimeError):  # it is closed
        loop.call_soon_threadsafe(begin)


def supervisor_socket() -> str:
    """The supervisor's socket.

    Raises:
        ConfigError: This process was not started by an embedded cluster.
    """
    path = os.environ.get(SUPERVISOR)
    if not path:
        raise ConfigError(f"{SUPERVISOR} is not set: only a kinetic cluster starts drivers, submit the job to one")
    return path


def is_simulated() -> bool:
    """Whether this cluster's chips are CPU devices that stand for them."""
    return os.environ.get(SIMULATED) == "1"

"""Joins this process to its target's Ray cluster, once, for `.remote()` and what belongs to it."""

from __future__ import annotations

import atexit
import logging
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from kinetic_ray import config
from kinetic_ray.backends.base import Entrance, Joinable, load_backend
from kinetic_ray.calls import attaching
from kinetic_ray.calls.lookout import Lookout
from kinetic_ray.config import Target
from kinetic_ray.errors import ConfigError, UsageError
from kinetic_ray.runner.standing import NAMESPACE

_LOG = logging.getLogger("kinetic_ray")

#: As the desk calls itself.
DESK = "kinetic-desk"


@dataclass(frozen=True, slots=True, eq=False)
class Connection:
    """This process's place in a cluster. A process that joins anew gets another one.

    Attributes:
        client: The process's Ray job, in hex.
        desk: Handle of the cluster's desk.
        ancestors: Holders of the leases under which this process runs, outermost first.
        target: Whose cluster it is.
        supervisor: The supervisor's socket.
        ended: Set when the process has left it, or it is gone: refs and actors of it are lost.
    """

    client: str
    desk: Any
    ancestors: tuple[str, ...]
    target: Target
    supervisor: str
    ended: threading.Event = field(default_factory=threading.Event)


def connect(target: Target | None = None) -> Connection:
    """Joins the cluster of a target, or gives the connection that there is.

    Cheap when joined already. Safe from any thread. Joins anew where the cluster was restarted, or where Ray was shut
    down behind our back: then the connection is another object.

    Args:
        target: Where to; None = where this process is joined already, else as the environment says.

    Raises:
        UsageError: The process is connected to another Ray, was forked from a joined one, or the target has no cluster
            that processes can join.
        ConfigError: The cluster can't be reached or started.
    """
    return _PLACE.connect(target)


def disconnect() -> None:
    """Leaves the cluster; does nothing in a process that hasn't joined one."""
    _PLACE.disconnect()


def on_leaving(callback: Callable[[Connection], None]) -> None:
    """Has something done each time just before this process leaves a cluster (disconnect(), the process's end).

    Ray still answers then. What a callback raises is logged, no more. Not called where the cluster has gone first.
    """
    _PLACE.callbacks.append(callback)


def init(*, backend: str | None = None, profile: str | None = None) -> Connection:
    """Joins now instead of at the first call.

    Args:
        backend: As the option of that name.
        profile: A named target.

    Raises:
        UsageError, ConfigError: As for :func:`connect`.
    """
    return connect(config.resolve(backend=backend, profile=profile))


def shutdown() -> None:
    """Leaves the cluster: queued calls of this process are dropped, its actors end. The cluster stays."""
    disconnect()


class _Place:
    """Where this process is. There is one, since Ray itself can be connected once a process only."""

    def __init__(self) -> None:
        self.callbacks: list[Callable[[Connection], None]] = []
        self._lock = threading.RLock()
        self._pid = os.getpid()
        self._connection: Connection | None = None
        self._core: object | None = None  # of Ray's, while there is a connection
        self._lookout: Lookout | None = None
        self._is_ours = False  # Ray was connected by us, and so is shut down by us
        self._at_exit = False

    def connect(self, target: Target | None) -> Connection:
        found = self._connection
        if found is not None and self._holds(found) and (target is None or target == found.target):
            return found
        with self._lock:
            found = self._connection
            if found is None or not self._holds(found):
                return self._join(config.resolve() if target is None else target)
            if target not in (None, found.target):
                raise UsageError(
                    f"this process has joined the cluster of {found.target.home}, and can be in one only: "
                    "call kinetic.shutdown() first, or use another process"
                )
            return found

    def _holds(self, connection: Connection) -> bool:
        if os.getpid() != self._pid:
            raise UsageError(
                "this process was forked from one that had joined a cluster, and Ray does not survive a fork: start "
                'it afresh, by multiprocessing.get_context("spawn") or subprocess, or fork before the first call'
            )
        return attaching.current_core() is self._core and not connection.ended.is_set()

    def _join(self, target: Target) -> Connection:
        """Joins; the lock is held."""
        _check_threads()
        if self._connection is not None:  # Ray was shut down behind our back
            self._forget(self._connection)
        within = config.surroundings()
        before = attaching.attached()
        if before is not None:
            entrance = _same_ray(before, _entrance_from_inside(within) or _live_entrance(target))
        else:
            entrance = _entrance_from_inside(within) or _open_entrance(target)
        if within is None:
            self._look_out(entrance.supervisor)  # before Ray: from here on the cluster isn't idle
        try:
            client, desk = _attach(entrance) if before is None else (before.job, _find_desk(entrance.supervisor))
        except BaseException:
            self._close_lookout()
            raise
        self._is_ours = before is None
        connection = Connection(client, desk, config.ancestors(), target, entrance.supervisor)
        self._pid, self._core, self._connection = os.getpid(), attaching.current_core(), connection
        if not self._at_exit:
            self._at_exit = True
            atexit.register(self.disconnect)  # runs before Ray's own
        return connection

    def _look_out(self, supervisor: str) -> None:
        try:
            self._lookout = Lookout(supervisor, self._lose)
        except OSError as exc:
            raise ConfigError(f"the embedded cluster has just ended ({exc}): try again") from exc

    def _lose(self, lookout: Lookout) -> None:
        """The cluster has gone."""
        with self._lock:
            connection = self._connection
            if self._lookout is not lookout or connection is None:
                return
            _LOG.warning(
                "the embedded cluster has ended (kinetic local stop, or its head died), and with it the refs and "
                "actors of this process; the next call starts it again"
            )
            self._forget(connection)
            if attaching.current_core() is self._core:
                attaching.detach()

    def disconnect(self) -> None:
        """Leaves, where there is something to leave."""
        with self._lock:
            connection = self._connection
            if connection is None or os.getpid() != self._pid:
                return
            is_attached = attaching.current_core() is self._core
            if is_attached:
                self._take_leave(connection)
            self._forget(connection)
            if is_attached and self._is_ours:
                attaching.detach()

    def _take_leave(self, connection: Connection) -> None:
        for callback in tuple(self.callbacks):
            try:
                callback(connection)
            except Exception as exc:  # noqa: BLE001 - leaving goes on, whatever they raise
                _LOG.info("leaving the cluster: %s: %s", type(exc).__name__, exc)

    def _forget(self, connection: Connection) -> None:
        connection.ended.set()
        self._connection = None
        self._close_lookout()

    def _close_lookout(self) -> None:
        if self._lookout is not None:
            self._lookout.close()
            self._lookout = None


def _check_threads() -> None:
    """Refuses a process whose main thread has ended, unless it has what only works if it was imported before.

    `@kinetic.remote` imports it. Ray's way of telling that the desk's class can't be imported is of no use to anybody.
    """
    try:
        import concurrent.futures.thread  # noqa: F401
    except RuntimeError as exc:
        raise UsageError(
            "this process's main thread has ended, and a cluster can't be joined any more: have the main thread wait "
            "for the others (thread.join()), or call kinetic.init() there"
        ) from exc


def _entrance_from_inside(within: config.Surroundings | None) -> Entrance | None:
    """The way in for a part of the cluster itself, whose environment is right already."""
    return None if within is None else Entrance(within.address, within.supervisor, {})


def _live_entrance(target: Target) -> Entrance | None:
    return _joinable(target).join(start=False)


def _open_entrance(target: Target) -> Entrance:
    """The way in, while Ray is imported here: each takes its third of a second."""
    backend = _joinable(target)
    answers: list[Entrance | BaseException | None] = []

    def ask() -> None:
        try:
            answers.append(backend.join())
        except BaseException as exc:  # noqa: BLE001 - raised again below
            answers.append(exc)

    asking = threading.Thread(target=ask, name="kinetic-join", daemon=True)
    asking.start()
    import ray  # noqa: F401

    asking.join()
    (answer,) = answers
    if isinstance(answer, BaseException):
        raise answer
    if answer is None:
        raise ConfigError("the embedded cluster ended while it was being joined: try again")
    return answer


def _joinable(target: Target) -> Joinable:
    backend = load_backend(target)
    if not isinstance(backend, Joinable):
        raise UsageError(
            f"backend {target.backend!r}: a cluster elsewhere can't be joined from here, as .remote() needs it. Use "
            "run_async(...), which needs no connection, or start the script there: kinetic run --in-cluster"
        )
    return backend


def _same_ray(before: attaching.Attached, entrance: Entrance | None) -> Entrance:
    """The way in, if this process has gone it already."""
    if entrance is not None and before.address == entrance.address:
        return entrance
    ours = "which is not up" if entrance is None else f"at {entrance.address}"
    raise UsageError(
        f"this process is connected to another Ray, at {before.address}, and can be in one only; the call needs "
        f"kinetic_ray's own, {ours}. Call ray.shutdown() before, or use another process; .run(...) and "
        ".run_async(...) work beside it"
    )


def _attach(entrance: Entrance) -> tuple[str, Any]:
    """This process's Ray job, and the desk. Both or nothing: a Ray that is left is the user's own to the next try."""
    client = attaching.attach(entrance)
    try:
        return client, _find_desk(entrance.supervisor)
    except BaseException:
        attaching.detach()
        raise


def _find_desk(supervisor: str) -> Any:
    """The cluster's desk; where neither it nor the broker is there yet, both start at the same time."""
    import ray

    try:
        desk = ray.get_actor(DESK, namespace=NAMESPACE)  # as nearly always; importing what makes one takes a while
    except ValueError:
        pass
    else:
        attaching.check_desk(desk)
        return desk
    from kinetic_ray.runner.broker import find_broker
    from kinetic_ray.runner.calls.desk import find_desk

    find_broker(supervisor)
    return find_desk(supervisor)


#: Of the process by nature, as Ray's own connection is.
_PLACE = _Place()

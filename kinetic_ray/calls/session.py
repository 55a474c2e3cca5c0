"""This process's calls: what was sent to the cluster for them, where they go, what comes back beside their values."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kinetic_ray import config
from kinetic_ray.backends.base import Need, load_backend
from kinetic_ray.calls import display
from kinetic_ray.calls.connect import Connection, connect, on_leaving
from kinetic_ray.calls.display import Listener
from kinetic_ray.calls.requests import Request
from kinetic_ray.calls.seats import Got, Line, RayCalls
from kinetic_ray.runner.calls.recent import Recent

if TYPE_CHECKING:
    from kinetic_ray.calls.code import Code

_LOG = logging.getLogger("kinetic_ray")

#: Functions, and archives of code, that stay in Ray's object store for further calls, and the bytes of each.
_FUNCTIONS, _BUNDLES, _MOST_BYTES = 64, 4, 1 << 30
#: Kinds of calls of functions whose place is remembered: each edit of the code makes another one.
_LINES = 128
_GOODBYE_S = 5.0


class Session:
    """The calls of this process over one connection. Thread-safe.

    Args:
        connection: This process's place in the cluster.
        ray: Ray, or what stands in for it.
        show: Gets lines that calls print.
        most_bytes: Of functions that are kept for further calls, and of archives of code.
    """

    def __init__(
        self,
        connection: Connection,
        ray: RayCalls,
        show: Callable[[Iterable[Sequence[Any]]], None] = display.show,
        most_bytes: int = _MOST_BYTES,
    ) -> None:
        self.connection = connection
        self.got = Got()
        self._ray = ray
        self._lock = threading.Lock()
        self._lines: dict[str, Line] = {}
        self._functions = Recent(_FUNCTIONS, most_bytes)
        self._bundles = Recent(_BUNDLES, most_bytes)
        self._unread: list[Any] = []
        self._fitting: set[Need] = set()
        self._abandoned: deque[str] = deque()  # filled while Python collects garbage, where no lock may be taken
        self._listener = Listener(
            connection.desk,
            connection.client,
            recall=self._recall,
            tidy=self._tidy,
            is_over=connection.ended.is_set,
            show=show,
        )

    def send(self, request: Request, packed: Any) -> Any:
        """Sends a call; gives the ref of its value at once."""
        line = self._lines.get(request.line)
        if line is None:
            line = self._new_line(request)
        return line.send(request, packed)

    def send_unread(self, request: Request, packed: Any) -> None:
        """Sends a call whose failure others tell of: Ray would print it as one that nobody has seen."""
        self._unread.append(self.send(request, packed))

    def code_refs(self, code: Code) -> list[Any]:
        """Refs of a function and of the archive that it needs, put into Ray's object store where they aren't yet."""
        with self._lock:
            function = self._kept(self._functions, code.digest, code.function.nbytes, lambda: code.function)
            bundle = code.bundle
            if bundle is None:
                return [function, None]
            data = bundle.data
            return [function, self._kept(self._bundles, code.bundle_digest, len(data), lambda: data)]

    def check(self, need: Need) -> None:
        """Refuses what never fits in the cluster. Inside of a job only the broker knows.

        What fits is asked once, for it fits again; secrets come and go.

        Raises:
            UsageError: It never fits; the message says what does.
            ConfigError: The cluster can't work.
        """
        if (need.secrets or need not in self._fitting) and not config.inside_a_job():
            load_backend(self.connection.target).check(need)
            self._fitting.add(need)

    def put(self, value: Any) -> Any:
        """Puts something into Ray's object store."""
        return self._ray.put(value)

    def kill(self, actor: str, no_restart: bool = True) -> None:
        """Ends an instance; its calls fail. Returns once it is done."""
        self._ray.get(self.connection.desk.kill_actor.remote(actor, no_restart))
        with self._lock:
            self._lines.pop(actor, None)

    def abandon(self, actor: str) -> None:
        """Ends an instance that nobody can call any more, after the calls that it has. Safe from a finalizer."""
        self._abandoned.append(actor)

    def close(self) -> None:
        """Shows what calls have printed, and tells the desk that this process has no more of them."""
        self._listener.stop()
        self._read()
        with contextlib.suppress(Exception):  # whoever doesn't say goodbye is missed a second later
            self._ray.get(self.connection.desk.leave.remote(self.connection.client), timeout=_GOODBYE_S)

    def _new_line(self, request: Request) -> Line:
        with self._lock:
            if (line := self._lines.get(request.line)) is None:
                in_order = bool(request.order.actor)
                desk, client = self.connection.desk, self.connection.client
                line = Line(desk, client, self._ray, in_order=in_order, got=self.got)
                self._lines[request.line] = line
                self._listener.start()
            self._drop_lines()
            return line

    def _drop_lines(self) -> None:
        """Of functions those that were used longest ago. An instance's line counts its calls: it stays with it."""
        lines = [(line.used, name) for name, line in [*self._lines.items()] if not line.in_order]
        for _, name in sorted(lines)[: max(0, len(lines) - _LINES)]:
            self._lines.pop(name, None)

    def _kept(self, table: Recent, digest: str, nbytes: int, make: Callable[[], Any]) -> Any:
        found = table.get(digest)
        return table.add(digest, self._ray.put(make()), nbytes) if found is None else found

    def _read(self) -> None:
        for ref in self._ray.wait(self._unread, num_returns=len(self._unread), timeout=0)[0] if self._unread else ():
            self._unread.remove(ref)
            with contextlib.suppress(Exception):
                self._ray.get(ref)

    def _recall(self, gangs: Sequence[str]) -> None:
        for line in [*self._lines.values()] if gangs else ():
            for gang in gangs:
                line.recall(gang)

    def _tidy(self) -> None:
        self._read()
        quiet = {name for name, line in [*self._lines.items()] if line.is_quiet()}
        for _ in range(len(self._abandoned)):
            actor = self._abandoned.popleft()
            if actor in quiet or actor not in self._lines:
                self._lines.pop(actor, None)
                self.connection.desk.kill_actor.remote(actor, True)
            else:
                self._abandoned.append(actor)


@dataclass(slots=True)
class Current:
    """The process's session, if it has one."""

    session: Session | None = None
    leaves: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)


#: One a process by nature, as its connection is.
CURRENT = Current()


def current_session() -> Session:
    """This process's session; joins the cluster where it hasn't yet.

    Raises:
        UsageError, ConfigError: As for :func:`kinetic_ray.calls.connect.connect`.
    """
    connection = connect()
    session = CURRENT.session
    if session is not None and session.connection is connection:
        return session
    return _new_session(connection)


def _new_session(connection: Connection) -> Session:
    import ray

    with CURRENT.lock:
        if CURRENT.session is None or CURRENT.session.connection is not connection:
            CURRENT.session = Session(connection, ray)
        if not CURRENT.leaves:
            on_leaving(_close)
            CURRENT.leaves = True
        return CURRENT.session


def _close(connection: Connection) -> None:
    with CURRENT.lock:
        session = CURRENT.session
        if session is None or session.connection is not connection:
            return
        CURRENT.session = None
    session.close()

"""Whose a host is: the gang that it is open for, the child that serves it, and how one gives way to another."""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from kinetic_ray.core.outcome import Blob
from kinetic_ray.core.spec import BundleRef
from kinetic_ray.core.state import Reason
from kinetic_ray.errors import ConfigError, UsageError
from kinetic_ray.runner.calls.courier import Source
from kinetic_ray.runner.calls.failures import CallFailure
from kinetic_ray.runner.calls.heads import Head
from kinetic_ray.runner.calls.output import Whose
from kinetic_ray.runner.calls.warm import WarmChild
from kinetic_ray.runner.calls.wish import Wish
from kinetic_ray.runner.hosting import ZygoteKeeper, fresh_folder, node_id, ray_address
from kinetic_ray.runner.task import HostPlan, RankTask

#: Seconds for the exit handlers of a child that is idle, and for its gang's barrier.
_LEAVE = 3.0
#: Likewise where a new child waits for the place.
_MAKE_ROOM = 2.0
#: Archives that a host remembers.
_ARCHIVES = 2


@dataclass(frozen=True)
class Seat:
    """What a host is open for.

    Attributes:
        gang: Whose calls.
        client: For which client they are.
        wish: What was asked for.
        task: The rank.
        prints: Whose lines are that no call has printed: a client, a name, and the place of all lines.
    """

    gang: str
    client: str
    wish: Wish
    task: RankTask
    prints: tuple[str, str, str] = ("", "", "")

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> Seat:
        wish = Wish.from_dict(data["wish"])
        task = replace(RankTask.from_dict(data["task"]), job_id=data["gang"], serves=True)
        if wish.bundle and task.bundle is None:
            task = replace(task, bundle=BundleRef(Blob(wish.bundle, 0), wish.sys_path, wish.cwd))
        client, name, where = data.get("prints", ("", "", ""))
        return Seat(data["gang"], data["client"], wish, task, (client, name, where))

    @property
    def plan(self) -> HostPlan:
        """What its zygote is made for."""
        wish, task = self.wish, self.task
        return HostPlan(task.runtime, task.chips, task.simulated, wish.env_vars, wish.secrets)

    def is_served_by(self, other: Seat) -> bool:
        """Whether the child of another seat does for this one: a rank of a larger gang only for its own peers."""
        if self.wish.key != other.wish.key or _shape(self.task) != _shape(other.task):
            return False
        return self.task.world_size == 1 or (
            self.gang == other.gang
            and self.task.coordinator == other.task.coordinator
            and self.task.attempt == other.task.attempt
        )


def _shape(task: RankTask) -> RankTask:
    return replace(task, job_id="", env={}, attempt=0, coordinator="", work_dir="")


def _way_to_ray() -> dict[str, str]:
    """What lets a child join the cluster, where the host's own environment doesn't say it."""
    address = "" if "RAY_ADDRESS" in os.environ else ray_address()
    return {"RAY_ADDRESS": address} if address else {}


class Tenancy:
    """The host's zygote, its child, its seat. Thread-safe."""

    def __init__(self, tell: Callable[[Source, Sequence[str]], None]) -> None:
        """Begins empty.

        Args:
            tell: Gets the lines of children. Called in a thread of the child's, which waits for it.
        """
        self._tell = tell
        self._zygotes = ZygoteKeeper()
        self._moving = threading.Lock()  # while children come and go
        self._lock = threading.Lock()  # of the fields below, never held for long
        self._seat: Seat | None = None
        self._child: WarmChild | None = None
        self._printing: list[WarmChild] = []  # and those before it, until all of theirs is passed on
        self._lives_for: Seat | None = None
        self._archives: dict[str, bytes] = {}
        self._numbers = itertools.count(1)
        self._closed = False

    def open(self, seat: Seat, archive: bytes | None, *, busy: bool) -> tuple[WarmChild, bool]:
        """The child for a seat, and whether it was there already.

        Args:
            seat: For whom the host is open from now on.
            archive: The project's; None where there is none, or where it is remembered.
            busy: Whether a call runs.

        Raises:
            CallFailure: It can't be started.
        """
        with self._moving:
            self._remember(seat.wish.bundle, archive)
            child = self._child
            warm = child is not None and self._does_for(seat, child)
            if not warm:
                self._vacate(busy=busy)
                child = self._begin(seat)
            with self._lock:
                self._seat = self._lives_for = seat
            return child, warm  # type: ignore[return-value] # one that is warm is there

    def is_open_for(self, head: Head) -> bool:
        """Whether a call belongs here."""
        with self._lock:
            seat = self._seat
        return seat is not None and (seat.gang, seat.client) == (head.gang, head.client)

    def child_for(self, head: Head) -> WarmChild | None:
        """The child for a call whose turn it is: a new one if it has ended meanwhile. None: it doesn't belong here.

        Raises:
            CallFailure: It can't be started, or the call's instance or its peers have ended with it.
        """
        seat, child = self._seat, self._child  # each is read whole without the lock
        if seat is None or seat.gang != head.gang or seat.client != head.client:
            return None
        if child is None or not child.alive:
            child = self._again(head)
        if child is not None and head.order.kind == "method" and head.order.actor not in child.actors:
            text = "the process in which it lived has ended"
            raise CallFailure(str(Reason.PROCESS_DIED), text, gang=head.gang, actor=head.order.actor)
        return child

    def retire(self, gang: str) -> None:
        """The host is not open for a gang any more; its child stays."""
        with self._lock:
            if self._seat is not None and self._seat.gang == gang:
                self._seat = None

    def end(self, gang: str, reason: str, message: str, *, busy: bool) -> None:
        """Ends a gang's child; one that is idle, and ended for no reason, may take its leave."""
        self.retire(gang)
        with self._moving:
            child, seat = self._child, self._lives_for
            if child is None or seat is None or seat.gang != gang:
                return
            if child.alive and not reason and not busy:
                child.leave(_LEAVE)
            else:
                child.kill(reason or str(Reason.CANCELLED), message or "it was cancelled")
            self._forget()

    def announce_end(self, gang: str) -> None:
        """The host is about to be taken away, of which a gang's child is told."""
        with self._lock:
            child, seat = self._child, self._lives_for
        if child is not None and seat is not None and seat.gang == gang:
            child.terminate()

    def flush(self, client: str, patience: float) -> None:
        """Has what was printed by now passed on, see :meth:`Output.flush`."""
        with self._lock:
            printing = list(self._printing)
        for child in printing:
            child.flush(client, patience)

    def close(self) -> None:
        """Ends everything."""
        with self._moving:
            self._closed = True
            self._kill("its host agent was stopped")
            self._zygotes.drop()

    def _does_for(self, seat: Seat, child: WarmChild) -> bool:
        lived = self._lives_for
        if not child.alive or lived is None or (child.actors and lived.gang != seat.gang):
            return False
        return seat.is_served_by(lived)

    def _again(self, head: Head) -> WarmChild | None:
        """A new child in place of one that has ended between calls."""
        with self._moving:
            seat = self._seat
            if seat is None or not self.is_open_for(head):
                return None
            if head.order.kind == "method" or seat.task.world_size > 1:
                text = "its process ended after the last call" if self._child else "its process has ended"
                failure = CallFailure(str(Reason.PROCESS_DIED), text, seat.task.rank, gang=head.gang)
                raise failure.with_fields(where=head.order.name, actor=head.order.actor)
            self._vacate(busy=False)
            return self._begin(seat)

    def _begin(self, seat: Seat) -> WarmChild:
        try:
            child = self._start(seat)
        except (ConfigError, UsageError, OSError) as exc:
            text = f"its process can't be started: {exc}"
            raise CallFailure(str(Reason.SETUP_ERROR), text, seat.task.rank, gang=seat.gang) from exc
        with self._lock:
            self._child, self._lives_for = child, seat
        return child

    def _start(self, seat: Seat) -> WarmChild:
        if self._closed:
            raise UsageError("this host agent was stopped")
        digest = seat.wish.bundle
        archive = self._archives.get(digest, b"")
        if digest and not archive:
            raise UsageError(f"the project's archive {digest[:12]} is not on this host")
        zygote = self._zygotes.zygote_for(seat.plan)
        folder = fresh_folder(zygote, f"call-{next(self._numbers)}", with_code=bool(digest))
        env = {"KINETIC_NODE_ID": node_id(), **_way_to_ray(), **seat.task.env}
        task = replace(seat.task, work_dir=str(folder), env=env)
        facts = {"python": seat.wish.python, "main": seat.wish.main}
        child = WarmChild(zygote, task, (facts, archive), partial(self._take, seat))
        with self._lock:
            self._printing = [*(one for one in self._printing if not one.is_silent), child]
        return child

    def _take(self, seat: Seat, whose: Whose, lines: Sequence[str]) -> None:
        """Lines of a child that was made for a seat; those of one that is gone may come when the next is there."""
        client, name, where = seat.prints
        client = whose.client or seat.client or client
        self._tell(Source(client, whose.name or name, seat.task.rank, where), lines)

    def _vacate(self, *, busy: bool) -> None:
        """Makes room for another child."""
        child, seat = self._child, self._lives_for
        if child is not None and child.alive and not busy and seat is not None and seat.task.world_size == 1:
            child.leave(_MAKE_ROOM)
            self._forget()
        else:
            self._kill("its host was given to another gang")

    def _kill(self, message: str) -> None:
        if self._child is not None:
            self._child.kill(str(Reason.CANCELLED), message)
            self._forget()

    def _forget(self) -> None:
        with self._lock:
            child, self._child = self._child, None
        if child is not None:
            child.close()

    def _remember(self, digest: str, archive: bytes | None) -> None:
        if digest and archive is not None:
            self._archives.pop(digest, None)
            self._archives[digest] = archive
            while len(self._archives) > _ARCHIVES:
                del self._archives[next(iter(self._archives))]

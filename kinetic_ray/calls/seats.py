"""Where this process's calls go: straight to an agent that the desk has lent it, else to the desk."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any, Protocol

from kinetic_ray.calls.posting import Post, poster
from kinetic_ray.calls.requests import Request
from kinetic_ray.runner.calls.again import MOST_BYTES, MOST_TOLD, new_name
from kinetic_ray.runner.calls.heads import before_data, call_head

#: Ray's words for an actor that can't be called, as a handle's local state: restarting, dead. A handle that has just
#: arrived knows nothing of its actor yet, and says that it is being made.
GONE = (3, 4)
#: Bytes of arguments from which the desk gets a ref of them: it would copy them otherwise, to hand them on.
_LARGE = 100 << 10
#: Seconds that a call waits for a seat that is on its way while nothing else is: a loop of calls would be ahead of it
#: each time, and take back what the call before was about to be lent.
_ARRIVES = 0.05
#: Heads and digests that a seat remembers: every edit of the code makes another one.
_REMEMBERED = 64
#: Refs that are known to be there.
_GOT = 256
#: Different arguments of one kind of call that are sent once.
_AGAIN = 8


class RayCalls(Protocol):
    """What is used of Ray's module here."""

    def get(self, refs: Any, *, timeout: float | None = None) -> Any: ...
    def put(self, value: Any) -> Any: ...
    def wait(self, refs: Any, *, num_returns: int = 1, timeout: float | None = None) -> tuple[list[Any], list[Any]]: ...


class _Named:
    """Calls that one seat's agent knows by name. It forgets those that it was told first, so all are forgotten here."""

    def __init__(self) -> None:
        self._kinds: list[dict[bytes, Post]] = []
        self._told = 0

    def table(self) -> dict[bytes, Post]:
        """Those of one more kind, by their arguments."""
        self._kinds.append({})
        return self._kinds[-1]

    def clear(self) -> None:
        """No kind is in use any more."""
        self._kinds = []

    def note(self) -> None:
        """One more is about to be told."""
        self._told += 1
        if self._told % MOST_TOLD == 0:
            for kind in self._kinds:
                kind.clear()


class _Bound:
    """One kind of call on one seat, with what is worked out once for all of them."""

    def __init__(self, agent: Any, head: bytes, name: str, named: _Named) -> None:
        self.head = head
        self._agent = agent
        self._name = name
        self._before = before_data(head)
        self._post = poster(agent, "direct", name)
        self._named = named
        self._again = named.table()
        self._last = b""

    def send(self, data: bytes) -> Any:
        """With these pickled arguments. From the third time on that they are the same, they aren't sent any more."""
        again = self._again.get(data)
        if again is not None:
            return again()
        if data != self._last:
            self._last = data
            return self._post(self._before + data)
        return self._teach(data)

    def _teach(self, data: bytes) -> Any:
        name = new_name(self._name)
        if len(data) <= MOST_BYTES:
            self._named.note()
            if len(self._again) >= _AGAIN:
                del self._again[next(iter(self._again))]
            self._again[data] = poster(self._agent, "again", name)
        return poster(self._agent, "direct", name)(self._before + data)


class Seat:
    """A gang of one host that is lent to this process. Calls are sent one after the other."""

    def __init__(self, gang: str, agent: Any, client: str) -> None:
        self.gang = gang
        self._agent = agent
        self._client = client
        self._taught: set[str] = set()
        self._bound: dict[bytes, _Bound] = {}  # by the order: a request holds the code
        self._named = _Named()

    def is_there(self) -> bool:
        """Whether its agent lives, as far as Ray knows at this moment."""
        return self._agent._get_local_state() not in GONE  # noqa: SLF001 - the only way to ask that without a call

    def send(self, request: Request, packed: Any) -> Any:
        """Calls the agent. The function goes before its first call; the agent has the call wait for it."""
        bound = self._bound.get(request.data)
        if bound is None:
            bound = self._prepared(request)
        data = packed.light()
        if type(data) is bytes:  # in one piece: each argument of a call costs Ray some time
            return bound.send(data)
        return self._agent.direct.options(name=request.order.name).remote(bound.head, data)

    def _prepared(self, request: Request) -> _Bound:
        if len(self._bound) >= _REMEMBERED:
            self._bound.clear()
            self._named.clear()
            self._taught.clear()
        order = request.order
        if order.kind == "function" and order.function not in self._taught:
            self._agent.learn.options(name=f"learn {order.name}").remote(order.function, request.code[0])
            self._taught.add(order.function)
        head = call_head(gang=self.gang, client=self._client, order=order, keeps=True)
        bound = self._bound[request.data] = _Bound(self._agent, head, order.name, self._named)
        return bound


class Got:
    """What this process has waited for: that is there, and Ray needn't be asked. Thread-safe."""

    def __init__(self) -> None:
        self._refs: set[bytes] = set()

    def add(self, ref: Any) -> None:
        """Its value has come."""
        if len(self._refs) >= _GOT:
            self._refs = set()
        self._refs.add(ref.binary())

    def has(self, ref: Any) -> bool:
        """Whether its value is known to have come."""
        return ref.binary() in self._refs


class Line:
    """The calls of one kind from this process. A direct call is sent only while no other is on its way there.

    Args:
        desk: The cluster's desk.
        client: This process, as the desk knows it.
        ray: Ray, or what stands in for it.
        in_order: Whether calls through the desk count as well: those of an instance must not overtake each other.
        got: What is known to be there.

    Attributes:
        in_order: As given.
        used: When it was used last.
    """

    def __init__(self, desk: Any, client: str, ray: RayCalls, *, in_order: bool, got: Got | None = None) -> None:
        self._desk = desk
        self._client = client
        self._ray = ray
        self.in_order = in_order
        self._lock = threading.Lock()
        self._seat: Seat | None = None
        self._lending: Any = None
        self._awaited: Any = None
        self._by_desk: Any = None
        self._refused = False
        self._recalled: set[str] = set()  # while a seat is on its way: it may be one of these
        self._last: Any = None
        self._straight: Any = None  # the last call of an instance that went past the desk
        self._got = got or Got()
        self._sent = 0
        self.used = time.monotonic()

    def send(self, request: Request, packed: Any) -> Any:
        """Sends a call; gives the ref of its value at once."""
        with self._lock:
            self.used = time.monotonic()
            seat = self._free_seat()
            if seat is not None:
                self._last = seat.send(request, packed)
                if self.in_order:
                    self._straight = self._last
                return self._last
            by_desk = self._desk.call.options(name=request.order.name)
            carried = [self._ray.put(packed)] if packed.nbytes > _LARGE else packed
            ref = by_desk.remote(request.data, self._placed(request), carried)
            self._by_desk = ref
            if self.in_order:
                self._last = ref
            if request.is_lendable and self._seat is None and self._lending is None and not self._refused:
                self._lending = self._desk.lend.remote(request.data)
            return ref

    def recall(self, gang: str) -> None:
        """The desk wants a gang back: calls go to the desk again."""
        with self._lock:
            if self._seat is not None and self._seat.gang == gang:
                self._seat = None
            elif self._lending is not None:
                self._recalled.add(gang)

    def is_quiet(self) -> bool:
        """Whether no call is on its way. Lets go of the last one's value once it is there, which may be large."""
        with self._lock:
            if self._last is not None and self._is_done(self._last):
                self._last = None
            if self._by_desk is not None and self._is_done(self._by_desk):
                self._by_desk = None
            if self._straight is not None and self._is_done(self._straight):
                self._straight = None
            return self._last is None

    def _placed(self, request: Request) -> Sequence[Any]:
        """The code; of a method's call also its place, since Ray may deliver calls in another order.

        Behind that the call that went straight to the host and may still be on its way there: the desk, which would
        have the host back, must not be faster.
        """
        if request.order.kind != "method":
            return request.code
        self._sent += 1
        if self._straight is not None and self._is_done(self._straight):
            self._straight = None
        return [*request.code, self._sent - 1, *([] if self._straight is None else [self._straight])]

    def _free_seat(self) -> Seat | None:
        if self._lending is not None and self._has_come():
            self._sit_down()
        if self._seat is not None and not self._seat.is_there():
            self._seat = None
        if self._seat is None or (self._last is not None and not self._is_done(self._last)):
            return None
        return self._seat

    def _has_come(self) -> bool:
        """Whether the desk has answered about a seat; each answer is waited for once at most."""
        if self._lending is self._awaited or (self._by_desk is not None and not self._is_done(self._by_desk)):
            return self._is_done(self._lending)
        self._awaited = self._lending
        return bool(self._ray.wait([self._lending], timeout=_ARRIVES)[0])

    def _sit_down(self) -> None:
        lending, self._lending, self._awaited = self._lending, None, None
        try:
            lent = self._ray.get(lending)
        except Exception:  # noqa: BLE001 - the desk is gone or can't: its own calls will tell
            lent = None
        recalled, self._recalled = self._recalled, set()
        if lent is not None and lent["gang"] not in recalled:
            self._seat = Seat(lent["gang"], lent["agent"], self._client)
        self._refused = lent is None and self.in_order  # of an instance that won't change

    def _is_done(self, ref: Any) -> bool:
        return self._got.has(ref) or bool(self._ray.wait([ref], timeout=0)[0])

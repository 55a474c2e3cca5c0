"""The head of a call: what an agent has to know of it, in one piece of bytes that is made once and used often."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import lru_cache

from kinetic_ray.runner.calls.wish import Order

#: Bytes in which the length of a head stands before it.
_SIZE = 4


@dataclass(frozen=True, slots=True)
class Head:
    """A call as its agent sees it.

    Attributes:
        gang: The gang that it was sent to.
        client: The client for which it is.
        order: All of it.
        keeps: Whether this rank's value is wanted; else it is dropped on the host, and needn't be picklable.
        route: What the child has to know.
    """

    gang: str
    client: str
    order: Order
    keeps: bool
    route: bytes = field(repr=False)

    @property
    def prints_for(self) -> str:
        """Who gets its lines: the process that calls."""
        return self.order.client

    @property
    def order_bytes(self) -> bytes:
        """As the desk takes it."""
        return self.order.to_bytes()


def call_head(*, gang: str, client: str, order: Order, keeps: bool = True) -> bytes:
    """The head of a call. It holds nothing of a single call: make it once per function, gang and options.

    Args:
        gang: The gang that it goes to, as in the seat.
        client: The client for which it is, as in the seat.
        order: What is called.
        keeps: Whether this rank's value is wanted.
    """
    return json.dumps([gang, client, order.to_dict(), keeps]).encode()


@lru_cache(maxsize=1024)
def read_head(head: bytes) -> Head:
    """What :func:`call_head` made; the same bytes are read once."""
    gang, client, order_dict, keeps = json.loads(head)
    order = Order.from_dict(order_dict)
    ancestors = " ".join((*order.ancestors, gang))
    route = [order.kind, order.function, order.actor, order.method, bool(keeps), order.name, ancestors]
    return Head(gang, client, order, bool(keeps), json.dumps(route).encode())


def before_data(head: bytes) -> bytes:
    """What stands before a call's pickled arguments where both travel in one piece."""
    return len(head).to_bytes(_SIZE, "little") + head


def split(told: bytes) -> tuple[bytes, bytes]:
    """A head, and the pickled arguments behind it."""
    end = _SIZE + int.from_bytes(told[:_SIZE], "little")
    return told[_SIZE:end], told[end:]


@dataclass(frozen=True, slots=True)
class Route:
    """What the child has to know of a call.

    Attributes:
        kind: As :class:`Order`'s.
        function: Digest of the function or class.
        actor: Id of the instance; "" for functions.
        method: Its method; "" for others.
        keeps: Whether the value is wanted.
        name: The function's, for people.
        ancestors: Holders under whose leases this call runs, its own gang last; separated by spaces.
    """

    kind: str
    function: str
    actor: str
    method: str
    keeps: bool
    name: str
    ancestors: str


@lru_cache(maxsize=1024)
def read_route(route: bytes) -> Route:
    """What stands in :attr:`Head.route`."""
    return Route(*json.loads(route))

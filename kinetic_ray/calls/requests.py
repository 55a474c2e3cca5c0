"""A call but for its arguments: made once for the same code and options, used at every call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from kinetic_ray.runner.calls.wish import Order


@dataclass(frozen=True, slots=True, eq=False)
class Request:
    """A call but for its arguments.

    Attributes:
        order: What the desk is told.
        data: The same as bytes.
        code: Refs of the packed function and of the project's archive, as the desk takes them.
    """

    order: Order
    data: bytes = field(repr=False)
    code: Sequence[Any]

    @property
    def line(self) -> str:
        """Which calls follow one another: those of one instance, or those that the same gangs can serve."""
        return self.order.actor or self.order.wish.key

    @property
    def is_lendable(self) -> bool:
        """Whether a single host can serve it, so that this process may call its agent itself."""
        return self.order.wish.ranks == 1 and self.order.kind != "create"


def request_of(order: Order, code: Sequence[Any]) -> Request:
    """A request, ready to be sent."""
    return Request(order, order.to_bytes(), code)

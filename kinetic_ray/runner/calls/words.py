"""What an agent and its serving child say to each other: kinds of messages, and how a packed value lies in one."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import Any

from kinetic_ray.runner.calls.frames import Part
from kinetic_ray.runner.calls.packing import Live, Packed

#: What stands for a ref or an actor handle that travels outside of Ray's own messages.
Wire = dict[str, Any]
SIMPLE = b"simple"


class Kind(IntEnum):
    """Kinds of messages; the parts of each are named beside it. VALUE and FAILED bear the number of their CALL."""

    # To the child.
    SETTLE = 1  # facts (JSON), the archive
    LEARN = 2  # digest, packed function
    FORGET = 3  # digest
    CALL = 4  # route, packed arguments
    LEAVE = 5
    # To the agent.
    READY = 10
    SAYS = 11  # JSON: a phase or a report
    VALUE = 12  # nothing, packed value; or SIMPLE, a pickle without classes
    FAILED = 13  # JSON: the failure's fields; the pickled exception or nothing


def to_parts(packed: Packed, name: Callable[[Any], Wire] | None = None) -> list[Part]:
    """A packed value as parts of a message: what is live in it, the pickle, its buffers.

    Args:
        packed: The value; where one of its live objects is packed itself, that value goes along.
        name: Says how a ref or an actor handle travels; not needed where there are none.
    """
    if not packed.live:
        return [b"", _part(packed.data), *map(_part, packed.buffers)]
    more: list[Part] = []
    live = _live_to_wire(packed.live, name, more, 2 + len(packed.buffers))
    return [json.dumps(live).encode(), _part(packed.data), *map(_part, packed.buffers), *more]


def from_parts(parts: Sequence[bytes | memoryview], find: Callable[[Wire], Any] | None = None) -> Packed:
    """What :func:`to_parts` made.

    Args:
        parts: Of a message.
        find: Makes a ref or an actor handle from its name.

    Raises:
        ValueError: They are no packed value.
    """
    if len(parts) < 2:
        raise ValueError(f"a packed value has 2 parts at least, not {len(parts)}")
    if not parts[0]:
        return Packed(parts[1], parts[2:])
    told = json.loads(bytes(parts[0]))
    live = _live_from_wire(told, find, parts)
    first = min((place for entry in told for place in _places(entry)), default=len(parts))
    return Packed(parts[1], parts[2:first], live)


def _live_to_wire(live: Sequence[Live], name: Callable[[Any], Wire] | None, more: list[Part], first: int) -> list[Wire]:
    wires = []
    for obj, is_value in live:
        if isinstance(obj, Packed):
            start = first + len(more)
            more += [_part(obj.data), *map(_part, obj.buffers)]
            places = list(range(start, first + len(more)))
            wires.append({"parts": places, "live": _live_to_wire(obj.live, name, more, first), "is_value": is_value})
        elif name is None:
            raise ValueError(f"there is no way for a {type(obj).__name__}")
        else:
            wires.append({**name(obj), "is_value": is_value})
    return wires


def _live_from_wire(
    told: Sequence[Wire], find: Callable[[Wire], Any] | None, parts: Sequence[bytes | memoryview]
) -> tuple[Live, ...]:
    live = []
    for entry in told:
        if "parts" in entry:
            data, *buffers = (parts[place] for place in entry["parts"])
            obj: Any = Packed(data, buffers, _live_from_wire(entry["live"], find, parts))
        elif find is None:
            raise ValueError("there is no way for a live object")
        else:
            obj = find(entry)
        live.append(Live(obj, bool(entry["is_value"])))
    return tuple(live)


def _places(entry: Wire) -> list[int]:
    if "parts" not in entry:
        return []
    return [*entry["parts"], *(place for inner in entry["live"] for place in _places(inner))]


def _part(data: Any) -> Part:
    return data if isinstance(data, bytes | bytearray | memoryview) else memoryview(data)

"""What makes a call large: said by name and size where it is much, refused where it is too much."""

from __future__ import annotations

import io
import logging
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from pickle import PickleBuffer
from types import FunctionType, MethodType
from typing import IO, Any, NamedTuple, cast

from kinetic_ray import config
from kinetic_ray.errors import PayloadError
from kinetic_ray.payload.blame import captured_by, kind_of, parts_of
from kinetic_ray.payload.parts import Payload
from kinetic_ray.payload.pickling import CallPickler
from kinetic_ray.settings import megabytes

_LOG = logging.getLogger("kinetic_ray")

#: What a function may capture without a word.
MUCH = 10_000_000
_LIMIT = "payload_limit_mb"
_MOST_NAMED = 3
_DEEPEST = 6

ByValue = Callable[[str], bool]


class Weight(NamedTuple):
    """A part of a call, and how much it makes.

    Attributes:
        path: Where it is, e.g. "the function's global BIG".
        kind: Its class.
        nbytes: Of its own pickle.
    """

    path: str
    kind: str
    nbytes: int

    def __str__(self) -> str:
        return f"{self.path} ({self.kind}, {self.nbytes / 1e6:.1f} MB)"


def judge(payload: Payload, call: tuple[Any, tuple[Any, ...], Mapping[str, Any]], by_value: ByValue) -> None:
    """Says what is large, or refuses it.

    Args:
        payload: The call, pickled.
        call: The function, its arguments, its keyword arguments.
        by_value: As the call was pickled with.

    Raises:
        PayloadError: More than KINETIC_PAYLOAD_LIMIT_MB; names the largest parts.
    """
    if payload.nbytes <= MUCH:
        return
    function, args, kwargs = call
    name = getattr(function, "__name__", type(function).__name__)
    if payload.nbytes > (limit := megabytes(_LIMIT, config.setting(_LIMIT))):
        parts = [*_captured(function, by_value), *_arguments(args, kwargs, by_value)]
        raise PayloadError(
            f"{name}: the call has {payload.nbytes / 1e6:.0f} MB, more than the {limit / 1e6:.0f} MB of "
            f"KINETIC_PAYLOAD_LIMIT_MB: {_largest(parts)}. Load it inside the function, from a file or the store, "
            "or raise the limit"
        )
    if payload.captured_bytes > MUCH:
        _say(name, _largest(list(_captured(function, by_value))))


def _largest(parts: list[Weight]) -> str:
    parts = sorted(parts, key=lambda part: -part.nbytes)
    large = [part for part in parts if part.nbytes >= parts[0].nbytes / 10][:_MOST_NAMED] if parts else []
    return ", ".join(map(str, large)) or "many small parts"


@lru_cache(maxsize=256)  # once, not at every call of a loop
def _say(name: str, what: str) -> None:
    _LOG.warning(
        "%s takes along %s. It is stored once, and read by every rank; better load it inside the function", name, what
    )


def _captured(function: Any, by_value: ByValue) -> Iterator[Weight]:
    """What a function that goes by value takes along, and what the functions that it takes along do."""
    seen: set[int] = set()
    waiting = [("the function", function)]
    while waiting:
        path, value = waiting.pop()
        value = value.__func__ if isinstance(value, MethodType) else value
        if id(value) in seen or not isinstance(value, FunctionType) or not by_value(value.__module__):
            continue
        seen.add(id(value))
        for label, part in captured_by(value):
            if isinstance(part, FunctionType):
                waiting.append((path + label, part))
            else:
                yield Weight(path + label, kind_of(part), _size(part, by_value))


def _arguments(args: tuple[Any, ...], kwargs: Mapping[str, Any], by_value: ByValue) -> Iterator[Weight]:
    for path, value in [
        *((f"args[{place}]", value) for place, value in enumerate(args)),
        *((f"kwargs[{name!r}]", value) for name, value in kwargs.items()),
    ]:
        yield _heaviest(Weight(path, kind_of(value), _size(value, by_value)), value, by_value)


def _heaviest(weight: Weight, value: Any, by_value: ByValue) -> Weight:
    """The part of a value that makes nearly all of it."""
    for _ in range(_DEEPEST):
        if weight.nbytes < MUCH:
            break
        for label, part in parts_of(value):
            nbytes = _size(part, by_value)
            if nbytes > 0.8 * weight.nbytes:
                weight, value = Weight(weight.path + label, kind_of(part), nbytes), part
                break
        else:
            break
    return weight


class _Scales(io.RawIOBase):
    """A file that only counts."""

    nbytes = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self.nbytes += (count := memoryview(data).nbytes)
        return count


def _size(value: object, by_value: ByValue) -> int:
    """Bytes of a value's own pickle; what can't be pickled alone weighs nothing."""
    scales = _Scales()

    def take(buffer: PickleBuffer) -> bool:
        scales.nbytes += buffer.raw().nbytes
        return False

    try:
        CallPickler(by_value, take, cast(IO[bytes], scales)).dump(value)
    except Exception:  # noqa: BLE001 - whatever the user's own __reduce__ raises without the rest of the call
        return 0
    return scales.nbytes

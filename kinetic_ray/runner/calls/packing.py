"""Values on their way: pickled once, carried as bytes by agents and the desk, rebuilt only where users read them.

A :class:`Packed` is what Ray carries. Its large buffers go beside the pickle, so that an array is copied once, into
Ray's object store, and read from there without a copy. Refs and actor handles inside a value go beside it too, as Ray's
own, so that Ray counts them: the pickle holds only their places.
"""

from __future__ import annotations

import pickle
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pickle import PickleBuffer
from typing import Any, NamedTuple

from kinetic_ray.payload.calls import refusal
from kinetic_ray.payload.pickling import CallPickler, ValuePickler

#: Smaller buffers stay in the pickle: a copy of them costs less than a place of their own.
OUT_OF_BAND = 64 << 10

ByValue = Callable[[str], bool]
Buffer = bytes | bytearray | memoryview | PickleBuffer


class Live(NamedTuple):
    """A ref or an actor handle inside a value.

    Attributes:
        obj: Ray's own object; where the value of a ref has been fetched, that value.
        is_value: A ref that was an argument itself: the function gets its value.
    """

    obj: Any
    is_value: bool = False


@dataclass(slots=True)
class _Mode:
    keeps: bool = False


class _Opening(threading.local):
    """What the pickle that this thread is reading refers to by place."""

    live: Sequence[Live] = ()


#: Of the process by nature: it says what Ray's reading of a value means in it.
_MODE = _Mode()
_OPENING = _Opening()


def keep_packed(keeps: bool = True) -> None:
    """Lets values stay packed in this process when Ray hands them over: agents and the desk never look inside."""
    _MODE.keeps = keeps


def keeps_packed() -> bool:
    """Whether :func:`keep_packed` was called in this process."""
    return _MODE.keeps


class Packed:
    """A pickled value. In a user's process Ray gives the value in its place, see :func:`keep_packed`.

    Attributes:
        data: The pickle.
        buffers: What lies beside it, in the pickle's order.
        live: Refs and actor handles in it, by place.
    """

    __slots__ = ("buffers", "data", "live")

    def __init__(self, data: Buffer, buffers: Sequence[Buffer] = (), live: Sequence[Live] = ()) -> None:
        self.data = data
        self.buffers = tuple(buffers)
        self.live = tuple(live)

    @property
    def nbytes(self) -> int:
        """Bytes in all."""
        return sum(memoryview(part).nbytes for part in (self.data, *self.buffers))

    def light(self) -> Packed | bytes:
        """What to give to an agent: the pickle alone where that is all of it, which Ray carries in less time."""
        data = self.data
        alone = not self.buffers and not self.live and isinstance(data, bytes) and len(data) < OUT_OF_BAND
        return data if alone and isinstance(data, bytes) else self

    def __repr__(self) -> str:
        return f"Packed({self.nbytes} bytes, {len(self.buffers)} buffers, {len(self.live)} live)"

    def __reduce_ex__(self, _protocol: Any) -> tuple[Any, ...]:
        data = self.data
        if not isinstance(data, bytes) or len(data) >= OUT_OF_BAND:
            data = PickleBuffer(data)
        return reopen, (data, tuple(map(tuple, self.live)), *map(PickleBuffer, self.buffers))


class PackedList:
    """Some packed values that Ray gives as the list of their values: what all ranks of a gang returned.

    Attributes:
        items: By rank.
    """

    __slots__ = ("items",)

    def __init__(self, items: Sequence[Packed]) -> None:
        self.items = tuple(items)

    def __repr__(self) -> str:
        return f"PackedList({len(self.items)})"

    def __reduce_ex__(self, _protocol: Any) -> tuple[Any, ...]:
        return reopen_list, self.items


def reopen(data: Buffer, live: Sequence[tuple[Any, bool]], *buffers: Buffer) -> Any:
    """What Ray calls for a :class:`Packed` that it has carried: the value, or itself where values stay packed."""
    packed = Packed(data, buffers, tuple(Live(*each) for each in live))
    return packed if _MODE.keeps else unpack(packed)


def reopen_list(*items: Any) -> Any:
    """What Ray calls for a :class:`PackedList`."""
    return PackedList(items) if _MODE.keeps else list(items)


def unpack(packed: Packed) -> Any:
    """The value. Its arrays lie in the packed buffers themselves.

    Raises:
        Exception: Whatever the classes in it raise as they are imported and rebuilt.
    """
    before = _OPENING.live
    _OPENING.live = packed.live
    try:
        return pickle.loads(packed.data, buffers=packed.buffers)
    finally:
        _OPENING.live = before


def live_at(place: int) -> Any:
    """What pickles call for a ref or an actor handle. Part of what is sent."""
    return _OPENING.live[place].obj


def pack_value(value: object) -> Packed:
    """Packs what a function has returned.

    Raises:
        Exception: Whatever pickling raises.
    """
    if _is_plain(value):
        return Packed(pickle.dumps(value, 5))
    aside = _Aside()
    pickler = _ValuePickler(aside)
    return aside.packed(pickler.dumps(value))


def pack_arguments(args: Sequence[Any], kwargs: Mapping[str, Any], by_value: ByValue, name: str = "the call") -> Packed:
    """Packs the arguments of a call, in one pickle: what they share stays shared.

    Args:
        args: By place. Refs among them are marked: the function gets their values.
        kwargs: By name, likewise.
        by_value: Asked for a loaded module: True if a host can't import it.
        name: The function's, for the message.

    Raises:
        PayloadError: Something can't be pickled; names it, e.g. "args[1]['model'].lock".
    """
    call = (tuple(args), dict(kwargs))
    if all(map(_is_plain, call[0])) and all(map(_is_plain, call[1].values())):
        return Packed(pickle.dumps(call, 5))
    aside = _Aside(_refs_among((*call[0], *call[1].values())))
    try:
        return aside.packed(_Pickler(by_value, aside).dumps(call))
    except Exception as exc:
        dump = lambda obj: _Pickler(by_value, _Aside()).dumps(obj)  # noqa: E731
        raise refusal(name, (None, *call), dump, exc) from exc


#: No arguments.
NOTHING = Packed(pickle.dumps(((), {}), 5))


def unpack_arguments(packed: Packed) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """What :func:`pack_arguments` packed.

    Raises:
        Exception: Whatever the classes in it raise as they are imported and rebuilt.
    """
    args, kwargs = unpack(packed) if packed.live else pickle.loads(packed.data, buffers=packed.buffers)
    return args, kwargs


def pack_function(function: Any, by_value: ByValue) -> tuple[Packed, frozenset[str]]:
    """Packs a function or a class.

    Args:
        function: With what it captures.
        by_value: Asked for a loaded module: True if a host can't import it.

    Returns:
        It, and the names of the modules that it refers to.

    Raises:
        PayloadError: Something can't be pickled; names it.
    """
    aside = _Aside()
    pickler = _Pickler(by_value, aside)
    try:
        data = pickler.dumps(function)
    except Exception as exc:
        name = getattr(function, "__name__", type(function).__name__)
        dump = lambda obj: _Pickler(by_value, _Aside()).dumps(obj)  # noqa: E731
        raise refusal(name, (function, (), {}), dump, exc) from exc
    return aside.packed(data), frozenset(pickler.modules)


class _Aside:
    """What leaves a pickle while it is made."""

    def __init__(self, values: Sequence[Any] = ()) -> None:
        """Begins.

        Args:
            values: Refs that stand for their values.
        """
        self._values = {id(ref) for ref in values}
        self._buffers: list[memoryview] = []
        self._live: list[Live] = []
        self._kinds = _live_kinds()

    def take_buffer(self, buffer: PickleBuffer) -> bool:
        """As a pickler's `buffer_callback`: whether it stays in the pickle."""
        raw = buffer.raw()
        if raw.nbytes < OUT_OF_BAND:
            return True
        self._buffers.append(raw)
        return False

    def reduce(self, obj: Any) -> Any:
        """How to pickle a ref or an actor handle; NotImplemented for anything else."""
        if not isinstance(obj, self._kinds):
            return NotImplemented
        self._live.append(Live(obj, id(obj) in self._values))
        return live_at, (len(self._live) - 1,)

    def packed(self, data: bytes) -> Packed:
        return Packed(data, self._buffers, self._live)


class _Pickler(CallPickler):
    def __init__(self, by_value: ByValue, aside: _Aside) -> None:
        super().__init__(by_value, aside.take_buffer)
        self._aside = aside

    def reducer_override(self, obj: Any) -> Any:
        found = self._aside.reduce(obj)
        return super().reducer_override(obj) if found is NotImplemented else found


class _ValuePickler(ValuePickler):
    def __init__(self, aside: _Aside) -> None:
        super().__init__(aside.take_buffer)
        self._aside = aside

    def reducer_override(self, obj: Any) -> Any:
        found = self._aside.reduce(obj)
        return super().reducer_override(obj) if found is NotImplemented else found


_PLAIN = frozenset((type(None), bool, int, float, str, bytes))


def _is_plain(value: object) -> bool:
    """Whether any pickler gives the same bytes for it, so that the quickest will do."""
    return type(value) in _PLAIN


def opened(value: Any) -> Any:
    """What a user's process gets for an agent's answer: the value itself."""
    return unpack(value) if isinstance(value, Packed) else value


def _live_kinds() -> tuple[type, ...]:
    """Ray's classes; where Ray was not imported there can be no objects of them."""
    ray = sys.modules.get("ray")
    try:
        return () if ray is None else (ray.ObjectRef, ray.actor.ActorHandle)
    except AttributeError:  # another thread is importing it just now
        return ()


def _refs_among(values: Sequence[Any]) -> list[Any]:
    kinds = _live_kinds()
    return [value for value in values if isinstance(value, kinds[:1])]

"""A value on its way into the store: one pickle, whose large parts are never copied on the way.

What is stored is a pickle that anything with Python's own `pickle` reads. Without large buffers it is the plain one.
With them it is the call `pickle.loads(inner, buffers=[...])`, spelled in opcodes: so the buffers are written straight
from the memory that they lie in, and a reader's `pickle.load(file)` reads each straight into the memory where it stays.
"""

from __future__ import annotations

import functools
import io
import pickle
import sys
from collections.abc import Iterator, Sequence
from pickle import PickleBuffer
from typing import IO, Any, cast

from kinetic_ray.payload.parts import LARGE
from kinetic_ray.payload.pickling import ValuePickler

_CHUNK = 4 << 20


class PackedValue:
    """A pickled value. Large arrays and bytes in it are the value's own memory until it is stored.

    Attributes:
        nbytes: Of all of it.
    """

    def __init__(self, pieces: Sequence[bytes | memoryview]) -> None:
        self._pieces = tuple(pieces)
        self.nbytes = sum(len(piece) for piece in self._pieces)

    def __repr__(self) -> str:
        return f"PackedValue({self.nbytes} bytes)"

    def chunks(self) -> Iterator[bytes]:
        """All of it in order, as often as it is asked for.

        A chunk is a copy: what is hashed and what is written are the same, whoever changes an array meanwhile.
        """
        for piece in self._pieces:
            for start in range(0, len(piece), _CHUNK):
                yield bytes(piece[start : start + _CHUNK])


def pack_value(value: object, large: int = LARGE) -> PackedValue:
    """Pickles a value.

    Args:
        value: The value.
        large: From how many bytes on a buffer lies beside the pickle.

    Raises:
        Exception: Whatever pickling it raises.

    Example:
        >>> pickle.loads(b"".join(pack_value([PickleBuffer(bytearray(b"abc")), "x"]).chunks()))
        [bytearray(b'abc'), 'x']
    """
    buffers: list[memoryview] = []

    def stays(buffer: PickleBuffer) -> bool:
        raw = buffer.raw()
        if raw.nbytes >= large:
            buffers.append(raw)
        return raw.nbytes < large

    rope = _Rope()
    _Pickler(stays, file=cast(IO[bytes], rope)).dump(value)
    return PackedValue(rope.pieces if not buffers else [*_with_buffers(rope.pieces, buffers)])


class _Pickler(ValuePickler):
    """Takes large arrays of jax as NumPy's, which lie where they lay; jax's own way copies them twice."""

    def reducer_override(self, obj: Any) -> Any:
        jax = sys.modules.get("jax")
        if jax is not None and isinstance(obj, getattr(jax, "Array", ())) and _can_be_told(obj):
            host = jax.device_get(obj)
            is_foreign = host.dtype.isbuiltin != 1  # bfloat16, say, of which NumPy shows nobody the memory
            return device_array, (host.view(f"u{host.dtype.itemsize}") if is_foreign else host, host.dtype)
        return super().reducer_override(obj)


def _can_be_told(array: Any) -> bool:
    """Whether an array is large, all here, and no more than its numbers: a tracer isn't, nor is a key."""
    try:
        is_plain = isinstance(getattr(array.dtype, "isbuiltin", None), int) and not array.weak_type
        return bool(is_plain and array.nbytes >= LARGE and array.is_fully_addressable)
    except Exception:  # noqa: BLE001 - a deleted array's, a tracer's: jax's own way says what is wrong
        return False


def device_array(host: Any, dtype: Any) -> Any:
    """An array of jax from one of NumPy. Its name and form are part of the stored format."""
    import jax

    return jax.device_put(host if host.dtype == dtype else host.view(dtype))


class _Rope(io.RawIOBase):
    """A file that keeps what is written as it comes: large bytes come as themselves, and need no copy."""

    def __init__(self) -> None:
        super().__init__()
        self.pieces: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self.pieces.append(data if type(data) is bytes else bytes(data))
        return len(self.pieces[-1])


def _with_buffers(inner: Sequence[bytes], buffers: Sequence[memoryview]) -> Iterator[bytes | memoryview]:
    """`functools.partial(pickle.loads, inner, buffers=[...])()` in opcodes; a keyword needs the partial."""
    yield pickle.PROTO + b"\x05" + _global(functools.partial) + _global(pickle.loads)
    yield pickle.BINBYTES8 + _length(sum(map(len, inner)))
    yield from inner
    yield pickle.TUPLE2 + pickle.EMPTY_DICT + _text("buffers") + pickle.EMPTY_LIST + pickle.MARK
    for buffer in buffers:
        yield pickle.BYTEARRAY8 + _length(buffer.nbytes)
        yield buffer
    yield pickle.APPENDS + pickle.SETITEM + pickle.NEWOBJ_EX + pickle.EMPTY_TUPLE + pickle.REDUCE + pickle.STOP


def _global(found: Any) -> bytes:
    return (
        _text({"_pickle": "pickle"}.get(found.__module__, found.__module__))
        + _text(found.__name__)
        + (pickle.STACK_GLOBAL)
    )


def _text(text: str) -> bytes:
    data = text.encode()
    return pickle.SHORT_BINUNICODE + bytes([len(data)]) + data


def _length(size: int) -> bytes:
    return size.to_bytes(8, "little")

"""A payload as it is stored: a small index, and large parts under their own digests, so that none is stored twice."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kinetic_ray.core.outcome import Blob
from kinetic_ray.errors import ConfigError, PayloadError

#: Of the index; a reader refuses what is newer. 1 was one pickle of everything.
VERSION = 2
#: Smaller parts stay in the index: an object of its own costs more than sending them again.
LARGE = 1 << 20

Part = bytes | memoryview


@dataclass(frozen=True, slots=True)
class Payload:
    """A pickled call. Its buffers are the caller's own memory until it is stored.

    Attributes:
        function: The function's pickle, with what it captures.
        arguments: The arguments' pickle, which goes on where the function's ends.
        buffers: What lies beside the two, in their order.
        captured: How many of the buffers are the function's.
        main: The script's path in the bundle.
        modules: Names of the modules that it refers to.
    """

    function: bytes = field(repr=False)
    arguments: bytes = field(repr=False)
    buffers: tuple[memoryview, ...] = ()
    captured: int = 0
    main: str | None = None
    modules: frozenset[str] = frozenset()

    @property
    def nbytes(self) -> int:
        """Bytes in all."""
        return len(self.function) + len(self.arguments) + sum(buffer.nbytes for buffer in self.buffers)

    @property
    def captured_bytes(self) -> int:
        """Bytes of the function, with what it captures."""
        return len(self.function) + sum(buffer.nbytes for buffer in self.buffers[: self.captured])

    @property
    def data(self) -> bytes:
        """All of it in one piece."""
        return self._index(bytes)

    def store(self, put: Callable[[bytes], Blob]) -> Blob:
        """Stores it.

        Args:
            put: Stores bytes under their digest, and sends nothing if they are there.

        Returns:
            What to give to a reader.
        """

        def place(part: Part) -> bytes | dict[str, Any]:
            data = bytes(part)  # what is hashed and what is written are the same, whoever changes an array meanwhile
            if len(data) < LARGE:
                return data
            blob = put(data)
            return {"sha256": blob.sha256, "size": blob.size}

        return put(self._index(place))

    def _index(self, place: Callable[[Part], bytes | dict[str, Any]]) -> bytes:
        index = {
            "version": VERSION,
            "main": self.main,
            "function": place(self.function),
            "arguments": place(self.arguments),
            "buffers": [place(buffer) for buffer in self.buffers],
        }
        return pickle.dumps(index, protocol=5)


@dataclass(frozen=True, slots=True)
class Opened:
    """A call, rebuilt.

    Attributes:
        function: What is called.
        args: Its arguments.
        kwargs: Its keyword arguments.
        main: The script's path in the bundle.
    """

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    main: str | None


def open_payload(data: bytes, fetch: Callable[[Blob], bytes] | None = None) -> Opened:
    """Rebuilds a call; imports the modules that it refers to.

    Args:
        data: What :meth:`Payload.store` has stored, or :attr:`Payload.data`.
        fetch: Gives a stored part.

    Raises:
        ConfigError: Written by a newer kinetic_ray.
        Exception: Whatever importing the user's modules raises.
    """
    found = pickle.loads(data)
    version = found.get("version") if isinstance(found, dict) else None
    if not isinstance(version, int):
        raise PayloadError(f"the payload ({len(data)} bytes) is no kinetic call")
    if version > VERSION:
        raise ConfigError(
            f"the payload has format version {version}, this kinetic_ray reads up to {VERSION}: upgrade it"
        )
    if version == 1:
        return Opened(found["function"], found["args"], found["kwargs"], found["main"])
    return _from_index(found, fetch)


def _from_index(index: Mapping[str, Any], fetch: Callable[[Blob], bytes] | None) -> Opened:
    def part(told: Any) -> bytes:
        if isinstance(told, bytes):
            return told
        if fetch is None:
            raise PayloadError("the payload has parts in a store, and nothing was given to fetch them with")
        return fetch(Blob.from_dict(told))

    # A buffer that was writable has to be so again; the pickle itself says of the others that they aren't.
    buffers = [bytearray(part(told)) for told in index["buffers"]]
    function, (args, kwargs) = _loaded([part(index["function"]), part(index["arguments"])], buffers)
    return Opened(function, args, kwargs, index["main"])


def _loaded(pickles: Sequence[bytes], buffers: Sequence[bytearray]) -> list[Any]:
    """What pickles of one pickler hold, each of which may refer to what stood in those before."""
    reader = pickle.Unpickler(io.BytesIO(b"".join(pickles)), buffers=buffers)
    return [reader.load() for _ in pickles]

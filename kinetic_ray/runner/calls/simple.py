"""Simple values: those that Ray carries as they are, without a pickle. A child's answer may be one."""

from __future__ import annotations

import io
import pickle
from functools import lru_cache
from typing import Any

_KINDS = frozenset((type(None), bool, int, float, str))
_MOST_DIGITS = 63
_LONGEST = 1 << 10


def is_simple(value: object) -> bool:
    """Whether a value is None, a truth, a number, a short text."""
    if type(value) not in _KINDS:
        return False
    if isinstance(value, int):
        return value.bit_length() <= _MOST_DIGITS
    return not isinstance(value, str) or (len(value) <= _LONGEST and value.isascii())


@lru_cache(maxsize=256)
def read_simple(data: bytes) -> Any:
    """A simple value from its pickle, whoever has sent it.

    Raises:
        ValueError: It isn't one.
    """
    try:
        value = _Reader(io.BytesIO(data)).load()
    except Exception as exc:
        raise ValueError(f"not a simple value: {exc}") from exc
    if not is_simple(value):
        raise ValueError(f"not a simple value: a {type(value).__name__}")
    return value


class _Reader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"{module}.{name} in a simple value")

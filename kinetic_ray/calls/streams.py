"""What gives no plain value: coroutines and generators can't leave their process."""

from __future__ import annotations

import inspect
from typing import Any


def is_stream(function: Any) -> bool:
    """Whether a call of it gives a coroutine or a generator."""
    kinds = (inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction)
    return any(is_kind(function) for is_kind in kinds)

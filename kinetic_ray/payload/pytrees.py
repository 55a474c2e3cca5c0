"""Classes that JAX takes apart: what a script has registered for its own classes travels with them.

A class of a script goes by value, but what its decorator did to JAX's registry does not: on a host its instances would
be leaves, and some functions would give other results without a word.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from typing import Any

#: In JAX: of each registered class how it is taken apart and put together. JAX has no public way to ask.
_TREES, _REGISTRY = "jax._src.tree_util", "_registry"
_OF_DATACLASSES = "register_dataclass.<locals>.flatten_func"


def with_registration(cls: type, reduced: Any) -> Any:
    """How to pickle a class by value: as told, and with what JAX knows of it.

    Args:
        cls: The class.
        reduced: Its six parts, as cloudpickle's reducer says.
    """
    entry = getattr(sys.modules.get(_TREES), _REGISTRY, {}).get(cls)
    if entry is None or not isinstance(reduced, tuple) or len(reduced) != 6:
        return reduced
    make, args, state, items, pairs, fill = reduced
    return make, args, (fill, state, *_registration(cls, entry)), items, pairs, fill_registered


def fill_registered(cls: type, told: tuple[Callable[..., Any], Any, str, tuple[Any, ...]]) -> type:
    """Fills a class, and registers it where it isn't yet. Its name and form are part of the stored format."""
    fill, state, register, args = told
    fill(cls, state)
    with contextlib.suppress(ImportError, ValueError):  # no JAX here; registered already, as the reader's own is
        from jax import tree_util

        getattr(tree_util, register)(cls, *args)
    return cls


def _registration(cls: type, entry: Any) -> tuple[str, tuple[Any, ...]]:
    """The function of `jax.tree_util` that was called, and with what beside the class."""
    take, put = entry
    if getattr(take, "__qualname__", "") == _OF_DATACLASSES:
        kept = dict(zip(take.__code__.co_freevars, (cell.cell_contents for cell in take.__closure__), strict=True))
        data, meta = [*kept["data_fields"]], [*kept["meta_fields"]]
        fields = getattr(cls, "__dataclass_fields__", {}).values()
        dropped = [one.name for one in fields if one.init and one.name not in (*data, *meta)]
        return "register_dataclass", (data, meta, dropped)
    if getattr(put, "__self__", None) is cls and getattr(put, "__name__", "") == "tree_unflatten":
        has_keys = getattr(cls, "tree_flatten_with_keys", None) is not None
        return f"register_pytree_{'with_keys' if has_keys else 'node'}_class", ()
    return "register_pytree_node", (take, put)

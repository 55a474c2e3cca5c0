"""What pickle says of a script's own objects that no host could read: a mere name, a lock, a constructor's lack.

A cached function, a sentinel or a `NewType` of a script is pickled as a name of `__main__`, which a host's `__main__`
doesn't have. A function that dispatches by type holds weak references, a `cached_property` a lock (before Python 3.12).
So each goes as what it is made of.
"""

from __future__ import annotations

import enum
import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from types import FunctionType, ModuleType
from typing import Any, ParamSpec, TypeVarTuple

import cloudpickle

#: The code that all functions which dispatch by type share.
_DISPATCH = getattr(functools.singledispatch(lambda value: value), "__code__")  # noqa: B009 - a function, whatever its type says
_CACHED = type(functools.cache(lambda: None))
_NAMED = (_CACHED, FunctionType)
#: What `singledispatch` gives its function.
_DISPATCHERS = ("__wrapped__", "register", "dispatch", "registry", "_clear_cache")
#: Of types, whose instances are no more than their names.
_BY_NAME_ALONE = (ParamSpec, TypeVarTuple)
#: What a module has of the machinery of imports.
_NOT_ITS_OWN = ("__builtins__", "__loader__", "__spec__", "__cached__")
#: By which a class says what its `__new__` takes.
_MADE_WITH = ("__getnewargs__", "__getnewargs_ex__")

#: Kinds of which cloudpickle, or whoever told Python's registry, says how they go: methods, cells, properties.
_SPOKEN_FOR = cloudpickle.Pickler.dispatch_table

ByValue = Callable[[str], bool]


def reduced_wrapper(obj: Any, goes_by_value: ByValue) -> Any:
    """How to pickle one of these; None for all others.

    Args:
        obj: Anything that is no class, module or exception.
        goes_by_value: Asked for a module: True if what it defines can't be imported where the pickle is read.
    """
    kind = type(obj)
    if kind is functools.cached_property:
        return _cached_property_reduced(obj)
    if kind in _SPOKEN_FOR or not _is_the_scripts(obj, kind, goes_by_value):
        return None
    if kind is _CACHED:
        return cached_again, (obj.__wrapped__, obj.cache_parameters()), _own(obj)
    if kind is FunctionType:
        return _dispatching_reduced(obj) if obj.__code__ is _DISPATCH else None
    return _instance_reduced(obj, kind)


def module_reduced(module: ModuleType) -> Any:
    """How to pickle a module that no import finds where the pickle is read: with all that it holds."""
    state = {name: value for name, value in vars(module).items() if name not in _NOT_ITS_OWN}
    return ModuleType, (module.__name__,), state


def cached_again(function: Callable[..., Any], parameters: Mapping[str, Any]) -> Any:
    """A function with a cache of its own, empty. Its name and form are part of the stored format."""
    return functools.lru_cache(**parameters)(function)


def dispatching_again(function: Callable[..., Any]) -> Any:
    """A function that dispatches by its first argument's type. Part of the stored format."""
    return functools.singledispatch(function)


def fill_dispatching(function: Any, told: tuple[Sequence[tuple[type, Any]], Mapping[str, Any]]) -> Any:
    """Gives it what was registered, which may lead back to it. Part of the stored format."""
    implementations, own = told
    for kind, implementation in implementations:
        function.register(kind, implementation)
    function.__dict__.update(own)
    return function


def without_constructor(kind: type) -> Any:
    """An instance of a class whose `__new__` wants what nobody kept. Part of the stored format."""
    return object.__new__(kind)


def _is_the_scripts(obj: Any, kind: type, goes_by_value: ByValue) -> bool:
    """Whether an object can't be found under its name, its class's if it has none, where the pickle is read."""
    try:
        module = obj.__module__
    except Exception:  # noqa: BLE001 - an object may answer with code of its own
        return False
    if not isinstance(module, str):
        return False
    return goes_by_value(module) or (kind in _NAMED and "<locals>" in obj.__qualname__)


def _cached_property_reduced(found: Any) -> Any:
    state = {name: value for name, value in vars(found).items() if name not in ("func", "lock")}
    return functools.cached_property, (found.func,), state


def _own(wrapper: Any) -> dict[str, Any] | None:
    """What a wrapper has been given beyond what it takes over from what it wraps."""
    beneath = getattr(wrapper.__wrapped__, "__dict__", {})
    own = {name: value for name, value in vars(wrapper).items() if name != "__wrapped__" and name not in beneath}
    return {name: value for name, value in own.items() if name not in functools.WRAPPER_ASSIGNMENTS} or None


def _dispatching_reduced(function: Any) -> Any:
    registry = dict(function.registry)
    base = registry.pop(object, function.__wrapped__)
    own = {name: value for name, value in vars(function).items() if name not in _DISPATCHERS}
    return dispatching_again, (base,), ([*registry.items()], own), None, None, fill_dispatching


def _instance_reduced(obj: Any, kind: type) -> Any:
    """Of an instance that would go by a name, or could not be made again."""
    if all(getattr(kind, way) is getattr(object, way) for way in ("__reduce__", "__reduce_ex__")):
        return _unmade_reduced(obj, kind)
    told = obj.__reduce_ex__(5)
    if not isinstance(told, str):
        return told
    if isinstance(obj, enum.Enum):
        return kind, (obj.value,)
    if kind in _BY_NAME_ALONE:
        return kind, (obj.__name__,)
    return _as_its_parts(obj, kind, told)


def _as_its_parts(obj: Any, kind: type, name: str) -> Any:
    try:
        object.__new__(kind)
        state = object.__getstate__(obj)
    except TypeError:
        raise TypeError(
            f"it is pickled as the name {name!r}, which a host's __main__ does not have: define it in a module of the "
            "project"
        ) from None
    return without_constructor, (kind,), state


def _unmade_reduced(obj: Any, kind: type) -> Any:
    made = kind.__new__
    if not isinstance(made, FunctionType) or any(getattr(kind, name, None) for name in _MADE_WITH):
        return None
    try:
        inspect.signature(made).bind(kind)
    except TypeError:
        pass
    else:
        return None
    reduced = object.__reduce_ex__(obj, 5)
    is_plain = isinstance(reduced, tuple) and reduced[1] == (kind,)
    return (without_constructor, (kind,), *reduced[2:]) if is_plain else None

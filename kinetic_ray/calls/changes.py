"""Whether what a function refers to may have changed since it was pickled, told by identities: nothing is read.

What can't change is compared by being the same object. Whatever could change in itself (a list, an instance, an array,
a class that travels by value) is not judged at all: with such a thing in it a function is pickled at each call, and the
digest decides.
"""

from __future__ import annotations

import datetime as dt
import enum
import functools
import logging
import operator
import pathlib
import re
import sys
import typing
from collections.abc import Callable, Iterable, Iterator
from types import BuiltinFunctionType, CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from cloudpickle.cloudpickle import _extract_code_globals

from kinetic_ray.payload.pickling import found_as

ByValue = Callable[[str], bool]

#: Values of exactly these types stay as they are; the last ones travel as a name.
_SOLID = frozenset(
    (
        *(type(None), bool, int, float, complex, str, bytes, range, type(...), type(NotImplemented)),
        *(dt.date, dt.datetime, dt.time, dt.timedelta, dt.timezone),
        *(re.Pattern, pathlib.PosixPath, pathlib.PurePosixPath, CodeType, logging.Logger),
    )
)
#: What is the function's own; its defaults are a tuple, which can't change in itself.
_FACTS = operator.attrgetter("__code__", "__name__", "__qualname__", "__module__", "__doc__", "__defaults__")
#: What the pickle of a function takes of the module that it was made in.
_MODULE_FACTS = ("__package__", "__name__", "__path__", "__file__")
_MISSING = object()
_MOST = 10_000
_MOST_WRAPPERS = 32

Parts = tuple[Any, ...]


class Marks:
    """A function's parts at one time.

    Args:
        function: What is pickled.
        by_value: Asked for a loaded module: True if a host can't import it.
    """

    def __init__(self, function: Any, by_value: ByValue) -> None:
        self._by_value = by_value
        self._named: list[tuple[str, str, Any]] = []
        self._read: list[tuple[Callable[[], Parts], Parts]] = []
        self._modules = len(sys.modules)  # a function of a package takes the submodules that are loaded
        #: Whether all of it can be judged.
        self.is_solid = self._take_all(function)

    def hold(self) -> bool:
        """Whether nothing can have changed since."""
        if not self.is_solid or len(sys.modules) != self._modules:
            return False
        for read, parts in self._read:
            now = read()
            if len(now) != len(parts) or any(map(operator.is_not, now, parts)):
                return False
        return all(found_as(module, name) is found for module, name, found in self._named)

    def _take_all(self, root: Any) -> bool:
        seen: dict[int, Any] = {}
        waiting = [root]
        while waiting:
            obj = waiting.pop()
            if id(obj) in seen or obj is _MISSING:
                continue
            seen[id(obj)] = obj
            further = self._take(obj)
            if further is None or len(seen) > _MOST:
                self._named, self._read = [], []  # they would only keep things alive
                return False
            waiting += further
        return True

    def _take(self, obj: Any) -> Iterable[Any] | None:
        """What else has to be looked at; None for what can't be judged."""
        kind = type(obj)
        if kind in _SOLID:
            return ()
        if kind in _SPLIT:
            return _SPLIT[kind](obj)
        if kind is FunctionType:
            return self._take_function(obj)
        if kind is functools.partial:
            return self._reread(functools.partial(_parts_of_partial, obj))
        if isinstance(obj, type | ModuleType):
            return () if self._goes_by_name(obj) else None
        return _parts_of_other(obj)

    def _take_function(self, function: FunctionType) -> Iterable[Any]:
        if self._goes_by_name(function):
            return ()
        names = (*_extract_code_globals(function.__code__), *_MODULE_FACTS)
        return self._reread(functools.partial(_parts_of_function, function, names))

    def _reread(self, read: Callable[[], Parts]) -> Parts:
        parts = read()
        self._read.append((read, parts))
        return parts

    def _goes_by_name(self, obj: Any) -> bool:
        """Whether a module, class or function does; then all that matters is that it stays so."""
        if isinstance(obj, ModuleType):
            return sys.modules.get(obj.__name__) is obj and not self._by_value(obj.__name__)
        module = getattr(obj, "__module__", None)
        if not isinstance(module, str) or module not in sys.modules or self._by_value(module):
            return False
        found = found_as(module, obj.__qualname__)
        self._named.append((module, obj.__qualname__, found))
        return _is_in(obj, found)


def _is_in(obj: Any, found: Any) -> bool:
    """Whether something is what was found under its name, or is wrapped in that by decorators."""
    for _ in range(_MOST_WRAPPERS):
        found = getattr(found, "__func__", found)
        if found is obj:
            return True
        found = getattr(found, "__wrapped__", None)
    return False


def _parts_of_function(function: FunctionType, names: Iterable[str]) -> Parts:
    """All that the pickle of a function is made of, which goes by value; `names` are the globals that it uses."""
    known = function.__globals__
    facts = (*_FACTS(function), *[known.get(name, _MISSING) for name in names])
    by_name, told, own = function.__kwdefaults__, function.__annotations__, function.__dict__
    if not (by_name or told or own or function.__closure__):
        return facts
    more = (*_items(by_name), *_items(told), *_items(own))
    return (*facts, *more, *map(_content, function.__closure__ or ()))


def _parts_of_partial(partial: functools.partial[Any]) -> Parts:
    return (partial.func, *partial.args, *_items(partial.keywords), *_items(vars(partial)))


def _parts_of_builtin(function: BuiltinFunctionType) -> Iterable[Any] | None:
    return () if isinstance(function.__self__, ModuleType | None) else None  # else a method: of a list, say


def _parts_of_other(obj: Any) -> Iterable[Any] | None:
    """Of an enum's member, and of `list[int]`, `int | None` and the like, which stand in annotations."""
    if isinstance(obj, enum.Enum):
        return (type(obj),)
    if type(obj).__module__ not in ("types", "typing") or (origin := typing.get_origin(obj)) is None:
        return None
    parts = (*typing.get_args(obj), origin)
    return [each for part in parts for each in (part if isinstance(part, list) else (part,))]


def _items(mapping: dict[str, Any] | None) -> Iterator[Any]:
    for name, value in (mapping or {}).items():
        yield name
        yield value


def _content(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not filled yet
        return _MISSING


#: What consists of others and can't be changed itself.
_SPLIT: dict[type, Callable[[Any], Iterable[Any] | None]] = {
    tuple: tuple,
    frozenset: tuple,
    MethodType: lambda method: (method.__func__, method.__self__),
    BuiltinFunctionType: _parts_of_builtin,
}

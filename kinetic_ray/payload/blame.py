"""Finds what can't be pickled, and says where it is: "args[1]['model'].lock"."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from reprlib import Repr
from types import CellType, FunctionType, MethodType
from typing import Any

_DEEPEST = 30
_MOST_CHILDREN = 10_000
#: Keys are shown, for they say where; not a whole document that is used as one, and of members of a set, which are
#: values, nothing at all.
_SHORT = Repr()
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = 40

Dump = Callable[[object], object]
Parts = Iterator[tuple[str, Any]]


def find_culprit(
    function: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], dump: Dump, depth: int | None = None
) -> str:
    """The smallest part of a call that can't be pickled, by its path and kind.

    Args:
        function: What was to be called.
        args: Its arguments.
        kwargs: Its keyword arguments.
        dump: Pickles one object, or raises.
        depth: How far to look into an argument; None = far.
    """
    parts = [(f"args[{place}]", value) for place, value in enumerate(args)]
    parts += [(f"kwargs[{name!r}]", value) for name, value in kwargs.items()]
    for start, value in [*parts, ("the function", function)]:
        if _fails(value, dump):
            path, culprit = _descend(start, value, dump, _DEEPEST if depth is None else depth)
            return f"{path} ({kind_of(culprit)})"
    return "the call as a whole"


def _descend(path: str, value: Any, dump: Dump, depth: int) -> tuple[str, Any]:
    seen = {id(value)}
    for _ in range(depth):
        for label, part in parts_of(value):
            if id(part) not in seen and _fails(part, dump):
                path, value = path + label, part
                seen.add(id(part))
                break
        else:
            break
    return path, value


def _fails(value: Any, dump: Dump) -> bool:
    try:
        dump(value)
    except Exception:  # noqa: BLE001 - the user's own __reduce__ and __getstate__ may raise anything
        return True
    return False


def parts_of(value: Any) -> Parts:
    """What an object is made of, each with what leads to it."""
    for count, part in enumerate(_all_parts(value)):
        if count >= _MOST_CHILDREN:
            return
        yield part


def _all_parts(value: Any) -> Parts:
    if isinstance(value, Mapping):
        for key, part in value.items():
            yield f"[{_SHORT.repr(key)}]", part
            yield f".keys({_SHORT.repr(key)})", key
    elif isinstance(value, list | tuple):
        yield from ((f"[{place}]", part) for place, part in enumerate(value))
    elif isinstance(value, set | frozenset):
        yield from ((f"{{item {place}}}", part) for place, part in enumerate(value))
    elif isinstance(value, partial):
        yield from ((".func", value.func), (".args", value.args), (".keywords", value.keywords))
    elif isinstance(value, MethodType):
        yield from ((".__self__", value.__self__), (".__func__", value.__func__))
    elif isinstance(value, FunctionType):
        yield from captured_by(value)
    elif not isinstance(value, type):
        yield from _of_instance(value)


def captured_by(function: FunctionType) -> Parts:
    """What a function takes along if it goes by value."""
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        if (content := _content(cell)) is not None:
            yield f"'s closure variable {name}", content
    for name in _global_names(function.__code__):
        if name in function.__globals__:
            yield f"'s global {name}", function.__globals__[name]
    yield "'s default", function.__defaults__
    yield "'s default", function.__kwdefaults__
    yield "'s attribute ", vars(function)


def _global_names(code: Any) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, type(code)):
            yield from _global_names(constant)


def _content(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not filled yet
        return None


def _of_instance(value: Any) -> Parts:
    yield from ((f".{name}", part) for name, part in getattr(value, "__dict__", {}).items())
    for kind in type(value).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name != "__dict__" and (part := getattr(value, name, None)) is not None:
                yield f".{name}", part


def kind_of(value: Any) -> str:
    """A value's class, for people."""
    kind = type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"

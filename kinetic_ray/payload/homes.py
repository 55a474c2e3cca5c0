"""Classes that travel by value, and are the reader's own again where it has them.

A class of a script or a notebook can't be imported, so cloudpickle sends it whole, and whoever reads it gets a class of
the same name that `except` and `isinstance` don't know. Here its name travels beside it: a reader whose `__main__` (or
whichever module it was) holds a class of this name and layout takes that one.
"""

from __future__ import annotations

import contextlib
import inspect
import sys
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from typing import Any, cast

from cloudpickle.cloudpickle import _class_setstate, _make_skeleton_class, _make_skeleton_enum

#: Methods that make and rebuild instances: if they take other arguments now, old instances don't fit.
_MAKING = ("__new__", "__init__", "__post_init__", "__reduce__", "__reduce_ex__", "__getnewargs__", "__setstate__")
_MAKERS = (_make_skeleton_class, _make_skeleton_enum)


def with_home(cls: type, reduced: Any) -> Any:
    """How to pickle a class: as cloudpickle would, and if that is by value, with the place where a reader may have it.

    Args:
        cls: The class.
        reduced: What cloudpickle's reducer says.
    """
    reduced = with_qualname(cls, reduced)
    if not _is_by_value(reduced) or "<" in cls.__qualname__:  # made in a function: nobody has it under its name
        return reduced
    make, args, state, *_ = reduced
    try:
        layout = layout_of(cls)
    except Exception:  # noqa: BLE001 - a foreign __repr__, say: then it has no home
        return reduced
    return home_class, (cls.__module__, cls.__qualname__, layout, make, args), state, None, None, fill_class


def with_qualname(cls: type, reduced: Any) -> Any:
    """What cloudpickle's reducer says of a class, with the name of the class that it lies in, which that forgets."""
    if _is_by_value(reduced) and cls.__qualname__ != cls.__name__:
        reduced[2][0]["__qualname__"] = cls.__qualname__
    return reduced


def home_class(
    module: str, qualname: str, layout: Sequence[str], make: Callable[..., type], args: Sequence[Any]
) -> type:
    """The reader's own class, or an empty one to be filled. Its name and form are part of the stored format."""
    found = class_at(module, qualname)
    with contextlib.suppress(Exception):  # as in the writer: a foreign __repr__
        if found is not None and layout_of(found) == tuple(layout):
            return found
    return make(*args)


def fill_class(cls: type, state: Any) -> type:
    """Fills what :func:`home_class` made; the reader's own class stays as it is. Part of the stored format."""
    if class_at(cls.__module__, cls.__qualname__) is not cls:
        _class_setstate(cls, state)
    return cls


def class_at(module: str, qualname: str) -> type | None:
    """The class that a loaded module has defined under a name."""
    found: Any = sys.modules.get(module)
    try:
        for part in qualname.split("."):
            found = getattr(found, part)
    except Exception:  # noqa: BLE001 - a module may answer with code of its own
        return None
    is_its_own = isinstance(found, type) and found.__module__ in (module, "__mp_main__")
    return cast(type, found) if is_its_own else None


def layout_of(cls: type) -> tuple[str, ...]:
    """What instances are made of: of two classes with one layout the one's instances can be the other's.

    What methods do doesn't count, so that a program that was mended meanwhile still knows its values and errors.

    Example:
        >>> class Point:
        ...     def __init__(self, x, y): ...
        >>> layout_of(Point)
        ('builtins.type', 'builtins.object', '__init__(self,x,y)')
    """
    return tuple(_facts(cls))


def _facts(cls: type) -> Iterator[str]:
    yield from (f"{kind.__module__}.{kind.__qualname__}" for kind in (type(cls), *cls.__bases__))
    members = vars(cls)
    for name in ("__slots__", "_fields", "__dataclass_fields__"):
        if name in members:
            names = members[name]
            yield f"{name}={','.join([names] if isinstance(names, str) else map(str, names))}"
    for name in _MAKING:
        if name in members:
            yield f"{name}({','.join(_arguments(members[name]))})"
    if issubclass(cls, Enum):
        yield from (f"{name}={member.value!r}" for name, member in cls.__members__.items())


def _arguments(method: Any) -> Sequence[str]:
    code = getattr(getattr(method, "__func__", method), "__code__", None)
    if code is None:
        return ()
    names = [*code.co_varnames]
    named = names[: (count := code.co_argcount + code.co_kwonlyargcount)]
    marks = [mark for mark, flag in (("*", inspect.CO_VARARGS), ("**", inspect.CO_VARKEYWORDS)) if code.co_flags & flag]
    return [*named, *(mark + name for mark, name in zip(marks, names[count:], strict=False))]


def _is_by_value(reduced: Any) -> bool:
    return isinstance(reduced, tuple) and len(reduced) == 6 and reduced[0] in _MAKERS

"""An exception in its parts, and back, without its constructor, which may want what nobody kept."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kinetic_ray.errors import notes_of

_OWN = 1 << 9  # of a class's flags: made by a `class` statement or the like, not in C
_REDUCERS = ("__reduce__", "__reduce_ex__")
_MAKERS = ("__init__", "__new__", "__slots__")


@dataclass(frozen=True, slots=True)
class Parts:
    """What an exception is made of.

    Attributes:
        kind: Its class.
        args: `args`.
        made_of: What its built-in base was made from: for an OSError there is more to it than `args`.
        attributes: Its `__dict__`, without the notes.
        slots: What its `__slots__` and its built-in base hold beside that.
    """

    kind: type[BaseException]
    args: tuple[Any, ...]
    made_of: tuple[Any, ...]
    attributes: Mapping[str, Any]
    slots: Mapping[str, Any]

    def __reduce__(self) -> tuple[Any, ...]:
        return rebuild_raised, (self.kind, self.args, self.made_of, dict(self.attributes), dict(self.slots))


def reduced_error(exc: BaseException) -> Any:
    """How to pickle an exception somewhere in a value; NotImplemented where its own way is as good, or its own wish."""
    kind = type(exc)
    if isinstance(exc, BaseExceptionGroup) or says_how(kind) or not _has_its_own(kind, _MAKERS):
        return NotImplemented
    parts = parts_of_error(exc)
    notes = {"__notes__": [*told]} if (told := notes_of(exc)) else {}
    state = ({**parts.attributes, **notes}, dict(parts.slots))
    return rebuild_raised, (kind, parts.args, parts.made_of, {}, {}), state, None, None, fill_raised


def fill_raised(exc: BaseException, state: tuple[Mapping[str, Any], Mapping[str, Any]]) -> BaseException:
    """What :func:`reduced_error` leaves for later, as it may lead back. Part of the stored format."""
    return filled(exc, *state)


def says_how(kind: type) -> bool:
    """Whether a class says itself how its instances are pickled."""
    return _has_its_own(kind, _REDUCERS)


def _has_its_own(kind: type, names: tuple[str, ...]) -> bool:
    return any(name in vars(each) for each in kind.__mro__ if each.__flags__ & _OWN for name in names)


def rebuild_raised(
    kind: type[BaseException],
    args: tuple[Any, ...],
    made_of: tuple[Any, ...],
    attributes: Mapping[str, Any],
    slots: Mapping[str, Any],
) -> BaseException:
    """Makes an exception without calling its own constructor. Its name and form are part of the stored format."""
    base = _builtin_base(kind)
    exc: BaseException = base.__new__(kind, *made_of)
    with contextlib.suppress(Exception):
        base.__init__(exc, *made_of)
    BaseException.__setattr__(exc, "args", args)
    return filled(exc, attributes, slots)


def parts_of_error(exc: BaseException) -> Parts:
    """Takes an exception apart."""
    kind, attributes = type(exc), {name: value for name, value in exc.__dict__.items() if name != "__notes__"}
    reduced = () if isinstance(exc, BaseExceptionGroup) else _builtin_base(kind).__reduce__(exc)
    if not isinstance(reduced, tuple) or len(reduced) < 2:
        reduced = (kind, ())
    more = reduced[2] if len(reduced) > 2 and isinstance(reduced[2], dict) else {}
    state = object.__getstate__(exc)
    slots = state[1] if isinstance(state, tuple) and state[1] else {}
    extra = {name: value for name, value in more.items() if name not in attributes and name != "args"}
    # Its members are told elsewhere. A class may have a property of that name.
    args = () if isinstance(exc, BaseExceptionGroup) else BaseException.__dict__["args"].__get__(exc)
    return Parts(kind, args, reduced[1], attributes, {**extra, **slots})


def filled(exc: BaseException, attributes: Mapping[str, Any], slots: Mapping[str, Any]) -> BaseException:
    """Gives an exception its attributes, whatever its class thinks of that."""
    exc.__dict__.update(attributes)
    for name, value in slots.items():
        with contextlib.suppress(AttributeError, TypeError):
            BaseException.__setattr__(exc, name, value)  # a frozen dataclass refuses its own way
    return exc


def _builtin_base(kind: type[BaseException]) -> type[BaseException]:
    base: Any = kind
    while base.__flags__ & _OWN:
        base = base.__base__
    return base  # type: ignore[no-any-return]

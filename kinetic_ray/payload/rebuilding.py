"""How one exception can be rebuilt where its own way would lose it: its constructor may want what nobody kept."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kinetic_ray.payload.pickling import ValuePickler

_WORDS = 20_000
_ADDRESS = re.compile(r"\b0x[0-9a-f]+")
_REDUCERS = ("__reduce__", "__reduce_ex__")
_OWN = 1 << 9  # of a class's flags: made by a `class` statement or the like, not in C


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


@dataclass(frozen=True, slots=True)
class _Group:
    """A group without its members."""

    kind: type[BaseException]
    message: str
    attributes: Mapping[str, Any]
    slots: Mapping[str, Any]

    def __reduce__(self) -> tuple[Any, ...]:
        return tuple, ((self.kind, self.message, dict(self.attributes), dict(self.slots)),)


class LeftBehind:
    """Stands for an argument that could not travel, and reads as that one read. Part of the stored format."""

    def __init__(self, text: str, words: str) -> None:
        self._text = text
        self._words = words

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return self._words


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
    return _filled(exc, attributes, slots)


def regrouped(form: tuple[Any, ...], members: Sequence[BaseException]) -> BaseException:
    """Makes a group of what is pickled in its place, and its members, without calling its own constructor."""
    kind, message, attributes, slots = form
    group = BaseExceptionGroup.__new__(kind, message, members)
    return _filled(group, attributes, slots)


def forms_of(exc: BaseException, limit: int) -> Iterator[tuple[object, str]]:
    """What an exception can be pickled as, best first, and what is to be noted of it.

    Args:
        exc: The exception.
        limit: Most bytes that an attribute may have to come along where not all can.
    """
    parts = _parts(exc)
    if isinstance(exc, BaseExceptionGroup):
        yield _Group(parts.kind, exc.message, parts.attributes, parts.slots), ""
        less, stays = _without_what_stays(parts, limit)
        yield _Group(less.kind, exc.message, less.attributes, less.slots), stays
        return
    yield exc, ""
    yield parts, ""
    yield _without_what_stays(parts, limit)


def kept_of(exc: BaseException, back: Any) -> tuple[int, bool]:
    """How much of an exception a form of it keeps: a count of its parts, and whether that is all of it.

    Args:
        exc: The exception.
        back: What its form was unpickled as.

    Raises:
        ValueError: It isn't the same exception: another class, another message.
    """
    if isinstance(exc, BaseExceptionGroup):
        back = regrouped(back, exc.exceptions)
    if type(back) is not type(exc) or _ADDRESS.sub("", words_of(back)) != _ADDRESS.sub("", words_of(exc)):
        raise ValueError(f"{type(exc).__name__} comes back as another one")
    if any(name in vars(kind) for kind in type(exc).__mro__ if kind.__flags__ & _OWN for name in _REDUCERS):
        return 1, True  # it says itself what it wants to keep
    before, after = _parts(exc), _parts(back)
    pairs = [(before.args, after.args)]
    for name, value in (*before.attributes.items(), *before.slots.items()):
        pairs.append((value, {**after.attributes, **after.slots}.get(name, _Nothing)))
    kept = sum(_alike(*pair) for pair in pairs)
    return kept, kept == len(pairs)


def words_of(exc: BaseException) -> str:
    """An exception's message, cut to what a person may read."""
    try:
        return str(exc)[:_WORDS]
    except Exception as broken:  # noqa: BLE001 - a foreign __str__ may raise anything
        return f"<its message can't be shown: {type(broken).__name__}>"


class _Nothing:
    """Where there is no such attribute."""


def _parts(exc: BaseException) -> Parts:
    kind, attributes = type(exc), {name: value for name, value in exc.__dict__.items() if name != "__notes__"}
    reduced = () if isinstance(exc, BaseExceptionGroup) else _builtin_base(kind).__reduce__(exc)
    if not isinstance(reduced, tuple) or len(reduced) < 2:
        reduced = (kind, ())
    more = reduced[2] if len(reduced) > 2 and isinstance(reduced[2], dict) else {}
    state = object.__getstate__(exc)
    slots = state[1] if isinstance(state, tuple) and state[1] else {}
    extra = {name: value for name, value in more.items() if name not in attributes and name != "args"}
    args = () if isinstance(exc, BaseExceptionGroup) else exc.args  # its members are told elsewhere
    return Parts(kind, args, reduced[1], attributes, {**extra, **slots})


def _builtin_base(kind: type[BaseException]) -> type[BaseException]:
    base: Any = kind
    while base.__flags__ & _OWN:
        base = base.__base__
    return base  # type: ignore[no-any-return]


def _filled(exc: BaseException, attributes: Mapping[str, Any], slots: Mapping[str, Any]) -> BaseException:
    exc.__dict__.update(attributes)
    for name, value in slots.items():
        with contextlib.suppress(AttributeError, TypeError):
            BaseException.__setattr__(exc, name, value)  # a frozen dataclass refuses its own way
    return exc


def _without_what_stays(parts: Parts, limit: int) -> tuple[Parts, str]:
    """The same without what can't travel, and words that say what that is."""
    stays: list[str] = []

    def some(values: Mapping[str, Any]) -> dict[str, Any]:
        fine = {name: value for name, value in values.items() if _travels(value, limit)}
        stays.extend(f"{name} (a {type(value).__name__})" for name, value in values.items() if name not in fine)
        return fine

    args = tuple(value if _travels(value, limit) else _left_behind(value) for value in parts.args)
    made_of = tuple(value if _travels(value, limit) else _left_behind(value) for value in parts.made_of)
    less = replace(parts, args=args, made_of=made_of, attributes=some(parts.attributes), slots=some(parts.slots))
    return less, f"left on the host: {', '.join(stays)}" if stays else ""


def _travels(value: object, limit: int) -> bool:
    try:
        ValuePickler(limit=limit // 2).dumps(value)
    except BaseException:  # noqa: BLE001 - as of the exception itself
        return False
    return True


def _left_behind(value: object) -> LeftBehind:
    try:
        return LeftBehind(str(value)[:_WORDS], repr(value)[:_WORDS])
    except Exception:  # noqa: BLE001 - a foreign __str__ may raise anything
        text = f"<a {type(value).__name__}>"
        return LeftBehind(text, text)


def _alike(one: Any, other: Any) -> bool:
    """Whether two values are equal, as far as that can be told."""
    if type(one) is not type(other):
        return False
    try:
        if one == other or repr(one) == repr(other):
            return True
    except Exception:  # noqa: BLE001 - an array, or a foreign __eq__: it has come back as what it was
        return True
    return "__eq__" not in {name for kind in type(one).__mro__[:-1] for name in vars(kind)}

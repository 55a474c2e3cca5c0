"""How one exception can be rebuilt where its own way would lose it: its constructor may want what nobody kept."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kinetic_ray.payload.bare import Parts, filled, parts_of_error, rebuild_raised, says_how
from kinetic_ray.payload.pickling import ValuePickler

__all__ = ["LeftBehind", "forms_of", "kept_of", "rebuild_raised", "regrouped", "words_of"]

_WORDS = 20_000
_ADDRESS = re.compile(r"\b0x[0-9a-f]+")


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


def regrouped(form: tuple[Any, ...], members: Sequence[BaseException]) -> BaseException:
    """Makes a group of what is pickled in its place, and its members, without calling its own constructor."""
    kind, message, attributes, slots = form
    group = BaseExceptionGroup.__new__(kind, message, members)
    return filled(group, attributes, slots)


def forms_of(exc: BaseException, limit: int) -> Iterator[tuple[object, str]]:
    """What an exception can be pickled as, best first, and what is to be noted of it.

    Args:
        exc: The exception.
        limit: Most bytes that an attribute may have to come along where not all can.
    """
    parts = parts_of_error(exc)
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
    if says_how(type(exc)):
        return 1, True  # it says itself what it wants to keep
    before, after = parts_of_error(exc), parts_of_error(back)
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


def _without_what_stays(parts: Parts, limit: int) -> tuple[Parts, str]:
    """The same without what can't travel, and words that say what that is."""
    stays: list[str] = []

    def some(values: Mapping[str, Any]) -> dict[str, Any]:
        fine = {name: value for name, value in values.items() if _travels(value, limit)}
        stays.extend(f"{name} (a {type(value).__name__})" for name, value in values.items() if name not in fine)
        return fine

    args = tuple(value if _travels(value, limit) else _left_behind(value) for value in parts.args)
    stays += [
        f"args[{place}] (a {type(value).__name__})"
        for place, value in enumerate(parts.args)
        if value is not args[place]
    ]
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

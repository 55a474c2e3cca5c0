"""Checkers of options whose value stands for itself: (name, value) -> the fields of the options that it sets."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from typing import Any

from kinetic_ray.core.quantities import parse_duration
from kinetic_ray.errors import UsageError

_MOST_PRIORITY = 1_000_000


def check_count(name: str, value: Any) -> dict[str, Any]:
    """A whole number from 1."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise UsageError(f"{name}={value!r}: expected a whole number from 1")
    return {name: value}


def whole_number(name: str, value: Any, least: int = 0) -> int:
    """A whole number that an argument has to be, NumPy's too.

    Example:
        >>> whole_number("rank", 3)
        3
    """
    try:
        number = -1 if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = least - 1
    if number < least:
        raise UsageError(f"{name}={value!r}: expected a whole number from {least}")
    return number


def check_priority(name: str, value: Any) -> dict[str, Any]:
    """A whole number of either sign."""
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) > _MOST_PRIORITY:
        raise UsageError(f"{name}={value!r}: expected a whole number, higher goes first; 0 is the default")
    return {name: value}


def check_duration(name: str, value: Any) -> dict[str, Any]:
    """Seconds, or a text such as "12h"."""
    return {name: parse_duration(value, name)}


def check_choice(*choices: str) -> Callable[[str, Any], dict[str, Any]]:
    """One of some words; the nearest one is named."""

    def check(name: str, value: Any) -> dict[str, Any]:
        if value not in choices:
            near = get_close_matches(str(value), choices, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise UsageError(f"{name}={value!r}: expected one of {', '.join(map(repr, choices))}{hint}")
        return {name: value}

    return check


def check_text(name: str, value: Any) -> dict[str, Any]:
    """A printable text."""
    if not isinstance(value, str) or not value.isprintable() or len(value) > 200:
        raise UsageError(f"{name}={value!r}: expected printable text of at most 200 characters")
    return {name: value}


def check_tags(name: str, value: Any) -> dict[str, Any]:
    """A list of printable texts, and no mapping."""
    if isinstance(value, Mapping):
        texts = [f"{key}={text}" for key, text in value.items()]
        raise UsageError(f"{name}={value!r}: tags are texts without values of their own; write {name}={texts!r}")
    tags = check_texts(name, value)
    for tag in tags:
        check_text(name, tag)
    return {name: tags}


def check_texts(name: str, value: Any) -> tuple[str, ...]:
    """A list of texts, none of them empty, given back as a tuple; a single text is no list."""
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise UsageError(f"{name}={value!r}: expected a list of texts, e.g. [{value!r}]")
    texts = tuple(value)
    if wrong := [text for text in texts if not isinstance(text, str) or not text]:
        raise UsageError(f"{name}: {wrong[0]!r} is not text")
    return texts


def check_flag(name: str, value: Any) -> dict[str, Any]:
    """True or False, and nothing that is as good as one."""
    if not isinstance(value, bool):
        raise UsageError(f"{name}={value!r}: expected True or False")
    return {name: value}

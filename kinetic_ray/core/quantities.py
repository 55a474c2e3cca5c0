"""Spans of time and amounts of memory as people write them."""

from __future__ import annotations

import math
import re

from kinetic_ray.errors import UsageError

_SECONDS = {"d": 86_400.0, "h": 3_600.0, "m": 60.0, "s": 1.0}
_COMPOUND_RE = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s)?", re.ASCII)
_SINGLE_RE = re.compile(r"(\d+(?:\.\d+)?)([dhms]?)", re.ASCII)
_BYTES = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}
_SIZE_RE = re.compile(r"(\d+(?:\.\d+)?)([kmgt]i?)?b?", re.ASCII)


def parse_duration(value: object, what: str) -> float:
    """Seconds from a number, or from text such as "90", "90s", "1.5h", "1h30m".

    Args:
        value: A number of seconds, or text with the units d, h, m and s, largest first.
        what: The argument's name, for messages.

    Raises:
        UsageError: Not a duration, or not positive.

    Example:
        >>> parse_duration("1h30m", "timeout")
        5400.0
    """
    seconds = _seconds(value)
    if seconds is None or not math.isfinite(seconds) or seconds <= 0:
        raise UsageError(f"{what}={value!r}: expected a positive number of seconds, or text like '90s', '12h', '1h30m'")
    return seconds


def parse_size(value: object, what: str) -> int:
    """Bytes from a whole number, or from text such as "512MB" or "16GiB".

    Raises:
        UsageError: Not a size, or less than a byte.

    Example:
        >>> parse_size("16GiB", "memory")
        17179869184
    """
    size: float | None = None
    if isinstance(value, int) and not isinstance(value, bool):
        size = value
    elif isinstance(value, str) and (match := _SIZE_RE.fullmatch(_compact(value))):
        size = float(match[1]) * _BYTES[match[2] or ""]
    if size is None or not math.isfinite(size) or size < 1:
        raise UsageError(f"{what}={value!r}: expected a number of bytes, or text like '512MB', '16GiB'")
    return int(size)


def _seconds(value: object) -> float | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return _float(value)
    if not isinstance(value, str):
        return None
    text = _compact(value)
    if match := _SINGLE_RE.fullmatch(text):
        return float(match[1]) * _SECONDS[match[2] or "s"]
    match = _COMPOUND_RE.fullmatch(text)
    if match is None or not text:
        return None
    return sum(float(part or 0) * unit for part, unit in zip(match.groups(), _SECONDS.values(), strict=True))


def _float(value: float) -> float | None:
    try:
        return float(value)
    except OverflowError:
        return None


def _compact(text: str) -> str:
    return "".join(text.lower().split())

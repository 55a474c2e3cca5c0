"""Spans of time, sizes and numbers of things, as people read them."""

from __future__ import annotations


def format_duration(seconds: float) -> str:
    """A span for people.

    Example:
        >>> [format_duration(s) for s in (0.42, 42, 192, 7500, 200000)]
        ['0.4 s', '42 s', '3 m 12 s', '2 h 05 m', '2 d 07 h']
    """
    whole = int(seconds)
    if seconds < 10:
        return f"{max(seconds, 0):.1f} s"
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} m {whole % 60:02d} s"
    if whole < 86400:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} m"
    return f"{whole // 86400} d {whole % 86400 // 3600:02d} h"


def counted(number: int, noun: str) -> str:
    """A number of things.

    Example:
        >>> counted(1, "job"), counted(2, "job")
        ('1 job', '2 jobs')
    """
    return f"{number} {noun}" + ("" if number == 1 else "s")


def format_size(size: int) -> str:
    """A size for people, in powers of a thousand.

    Example:
        >>> [format_size(size) for size in (0, 999, 1000, 34_567_890, 2 * 10**12)]
        ['0 B', '999 B', '1.0 kB', '34.6 MB', '2000.0 GB']
    """
    if size < 1000:
        return f"{size} B"
    for unit, factor in (("kB", 1e3), ("MB", 1e6)):
        if size < 1000 * factor:
            return f"{size / factor:.1f} {unit}"
    return f"{size / 1e9:.1f} GB"

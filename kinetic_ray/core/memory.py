"""When a host has too little memory left, and which of its ranks is to end for that."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

_MB = 10**6
#: What is kept free of a host's memory: this share of it, within these bounds.
_SHARE, _LEAST, _MOST = 0.05, 256 * _MB, 4000 * _MB
#: Below so many times of that, it is watched closely.
_NEAR = 4
#: Faster than a few processes at once can fill memory, in bytes a second.
_FILLED_BY = 8_000 * _MB
_SHORTEST, _LONGEST = 0.05, 1.0
#: Seconds for which one rank leaves it to a larger one's agent to act; that may be stopped, or gone.
_TURN = 2.0


@dataclass(frozen=True, slots=True)
class Memory:
    """What a host has, or the container that it is.

    Attributes:
        available: Bytes that can still be had.
        limit: Bytes in all.
        kills: How often the kernel has ended a process here because memory ran out.
        counts_others: Whether that includes processes that have nothing to do with this host's container.
    """

    available: int
    limit: int
    kills: int = 0
    counts_others: bool = True

    @property
    def reserve(self) -> int:
        """Bytes that are to stay free, so that what serves the ranks can go on."""
        return int(min(max(self.limit * _SHARE, _LEAST), _MOST))

    @property
    def is_short(self) -> bool:
        """Whether the largest rank has to end, before the kernel ends something."""
        return self.available < self.reserve

    @property
    def is_near(self) -> bool:
        """Whether it may soon be short."""
        return self.available < _NEAR * self.reserve

    @property
    def pause(self) -> float:
        """Seconds until the next look; it can't be used up before."""
        return min(max((self.available - self.reserve) / _FILLED_BY, _SHORTEST), _LONGEST)


@dataclass(frozen=True, slots=True)
class Sizes:
    """What the ranks on a machine have.

    Attributes:
        of: Bytes by rank, each with all its processes.
        allowed: Bytes that they may have together; None where only the machine sets an end.
    """

    of: Mapping[str, int]
    allowed: int | None = None

    @property
    def exceed(self) -> bool:
        """Whether they have more than they may."""
        return self.allowed is not None and sum(self.of.values()) > self.allowed


def has_to_end(own: str, sizes: Sizes, memory: Memory, short_for: float) -> bool:
    """Whether a rank is the one to end: the largest, or after a while one that comes next.

    A small one is left alone where the machine is short: its end would bring nothing back, somebody else has it all.

    Args:
        own: The rank that asks; each asks for itself.
        sizes: Of all.
        memory: Of the machine.
        short_for: Seconds since it was first seen to be short.

    Example:
        >>> has_to_end("a", Sizes({"a": 9 * 10**9, "b": 10**9}), Memory(10**6, 10**10), 0.0)
        True
    """
    if not (memory.is_short or sizes.exceed) or own not in sizes.of:
        return False
    if not sizes.exceed and sizes.of[own] < memory.reserve / 2:
        return False
    order = sorted(sizes.of, key=lambda rank: (-sizes.of[rank], rank))
    return short_for >= order.index(own) * _TURN


def words_for(own: int, sizes: Sizes, memory: Memory) -> str:
    """What is told of a rank that was ended.

    Args:
        own: Its size.
        sizes: Of all, itself included.
        memory: Of the machine, when that was decided.
    """
    beside = len(sizes.of) - 1
    others = f", {beside} more here {amount(sum(sizes.of.values()) - own)}" if beside else ""
    if sizes.exceed:
        bound = f"of the {amount(sizes.allowed or 0)} that KINETIC_LOCAL_MEMORY_MB lets all ranks have together"
    else:
        bound = f"of the {amount(memory.limit)} that its host has, and {amount(memory.available)} were left"
    had = f"out of memory: it had {amount(own)} with all its processes{others}"
    return f"{had}, {bound}, so it was ended before others were: {_ADVICE}"


def words_for_kernel(seen: int, memory: Memory) -> str:
    """What is told of a rank that the kernel has killed.

    Args:
        seen: Its size when it was last looked at; 0 = never.
        memory: Of the machine.
    """
    had = f"; it had {amount(seen)} of {amount(memory.limit)} when last seen" if seen else ""
    return f"killed by the kernel because the host ran out of memory{had}: {_ADVICE}"


_ADVICE = "use less of it, or hosts with more"


def amount(size: int) -> str:
    """An amount for people.

    Example:
        >>> amount(14_230_000_000), amount(300_000_000)
        ('14.2 GB', '300 MB')
    """
    return f"{size / 1e6:.0f} MB" if size < 10**9 else f"{size / 1e9:.1f} GB"

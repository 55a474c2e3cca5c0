"""By what a file is known to be the same still, without being read.

What is compared is also when its inode last changed, which no program can set: an edit that keeps size and time of
modification is seen. Only one that comes within the same tick of the file system's clock isn't.
"""

from __future__ import annotations

import operator
import os
from collections.abc import Callable

#: When the inode changed, when the content did; size, inode, mode.
Stamp = tuple[int, ...]
stamp_of: Callable[[os.stat_result], Stamp] = operator.attrgetter(
    "st_ctime_ns", "st_mtime_ns", "st_size", "st_ino", "st_mode"
)
#: A file system's clock ticks at least this often, in nanoseconds; the longer one is for those that count seconds.
_TICK, _COARSE_TICK = 20_000_000, 2_500_000_000
_SECOND = 1_000_000_000


def is_fresh(stamp: Stamp, begun: int) -> bool:
    """Whether a file that was looked at from `begun` on, in nanoseconds, may change again and look no different."""
    changed = stamp[0]
    return changed > begun - (_TICK if changed % _SECOND else _COARSE_TICK)

"""The command's standard streams where whoever starts it has closed them, or the disk behind them is full."""

from __future__ import annotations

import errno
import os
import sys
from io import TextIOWrapper

#: Of writes that a medium refuses, whatever is written.
_REFUSED = frozenset((errno.ENOSPC, errno.EIO, errno.EDQUOT, errno.EFBIG))


def open_missing() -> None:
    """Opens /dev/null in place of closed streams, as daemons are started with: else the next file would be one."""
    for number, mode in enumerate(("r", "w", "w")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDONLY if mode == "r" else os.O_WRONLY)  # the lowest number that is free: this
    sys.stdin = sys.stdin or _null(0, "r")
    sys.stdout = sys.stdout or _null(1, "w")
    sys.stderr = sys.stderr or _null(2, "w")


def _null(number: int, mode: str) -> TextIOWrapper:
    stream = os.fdopen(number, mode, encoding="utf-8", closefd=False)
    assert isinstance(stream, TextIOWrapper)
    return stream


def drop_output() -> None:
    """What is left in standard output goes nowhere: at Python's end it would be tried once more."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.close(null)


def named(error: BaseException) -> BaseException:
    """A refused write to standard output, which names no file, as an error that says what it is."""
    if isinstance(error, OSError) and error.filename is None and error.errno in _REFUSED:
        drop_output()
        return OSError(f"standard output can't be written: {os.strerror(error.errno or 0)}")
    return error

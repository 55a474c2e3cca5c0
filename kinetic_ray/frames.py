"""Errors at the border of the package: users see their own line, not the way that the error took through ours."""

from __future__ import annotations

from contextlib import ContextDecorator
from types import TracebackType
from typing import NoReturn

from kinetic_ray import config
from kinetic_ray.errors import KineticError

_OURS = (KineticError, TimeoutError, KeyboardInterrupt)


class own_frames_hidden(ContextDecorator):  # noqa: N801 - used as `with` and as a decorator, as contextlib's are
    """Takes this package's frames off errors that are raised on purpose; a fault of ours keeps them all.

    Python adds no frame for a function that a `with` block in it is left through, so that the traceback begins at the
    caller's line. What such an error was raised from is not printed either: its message says it. It stays in
    `__context__`. KINETIC_DEBUG=1 shows everything. Only for what users call, never for what calls each other.

    Example:
        >>> with own_frames_hidden():
        ...     raise KineticError("no such thing")
        Traceback (most recent call last):
        kinetic_ray.errors.KineticError: no such thing
    """

    def __enter__(self) -> None:
        return

    def __exit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        told = _was_told(trace)
        if error is None or config.debug() or not (isinstance(error, _OURS) or told):
            return
        error.with_traceback(None)  # an assignment would be refused by a frozen dataclass
        if isinstance(error, KineticError) and not told:
            error.__context__ = error.__cause__ or error.__context__
            error.__cause__, error.__suppress_context__ = None, True


def raise_told(error: BaseException) -> NoReturn:
    """Raises somebody else's error, or one that speaks of the caller's line: nothing of ours explains it."""
    raise error


def _was_told(trace: TracebackType | None) -> bool:
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is not None and trace.tb_frame.f_code is raise_told.__code__

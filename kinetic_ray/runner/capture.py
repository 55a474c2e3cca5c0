"""What becomes of a value or an exception on its way out of a rank: words for anyone, bytes where possible."""

from __future__ import annotations

import os
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

import cloudpickle

from kinetic_ray.core.causes import is_peer_loss
from kinetic_ray.core.outcome import ErrorInfo
from kinetic_ray.core.state import BEFORE_CALL, RankPhase, Reason
from kinetic_ray.errors import add_note, notes_of
from kinetic_ray.payload.raised import pack_raised
from kinetic_ray.payload.values import PackedValue, pack_value

REPR_LIMIT = 20_000
TEXT_LIMIT = 200_000
PICKLE_LIMIT = 64 << 20

_BY_PHASE = {RankPhase.CALL: Reason.USER_ERROR, RankPhase.STORE: Reason.RESULT_ERROR}
_RUNTIME_ERRORS = frozenset({"JaxRuntimeError", "XlaRuntimeError"})


class ResultError(Exception):
    """The function returned, but its value can't be sent; carries the value's repr."""

    def __init__(self, message: str, value_repr: str) -> None:
        super().__init__(message)
        self.value_repr = value_repr


def dump_value(value: object) -> PackedValue:
    """Pickles a value; what is large in it stays where it lies.

    Raises:
        ResultError: It can't be pickled; says why, and keeps its repr.
    """
    try:
        return pack_value(value)
    except Exception as exc:
        raise unsendable(value, exc) from exc


def unsendable(value: object, exc: BaseException) -> ResultError:
    """What to say of a value that can't be pickled; `exc` is what pickling has raised."""
    kind = type(value).__name__
    text = f"the function returned a {kind} that can't be pickled: {_words(exc)}: return plain data instead"
    return ResultError(text, _repr(value))


def reason_of(exc: BaseException, phase: RankPhase) -> Reason:
    """Why a rank ended, by its exception and the phase that raised it."""
    try:
        return _reason_of(exc, phase)
    except Exception:  # noqa: BLE001 - a foreign class raises when it is looked at: then the phase alone tells
        return Reason.SETUP_ERROR if phase in BEFORE_CALL else _BY_PHASE.get(phase, Reason.PROCESS_DIED)


def _reason_of(exc: BaseException, phase: RankPhase) -> Reason:
    if any(is_peer_loss(type(each).__name__, _str(each)) for each in _chain(exc)):
        return Reason.PEER_LOST
    if phase in BEFORE_CALL:
        return Reason.SETUP_ERROR
    if isinstance(exc, MemoryError) or _is_device_full(exc):
        return Reason.OUT_OF_MEMORY
    return _BY_PHASE.get(phase, Reason.PROCESS_DIED)


def describe_error(exc: BaseException) -> ErrorInfo:
    """An exception in words: the user's frames only, notes, cause chain and groups included.

    Of one whose class raises when it is looked at: what can be told without that.
    """
    try:
        return _described(exc)
    except Exception as broken:  # noqa: BLE001
        kind, frames = type(exc), BaseException.__dict__["__traceback__"].__get__(exc)
        end = f"{_words(exc)}\n(its class raises {type(broken).__name__} when it is looked at)\n"
        told = "".join([*traceback.format_tb(_user_frames(frames)), end])
        return ErrorInfo(kind.__name__, str(kind.__module__), _shorten(_str(exc), REPR_LIMIT), told)


def _described(exc: BaseException) -> ErrorInfo:
    for each in _chain(exc):
        _explain_missing_file(each)
    if isinstance(exc, ResultError):  # raised by us: no line of the user's is in it
        lines = [f"{_words(exc)}\n"]
    else:
        lines = traceback.format_exception(type(exc), exc, _user_frames(exc.__traceback__))
    return ErrorInfo(
        type_name=type(exc).__name__,
        module=type(exc).__module__,
        message=_shorten(_str(exc), REPR_LIMIT),
        traceback=_shorten("".join(lines), TEXT_LIMIT),
        value_repr=exc.value_repr if isinstance(exc, ResultError) else None,
    )


def dump_exception(exc: BaseException) -> bytes | None:
    """Pickles an exception with its causes, or gives None where words must do; see :func:`pack_raised`."""
    try:
        return pack_raised(exc, PICKLE_LIMIT)
    except Exception:  # noqa: BLE001 - a foreign class raises when it is looked at
        return None


def restore_exception(packed: tuple[Any, ...]) -> BaseException:
    """Rebuilds what the first format holds."""
    data, members, cause, context, quiet = packed
    exc: BaseException = cloudpickle.loads(data)
    if members is not None:
        group: BaseExceptionGroup[BaseException] = exc  # type: ignore[assignment] # only a group has members
        exc = group.derive([restore_exception(member) for member in members])
        exc.__dict__.update(group.__dict__)
    exc.__cause__ = None if cause is None else restore_exception(cause)
    exc.__context__ = None if context is None else restore_exception(context)
    exc.__suppress_context__ = quiet
    return exc


def rebuild_exception(kind: type[BaseException], args: tuple[Any, ...], state: dict[str, Any]) -> BaseException:
    """Makes an exception of the first format without calling its constructor."""
    exc = kind.__new__(kind, *args)
    exc.args = args
    exc.__dict__.update(state)
    return exc


def _chain(exc: BaseException) -> Iterator[BaseException]:
    """An exception and what it was raised from, nearest first."""
    seen: set[int] = set()
    current: BaseException | None = exc
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        hidden = current.__suppress_context__
        current = current.__cause__ or (None if hidden else current.__context__)


def _explain_missing_file(exc: BaseException) -> None:
    """A file of the project that isn't here was perhaps left out of what was sent."""
    name = exc.filename if isinstance(exc, FileNotFoundError) else None
    try:
        is_here = isinstance(name, str) and Path(name).absolute().is_relative_to(Path.cwd())
    except OSError:  # the working folder is gone
        return
    if is_here:
        note = f"{name} isn't among the files that came with the call: `kinetic ship --list` shows them"
        if note not in notes_of(exc):
            add_note(exc, note)


def _is_device_full(exc: BaseException) -> bool:
    return type(exc).__name__ in _RUNTIME_ERRORS and _str(exc).startswith("RESOURCE_EXHAUSTED")


def _user_frames(frames: TracebackType | None) -> TracebackType | None:
    """The traceback without our own frames at its top; all of it where it has no others."""
    ours = str(Path(__file__).parents[1]) + os.sep
    rest = frames
    while rest is not None and rest.tb_frame.f_code.co_filename.startswith(ours):
        rest = rest.tb_next
    return rest or frames


def _words(exc: BaseException) -> str:
    return f"{type(exc).__name__}: {_str(exc)}"


def _str(exc: BaseException) -> str:
    try:
        return str(exc)
    except Exception as broken:  # noqa: BLE001 - a foreign __str__ may raise anything
        return f"<its message can't be shown: {type(broken).__name__}>"


def _repr(value: object) -> str:
    try:
        return _shorten(repr(value), REPR_LIMIT)
    except Exception as broken:  # noqa: BLE001 - a foreign __repr__ may raise anything
        return f"<a {type(value).__name__} whose repr raises {type(broken).__name__}>"


def _shorten(text: str, limit: int) -> str:
    if len(text) <= limit:
        return text
    mark = f"\n... {len(text) - limit:,} characters left out ...\n"
    head = (limit - len(mark)) // 2
    return text[:head] + mark + text[len(text) - (limit - len(mark) - head) :]

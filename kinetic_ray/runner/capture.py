"""What becomes of a value or an exception on its way out of a rank: words for anyone, bytes where possible."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

import cloudpickle

from kinetic_ray.core.causes import is_peer_loss
from kinetic_ray.core.outcome import ErrorInfo
from kinetic_ray.core.state import BEFORE_CALL, RankPhase, Reason

REPR_LIMIT = 20_000
TEXT_LIMIT = 200_000
PICKLE_LIMIT = 64 << 20
_DEPTH_LIMIT = 20

_RUNTIME_ERRORS = frozenset({"JaxRuntimeError", "XlaRuntimeError"})


class ResultError(Exception):
    """The function returned, but its value can't be sent; carries the value's repr."""

    def __init__(self, message: str, value_repr: str) -> None:
        super().__init__(message)
        self.value_repr = value_repr


def dump_value(value: object) -> bytes:
    """Pickles a value.

    Raises:
        ResultError: It can't be pickled; says why, and keeps its repr.
    """
    try:
        data: bytes = cloudpickle.dumps(value, protocol=5)
    except Exception as exc:
        raise unsendable(value, exc) from exc
    return data


def unsendable(value: object, exc: BaseException) -> ResultError:
    """What to say of a value that can't be pickled; `exc` is what pickling has raised."""
    kind = type(value).__name__
    text = f"the function returned a {kind} that can't be pickled: {_words(exc)}: return plain data instead"
    return ResultError(text, _repr(value))


def reason_of(exc: BaseException, phase: RankPhase) -> Reason:
    """Why a rank ended, by its exception and the phase that raised it."""
    if any(is_peer_loss(type(each).__name__, _str(each)) for each in _chain(exc)):
        return Reason.PEER_LOST
    if phase in BEFORE_CALL:
        return Reason.SETUP_ERROR
    if isinstance(exc, MemoryError) or _is_device_full(exc):
        return Reason.OUT_OF_MEMORY
    if phase is RankPhase.STORE:
        return Reason.RESULT_ERROR
    return Reason.USER_ERROR if phase is RankPhase.CALL else Reason.PROCESS_DIED


def describe_error(exc: BaseException) -> ErrorInfo:
    """An exception in words: the user's frames only, notes, cause chain and groups included."""
    lines = traceback.format_exception(type(exc), exc, _user_frames(exc.__traceback__))
    return ErrorInfo(
        type_name=type(exc).__name__,
        module=type(exc).__module__,
        message=_shorten(_str(exc), REPR_LIMIT),
        traceback=_shorten("".join(lines), TEXT_LIMIT),
        value_repr=exc.value_repr if isinstance(exc, ResultError) else None,
    )


def dump_exception(exc: BaseException) -> bytes | None:
    """Pickles an exception with its causes, or gives None where a round trip doesn't give it back.

    A cause that can't travel is left out; it stands in the traceback's text.
    """
    packed = _pack(exc, frozenset())
    if packed is None:
        return None
    data: bytes = cloudpickle.dumps(_Parcel(packed), protocol=5)
    return data if len(data) <= PICKLE_LIMIT else None


class _Parcel:
    """Unpickles as the exception itself, so that a reader needs nothing but `pickle.loads`."""

    def __init__(self, packed: tuple[Any, ...]) -> None:
        self._packed = packed

    def __reduce__(self) -> tuple[Any, ...]:
        return restore_exception, (self._packed,)


def restore_exception(packed: tuple[Any, ...]) -> BaseException:
    """Rebuilds what :func:`dump_exception` packed. Its name and form are part of the stored format."""
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
    """Makes an exception without calling its constructor, which may want arguments that nobody kept."""
    exc = kind.__new__(kind, *args)
    exc.args = args
    exc.__dict__.update(state)
    return exc


class _Rebuilt:
    """Pickles an exception by its class, arguments and attributes."""

    def __init__(self, exc: BaseException) -> None:
        self._parts = (type(exc), exc.args, dict(exc.__dict__))

    def __reduce__(self) -> tuple[Any, ...]:
        return rebuild_exception, self._parts


def _pack(exc: BaseException, seen: frozenset[int]) -> tuple[Any, ...] | None:
    if id(exc) in seen or len(seen) >= _DEPTH_LIMIT:
        return None
    seen |= {id(exc)}
    members = None
    data = None
    if isinstance(exc, BaseExceptionGroup):
        packed = [_pack(member, seen) for member in exc.exceptions]
        members = [member for member in packed if member is not None]
        stand_in = exc.derive([Exception()])
        stand_in.__dict__.update(exc.__dict__)
        data = _dump_checked(stand_in) if members and len(members) == len(packed) else None
    else:
        data = _dump_checked(exc)
    if data is None:
        return None
    cause = None if exc.__cause__ is None else _pack(exc.__cause__, seen)
    context = None if exc.__context__ is None else _pack(exc.__context__, seen)
    return data, members, cause, context, exc.__suppress_context__


def _dump_checked(exc: BaseException) -> bytes | None:
    for form in (exc, _Rebuilt(exc)):
        try:
            data: bytes = cloudpickle.dumps(form, protocol=5)
            back = cloudpickle.loads(data)
            same = type(back) is type(exc) and _str(back) == _str(exc)
        # A foreign class may raise anything as it is rebuilt, KeyboardInterrupt and SystemExit too: out of here either
        # would end the process in the user's error's place. Nobody interrupts a rank in earnest; those are killed.
        except BaseException:  # noqa: BLE001
            continue
        if same:
            return data
    return None


def _chain(exc: BaseException) -> Iterator[BaseException]:
    """An exception and what it was raised from, nearest first."""
    seen: set[int] = set()
    current: BaseException | None = exc
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        hidden = current.__suppress_context__
        current = current.__cause__ or (None if hidden else current.__context__)


def _is_device_full(exc: BaseException) -> bool:
    return type(exc).__name__ in _RUNTIME_ERRORS and _str(exc).startswith("RESOURCE_EXHAUSTED")


def _user_frames(frames: TracebackType | None) -> TracebackType | None:
    """The traceback without our own frames at its top; all of it where it has no others."""
    ours = str(Path(__file__).parent)
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

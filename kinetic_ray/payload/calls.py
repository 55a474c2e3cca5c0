"""A call as bytes, and back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from pickle import PickleBuffer
from types import MethodType
from typing import Any

from kinetic_ray.core.outcome import Blob
from kinetic_ray.errors import PayloadError
from kinetic_ray.payload.blame import find_culprit
from kinetic_ray.payload.parts import LARGE, Payload, open_payload
from kinetic_ray.payload.pickling import CallPickler
from kinetic_ray.payload.weights import judge

Call = tuple[Any, tuple[Any, ...], Mapping[str, Any]]


def pack_call(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    *,
    by_value: Callable[[str], bool],
    main_file: str | None = None,
) -> Payload:
    """Pickles a call; what the arguments share, among themselves and with the function, stays shared.

    Args:
        function: What is called.
        args: Its arguments.
        kwargs: Its keyword arguments.
        by_value: Asked for a loaded module: True if a host can't import it.
        main_file: The script's path in the bundle, which becomes `__file__` again there.

    Raises:
        PayloadError: Something can't be pickled, or is too large; names it, e.g. "args[1]['model'].lock".
    """
    call = (function, tuple(args), dict(kwargs))
    try:
        payload = _packed(call, by_value, main_file)
    except Exception as exc:
        name = getattr(function, "__name__", type(function).__name__)
        raise refusal(name, call, lambda obj: CallPickler(by_value).dumps(obj), exc) from exc
    judge(payload, call, by_value)
    return payload


def _packed(call: Call, by_value: Callable[[str], bool], main_file: str | None) -> Payload:
    """Two pickles of one pickler: an object that both hold is told once. The first depends on the function alone."""
    function, args, kwargs = call
    buffers: list[memoryview] = []

    def stays(buffer: PickleBuffer) -> bool:
        raw = buffer.raw()
        if raw.nbytes >= LARGE:
            buffers.append(raw)
        return raw.nbytes < LARGE

    pickler = CallPickler(by_value, stays)
    first = pickler.dumps(function)
    captured = len(buffers)
    second = pickler.dumps((args, kwargs))
    return Payload(first, second, tuple(buffers), captured, main_file, frozenset(pickler.modules))


def refusal(
    name: str,
    call: Call,
    dump: Callable[[object], object],
    exc: BaseException,
) -> PayloadError:
    """What to say of a call that can't be pickled: names the part that is to blame.

    Args:
        name: The function's.
        call: The function, its arguments, its keyword arguments.
        dump: Pickles one object, or raises.
        exc: What pickling all of it has raised.
    """
    culprit = find_culprit(*call, dump, 0 if _is_too_deep(exc) else None)
    return PayloadError(
        f"{name}: {culprit} can't be sent to another process: {_words(exc)}. "
        "Make it inside the function, or pass what it is made from"
    )


def dump_call(
    function: Callable[..., Any], args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
) -> bytes:
    """Pickles a call whose modules every host has; only `__main__` goes by value.

    Example:
        >>> function, args, kwargs = load_call(dump_call(max, (1, 2)))
        >>> function(*args)
        2
    """
    return pack_call(function, args, kwargs or {}, by_value=lambda name: name in ("__main__", "__mp_main__")).data


def load_call(
    data: bytes, root: Path | None = None, fetch: Callable[[Blob], bytes] | None = None
) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
    """Unpickles a call; imports the modules that it refers to.

    Args:
        data: What a :class:`Payload` has stored, or its `data`.
        root: The unpacked bundle's folder, in which the script's `__file__` lies.
        fetch: Gives a stored part; not needed where all is in one piece.

    Raises:
        ConfigError: Written by a newer kinetic_ray.
        Exception: Whatever importing the user's modules raises.
    """
    call = open_payload(data, fetch)
    if root is not None and call.main is not None:
        place_main(call.function, root / call.main)
    return call.function, call.args, call.kwargs


def place_main(function: Any, file: Path) -> None:
    """Lets the script's functions, which share one namespace, find `__file__` where the script lies now."""
    while isinstance(function, partial | MethodType):
        function = function.func if isinstance(function, partial) else function.__func__
    names = getattr(function, "__globals__", None)
    if isinstance(names, dict) and names.get("__name__") in ("__main__", "__mp_main__"):
        names["__file__"] = str(file)


def _words(exc: BaseException) -> str:
    return "it is nested too deeply" if _is_too_deep(exc) else str(exc) or type(exc).__name__


def _is_too_deep(exc: BaseException) -> bool:
    return isinstance(exc, RecursionError) or isinstance(exc.__cause__, RecursionError)

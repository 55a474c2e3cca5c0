"""What is judged of functions and calls on the client: names, places, arguments."""

from __future__ import annotations

import inspect
from typing import Any

from kinetic_ray import config
from kinetic_ray.frames import raise_told


def name_of(function: Any) -> str:
    """The name for people: "train", "Trainer.train", "partial"."""
    name = getattr(function, "__qualname__", type(function).__name__)
    return str(name).rpartition("<locals>.")[2]


def inside_a_job() -> bool:
    """Whether this is a rank, or a process that one has started."""
    from kinetic_ray.runner import session

    return session.CURRENT.context is not None or config.inside_a_job()


def signature_of(function: Any) -> inspect.Signature | None:
    """What a function takes; None where that can't be told.

    The outermost layer is what is called: a wrapper may well hand over other arguments than it takes.
    """
    try:
        return inspect.signature(function, follow_wrapped=False)
    except (TypeError, ValueError):
        return None


def check_arguments(
    name: str, signature: inspect.Signature | None, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    """Refuses arguments that the call could only fail with, as Python would; what can't be told is let through."""
    if signature is None:
        return
    try:
        signature.bind(*args, **kwargs)
    except TypeError as exc:
        told = TypeError(f"{name}(): {exc}")
    else:
        return
    raise_told(told)

"""What is judged of functions and calls on the client: names, places, arguments."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

from kinetic_ray import config
from kinetic_ray.calls.streams import is_stream
from kinetic_ray.frames import raise_told


def name_of(function: Any) -> str:
    """The name for people: "train", "Trainer.train", "partial"."""
    name = getattr(function, "__qualname__", type(function).__name__)
    return str(name).rpartition("<locals>.")[2]


def check_methods(kind: type) -> None:
    """Refuses a class with methods that could never be called from elsewhere.

    Bases may have them, and private ones as well: those are for the class itself.

    Raises:
        TypeError: It has one.
    """
    for name, member in vars(kind).items():
        method = member.__func__ if isinstance(member, staticmethod | classmethod) else member
        if not name.startswith("_") and is_stream(method):
            raise TypeError(
                f"{name_of(kind)}.{name} is an async or generator method, whose value can't leave its process: return "
                f"a plain value (asyncio.run(...), list(...)), or call it _{name} if only the class itself uses it"
            )


def inside_a_job() -> bool:
    """Whether this is a rank, or a process that one has started."""
    from kinetic_ray.runner import session

    return session.CURRENT.context is not None or config.inside_a_job()


@dataclass(frozen=True, slots=True)
class Takes:
    """What a function takes.

    Attributes:
        signature: None where it can't be told.
        fewest: So many arguments by place alone always fit,
        most: up to so many; -1 where only the signature can tell.
    """

    signature: inspect.Signature | None = None
    fewest: int = 0
    most: int = -1


def takes_of(function: Any) -> Takes:
    """What a function takes.

    The outermost layer is what is called: a wrapper may well hand over other arguments than it takes.
    """
    try:
        signature = inspect.signature(function, follow_wrapped=False)
    except (TypeError, ValueError):
        return Takes()
    parameters = signature.parameters.values()
    by_place = [one for one in parameters if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
    needs_names = any(one.kind is one.KEYWORD_ONLY and one.default is one.empty for one in parameters)
    fewest = sum(one.default is one.empty for one in by_place)
    return Takes(signature, fewest, -1 if needs_names else len(by_place))


def check_arguments(name: str, takes: Takes, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Refuses arguments that the call could only fail with, as Python would; what can't be told is let through."""
    if takes.signature is None or (not kwargs and takes.fewest <= len(args) <= takes.most):
        return
    try:
        takes.signature.bind(*args, **kwargs)
    except TypeError as exc:
        told = TypeError(f"{name}(): {exc}")
    else:
        return
    raise_told(told)

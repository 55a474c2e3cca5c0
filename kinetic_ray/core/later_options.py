"""Options of later versions: known by name, so that they can be refused by it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kinetic_ray.core.urls import has_password
from kinetic_ray.errors import UsageError

#: Options of later versions, with the values that mean nothing and so do no harm now.
LATER: Mapping[str, tuple[Any, ...]] = {
    "debug": (False,),
    "dependencies": ([], ()),
    "failure": (),
    "hang_timeout": (),
    "lifecycle": ("shared",),
    "max_restarts": (0,),
    "placement": ("slice",),
    "queue": (),
    "success": (),
    "ttl": (),
    "volumes": ({},),
}


def refuse_later(name: str, value: Any) -> None:
    """Refuses an option of a later version, unless the value asks for nothing.

    Raises:
        UsageError: It asks for something.
    """
    harmless = value is None or any(
        value == neutral and type(value) is type(neutral) for neutral in LATER.get(name, ())
    )
    if name in LATER and not harmless:
        raise not_yet(name, value)


def not_yet(name: str, value: Any) -> UsageError:
    """What is said of it."""
    # Others may hold anything, passwords as well.
    shown = repr(value) if isinstance(value, str | int | float) and not has_password(str(value)) else "..."
    return UsageError(f"{name}={shown[:80]}: not available yet in this version of kinetic_ray; leave it out for now")

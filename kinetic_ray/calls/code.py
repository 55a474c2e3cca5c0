"""The code of a function as it is now: pickled again, or packed again, only where something may have changed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kinetic_ray.bundle import Bundle
    from kinetic_ray.runner.calls.packing import Packed


@dataclass(frozen=True, slots=True)
class Code:
    """A function and the files that it needs, as they are at one call. The very same object while nothing changed.

    Attributes:
        digest: SHA-256 of the pickled function.
        function: The pickled function.
        modules: Names of the modules that it refers to.
        bundle: The project's archive; None where there is nothing to send.
        bundle_digest: SHA-256 of the archive; "" for none.
        sys_path: Folders of the bundle for `sys.path`, relative to its root.
        cwd: The working folder in the bundle.
        main: The script's path in the bundle.
    """

    digest: str
    function: Packed
    modules: frozenset[str]
    bundle: Bundle | None
    bundle_digest: str
    sys_path: tuple[str, ...]
    cwd: str
    main: str | None


class CodeTracker:
    """Gives a function's code as it is now, at little cost while it stays as it is.

    Args:
        function: The plain function or class.
        avoid: Folders that are never sent: the store, KINETIC_HOME.
    """

    def __init__(self, function: Callable[..., Any], *, avoid: Iterable[Path] = ()) -> None:
        self._function = function
        self._avoid = tuple(avoid)

    def current(self) -> Code:
        """The code now; safe to call from several threads.

        Raises:
            PayloadError: The function can't be pickled, or the project is too large.
            ConfigError: A setting can't work.
        """
        raise NotImplementedError

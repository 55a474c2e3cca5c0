"""The code of a function as it is now: pickled again, or packed again, only where something may have changed."""

from __future__ import annotations

import hashlib
import os
import sys
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kinetic_ray import config
from kinetic_ray.bundle import Bundle, Project, find_project
from kinetic_ray.calls.changes import Marks
from kinetic_ray.calls.files import ProjectFiles, Sent, files_of

if TYPE_CHECKING:
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


@dataclass(frozen=True, slots=True)
class _Pickled:
    """The function, pickled.

    Attributes:
        digest: SHA-256 of it.
        packed: It.
        modules: Names of the modules that it refers to.
        marks: By which it is known to be the same still.
        files: The files that it needs.
    """

    digest: str
    packed: Packed
    modules: frozenset[str]
    marks: Marks
    files: ProjectFiles


class CodeTracker:
    """Gives a function's code as it is now, at little cost while it stays as it is.

    Args:
        function: The plain function or class.
        avoid: Folders that are never sent: the store, KINETIC_HOME.
    """

    def __init__(self, function: Callable[..., Any], *, avoid: Iterable[Path] = ()) -> None:
        self._function = function
        self._avoid = tuple(avoid)
        self._lock = threading.Lock()
        self._place: tuple[object, ...] = ()
        self._project: Project | None = None
        self._pickled: _Pickled | None = None
        self._sent: Sent | None = None
        self._code: Code | None = None

    def current(self) -> Code:
        """The code now; safe to call from several threads.

        Raises:
            PayloadError: The function can't be pickled, or the project is too large.
            ConfigError: A setting can't work.
        """
        with self._lock:
            project = self._project_now()
            before, code = self._pickled, self._code
            pickled = before if before is not None and before.marks.hold() else self._pickle(project, before)
            sent = pickled.files.current()
            if pickled is before and sent is self._sent and code is not None:
                return code
            self._pickled, self._sent = pickled, sent
            if code is None or code.digest != pickled.digest or not _is_sent(code, sent):
                code = self._code = Code(
                    digest=pickled.digest,
                    function=pickled.packed,
                    modules=pickled.modules,
                    bundle=sent.bundle,
                    bundle_digest=sent.digest,
                    sys_path=sent.sys_path,
                    cwd=sent.cwd,
                    main=project.main_name,
                )
            return code

    def _project_now(self) -> Project:
        place = _place()
        if self._project is None or place != self._place:
            self._project = find_project(self._function, avoid=self._avoid)
            self._place, self._pickled, self._code = place, None, None
        return self._project

    def _pickle(self, project: Project, before: _Pickled | None) -> _Pickled:
        from kinetic_ray.runner.calls.packing import pack_function

        # Marked before it is pickled: what changes meanwhile no longer holds at the next call.
        marks = Marks(self._function, project.goes_by_value)
        packed, modules = pack_function(self._function, project.goes_by_value)
        digest = _digest(packed)
        if before is not None and before.modules == modules:
            same = before.digest == digest
            return replace(before, digest=digest, packed=before.packed if same else packed, marks=marks)
        return _Pickled(digest, packed, modules, marks, files_of(project, modules))


def _place() -> tuple[object, ...]:
    """What decides which project a function belongs to, besides the function."""
    try:
        cwd = os.getcwd()  # noqa: PTH109 - at each call, so cheap
    except FileNotFoundError:
        cwd = ""
    main = sys.modules.get("__main__")
    return cwd, main, getattr(main, "__file__", None), config.setting("package_root")


def _is_sent(code: Code, sent: Sent) -> bool:
    facts = code.bundle_digest, code.sys_path, code.cwd
    return code.bundle is sent.bundle and facts == (sent.digest, sent.sys_path, sent.cwd)


def _digest(packed: Packed) -> str:
    """SHA-256 of a packed function, where its parts lie: they may be large."""
    digest = hashlib.sha256()
    for part in (packed.data, *packed.buffers):
        view = memoryview(part)
        digest.update(view.nbytes.to_bytes(8, "little"))
        digest.update(view)
    for live in packed.live:  # the pickle holds only their places
        digest.update(repr(live.obj).encode())  # which for a ref, and for an actor's handle, names its id
    return digest.hexdigest()

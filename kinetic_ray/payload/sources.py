"""The lines of code that travels by value: tracebacks and `inspect.getsource` show what runs, not what lies there."""

from __future__ import annotations

import io
import linecache
from functools import lru_cache
from pathlib import Path

from kinetic_ray.bundle.origins import is_installed

#: Of all texts in one pickle; what is beyond goes without.
LIMIT = 1 << 20
_OURS = Path(__file__).resolve().parents[1]


class Sources:
    """The texts that one pickle takes along, each once."""

    def __init__(self) -> None:
        self._texts: dict[str, str | None] = {}
        self._left = LIMIT

    def of(self, file: str) -> str | None:
        """The text that a code object's file name stands for; the very same string at every call."""
        if file not in self._texts:
            text = None if _every_host_has(file) else _read(file)
            if text is not None and len(text) > self._left:
                text = None
            self._left -= len(text or "")
            self._texts[file] = text
        return self._texts[file]


def remember(file: str, text: str) -> None:
    """Lets this process show a file's lines as the text has them, whatever lies under its name."""
    # Without a time of change the entry is never compared with the file.
    linecache.cache[file] = (len(text), None, [*io.StringIO(text)], file)


def _read(file: str) -> str | None:
    # What Python itself would show: of a notebook's cell too. Not compared with the file again, which may be newer.
    try:
        return "".join(linecache.getlines(file)) or None
    except Exception:  # noqa: BLE001 - a loader's own get_source may raise anything
        return None


@lru_cache(maxsize=512)
def _every_host_has(file: str) -> bool:
    if file.startswith("<"):
        return False
    path = Path(file).absolute()
    return is_installed(path) or path.is_relative_to(_OURS)

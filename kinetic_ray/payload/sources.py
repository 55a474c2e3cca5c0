"""The lines of code that travels by value: tracebacks and `inspect.getsource` show what runs, not what lies there."""

from __future__ import annotations

import io
import linecache
import sys
from functools import lru_cache
from pathlib import Path
from types import CodeType

from kinetic_ray.bundle.origins import is_installed

#: Of all texts in one pickle; what is beyond goes without.
LIMIT = 1 << 20
_OURS = Path(__file__).resolve().parents[1]


class Sources:
    """The texts that one pickle takes along, each once."""

    def __init__(self) -> None:
        self._texts: dict[str, str | None] = {}
        self._left = LIMIT

    def of(self, code: CodeType) -> str | None:
        """The text of the file that a code object was made from; the very same string for all code of that file."""
        file = code.co_filename
        if file not in self._texts:
            text = None if _every_host_has(file) else _text_of(file, code)
            if text is not None and len(text) > self._left:
                text = None
            self._left -= len(text or "")
            self._texts[file] = text
        return self._texts[file]


def remember(file: str, text: str) -> None:
    """Lets this process show a file's lines as the text has them, whatever lies under its name."""
    # Without a time of change the entry is never compared with the file.
    linecache.cache[file] = (len(text), None, [*io.StringIO(text)], file)


@lru_cache(maxsize=4096)
def _text_of(file: str, _code: CodeType) -> str | None:
    """A file's text, once for a code object of it: if the file is edited afterwards, the code was not made from that.

    And a function that is pickled again is the same bytes, which is how it is known on a host.
    """
    # What Python itself would show: of a notebook's cell too. Not compared with the file again, which may be newer.
    try:
        lines = linecache.getlines(file)
    except Exception:  # noqa: BLE001 - a loader's own get_source may raise anything
        return None
    return sys.intern("".join(lines)) or None  # one string for all functions of a file


@lru_cache(maxsize=512)
def _every_host_has(file: str) -> bool:
    if file.startswith("<"):
        return False
    path = Path(file).absolute()
    return is_installed(path) or path.is_relative_to(_OURS)

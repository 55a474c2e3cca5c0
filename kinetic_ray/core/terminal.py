"""Text that is safe on a terminal: control codes out of what users' programs have printed."""

from __future__ import annotations

import re
import unicodedata
from typing import TextIO

# An operating system command (title, clipboard, hyperlink) up to its end, where that is in the line; any other
# control sequence; a lone escape with the character it introduces; then the bare control characters, 8-bit ones too.
_CONTROL = re.compile(
    r"\x1b[\]PX^_][^\x07\x1b\x9c\n]*(?:\x07|\x1b\\|\x9c)"
    r"|(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"
    r"|\x1b[ -/]*[0-~]?"
    r"|[\x00-\x08\x0b-\x1f\x7f-\x9f]"
)
_SGR = re.compile(r"\x1b\[[0-9;:]*m")
RESET = "\x1b[0m"


def sanitize(line: str, *, color: bool = True) -> str:
    r"""A user's line as a terminal may safely be given it: no control codes but tabs and colours.

    Args:
        line: Without its newline. A carriage return starts the line over, as it does on a terminal.
        color: Whether colours stay; where they do, the line ends with a reset if it used any.

    Example:
        >>> sanitize("10 %\r20 % \x1b]0;title\x07\x1b[2Jdone")
        '20 % done'
    """
    text = line.rstrip("\r").rpartition("\r")[2]
    kept = _CONTROL.sub(lambda found: found[0] if color and _SGR.fullmatch(found[0]) else "", text)
    return kept + RESET if "\x1b" in kept and not kept.endswith(RESET) else kept


def sanitize_text(text: str) -> str:
    r"""Several lines, each as :func:`sanitize` gives it without colours.

    Example:
        >>> sanitize_text("Traceback:\n  \x1b]0;title\x07\x1b[31mValueError\x1b[0m: x\n")
        'Traceback:\n  ValueError: x\n'
    """
    return "\n".join(sanitize(line, color=False) for line in text.split("\n"))


def one_row(text: str, cells: int) -> str:
    r"""As much of a sanitised line as surely fits into so many cells of a terminal.

    Example:
        >>> one_row("50 %|=====     |", 8), one_row("\u6f22\u5b57", 3)
        ('50 %|===', '\u6f22')
    """
    taken = 0
    flat = text.expandtabs(4)
    for place, char in enumerate(flat):
        taken += 2 if unicodedata.east_asian_width(char) in "WF" else 1
        if taken > cells:
            return flat[:place]
    return flat


def is_terminal(stream: TextIO) -> bool:
    """Whether a person's terminal is at the other end; a stand-in for `sys.stdout` need not be able to tell."""
    asked = getattr(stream, "isatty", None)
    return bool(asked and asked())


def encodable(text: str, stream: TextIO) -> str:
    """The text with "?" for what the stream's encoding can't hold."""
    encoding = getattr(stream, "encoding", None) or "utf-8"  # a stand-in for sys.stdout may have none
    return text.encode(encoding, "replace").decode(encoding, "replace")

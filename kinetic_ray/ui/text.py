"""Text that is safe to show: control codes out of users' lines, spans of time, the writer of log lines."""

from __future__ import annotations

import codecs
import io
import re
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
_LONGEST_PARTIAL = 64 * 1024  # bytes of a line without its end that are held back


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


def format_duration(seconds: float) -> str:
    """A span for people.

    Example:
        >>> [format_duration(s) for s in (0.42, 42, 192, 7500, 200000)]
        ['0.4 s', '42 s', '3 m 12 s', '2 h 05 m', '2 d 07 h']
    """
    whole = int(seconds)
    if seconds < 10:
        return f"{max(seconds, 0):.1f} s"
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} m {whole % 60:02d} s"
    if whole < 86400:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} m"
    return f"{whole // 86400} d {whole % 86400 // 3600:02d} h"


def counted(number: int, noun: str) -> str:
    """A number of things.

    Example:
        >>> counted(1, "job"), counted(2, "job")
        ('1 job', '2 jobs')
    """
    return f"{number} {noun}" + ("" if number == 1 else "s")


class LogWriter:
    """Writes the bytes of one rank's log to a stream: untouched to a file or pipe, sanitised to a terminal.

    Args:
        out: Where the lines go.
        prefix: Put before every line, e.g. "[2] " where the lines of several ranks mix.
        color: Whether a terminal is given the colours that the lines hold.
    """

    def __init__(self, out: TextIO, *, prefix: str = "", color: bool = True) -> None:
        self._out = out
        self._prefix = prefix
        self._color = color
        self._tty = out.isatty()
        self._rest = b""
        self._inside = False
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    @property
    def partial(self) -> str:
        """The line that has not ended yet, where it is held back."""
        return sanitize(self._rest.decode("utf-8", "replace"), color=False)

    def ends_inside_a_line(self) -> bool:
        """Whether the last byte written was no newline; True once, since whoever asks then ends the line."""
        inside, self._inside = self._inside, False
        return inside

    def write(self, data: bytes) -> None:
        if not self._tty and not self._prefix:
            self._raw(data)
        else:
            *lines, self._rest = (self._rest + data).split(b"\n")
            for line in lines:
                self._line(line)
            if len(self._rest) > _LONGEST_PARTIAL:  # a progress bar that never ends its line, or no text at all
                self._rest = self._rest[:-1].rpartition(b"\r")[2] + self._rest[-1:]
            if len(self._rest) > _LONGEST_PARTIAL:
                self._line(self._rest)
                self._rest = b""
        self._out.flush()

    def close(self) -> None:
        """Writes a last line that had no newline."""
        if self._rest:
            self._line(self._rest)
            self._rest = b""
            self._out.flush()

    def _line(self, line: bytes) -> None:
        if self._tty:
            text = sanitize(line.decode("utf-8", "replace"), color=self._color)
            self._out.write(f"{self._prefix}{encodable(text, self._out)}\n")
        else:
            self._raw(self._prefix.encode() + line + b"\n")

    def _raw(self, data: bytes) -> None:
        self._inside = not data.endswith(b"\n") if data else self._inside
        if isinstance(self._out, io.TextIOWrapper):
            self._out.flush()
            self._out.buffer.write(data)
        else:  # a notebook's stream, or a StringIO
            self._out.write(self._decoder.decode(data))


def encodable(text: str, stream: TextIO) -> str:
    """The text with "?" for what the stream's encoding can't hold."""
    encoding = stream.encoding or "utf-8"
    return text.encode(encoding, "replace").decode(encoding, "replace")

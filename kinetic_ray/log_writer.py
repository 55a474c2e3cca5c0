"""The writer of log lines: a rank's bytes on their way to a file, a pipe or a terminal."""

from __future__ import annotations

import codecs
import io
import os
from typing import TextIO

from kinetic_ray.core.terminal import encodable, is_terminal, one_row, sanitize

#: Bytes of a line without its end that are held back: to a terminal, which shows the line cut, and to what takes all.
_LONGEST_ON_TERMINAL, _LONGEST_PARTIAL = 64 * 2**10, 16 * 2**20


class LogWriter:
    """Writes the bytes of one rank's log to a stream: untouched to a file or pipe, sanitised to a terminal.

    Args:
        out: Where the lines go.
        prefix: Put before every line, e.g. "[2] " where the lines of several ranks mix.
        color: Whether a terminal is given the colours that the lines hold.
        live: Whether a terminal shows a line before it ends, as progress bars need it. Only for a writer that has the
            terminal's last row for itself.
    """

    def __init__(self, out: TextIO, *, prefix: str = "", color: bool = True, live: bool = False) -> None:
        self._out = out
        self._prefix = prefix
        self._color = color
        self._tty = is_terminal(out)
        self._live = live and self._tty
        self._drawn = ""
        self._rest = bytearray()
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
            self._whole_lines(data)
            self._draw()
        self._out.flush()

    def close(self) -> None:
        """Writes a last line that had no newline."""
        if self._rest:
            self._line(bytes(self._rest))
            self._rest = bytearray()
        self._out.write(self._decoder.decode(b"", final=True))  # half a character
        self._out.flush()

    def _whole_lines(self, data: bytes) -> None:
        first, newline, more = data.partition(b"\n")
        self._rest += first  # which was looked through already
        if newline:
            *lines, last = more.split(b"\n")
            ended, self._rest = bytes(self._rest), bytearray(last)
            for line in (ended, *lines):
                self._line(line)
        if self._tty and len(self._rest) > _LONGEST_ON_TERMINAL:  # a bar that never ends its line, or no text at all
            self._rest = self._rest[:-1].rpartition(b"\r")[2] + self._rest[-1:]
        if len(self._rest) > (_LONGEST_ON_TERMINAL if self._tty else _LONGEST_PARTIAL):
            ended, self._rest = bytes(self._rest), bytearray()
            self._line(ended)

    def _draw(self) -> None:
        """Shows the unfinished line, cut to one row so that it can be taken back."""
        shown = one_row(self.partial, columns(self._out) - 1) if self._live else ""
        if shown != self._drawn:
            text = self._taken_back() + encodable(shown, self._out)
            self._drawn = shown  # first, for a Ctrl-C may come once it is written
            self._out.write(text)

    def _taken_back(self) -> str:
        drawn, self._drawn = self._drawn, ""
        return "\r\x1b[J" if drawn else ""

    def _line(self, line: bytes) -> None:
        if self._tty:
            text = sanitize(line.decode("utf-8", "replace"), color=self._color)
            self._out.write(f"{self._taken_back()}{self._prefix}{encodable(text, self._out)}\n")
        else:
            self._raw(self._prefix.encode() + line + b"\n")

    def _raw(self, data: bytes) -> None:
        self._inside = not data.endswith(b"\n") if data else self._inside
        if isinstance(self._out, io.TextIOWrapper):
            self._out.flush()
            self._out.buffer.write(data)
        else:  # a notebook's stream, or a StringIO
            self._out.write(self._decoder.decode(data))


def columns(stream: TextIO) -> int:
    """How wide the stream's terminal is; 80 where it doesn't tell."""
    try:
        return max(os.get_terminal_size(stream.fileno()).columns, 0) or 80
    except (AttributeError, OSError, ValueError):  # no terminal after all, or closed
        return 80

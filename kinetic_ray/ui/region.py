"""The lines at the bottom of a terminal that are drawn anew again and again."""

from __future__ import annotations

from typing import TextIO

from kinetic_ray.core.terminal import RESET, encodable
from kinetic_ray.log_writer import columns

_STYLES = {"bold": "\x1b[1m", "red": "\x1b[31m", "green": "\x1b[32m", "yellow": "\x1b[33m", "cyan": "\x1b[36m"}


class Region:
    """The lines at the bottom of a terminal that can be taken back."""

    def __init__(self, err: TextIO, *, color: bool) -> None:
        self._err = err
        self._color = color
        self._drawn: list[int] = []  # cells of each line

    def draw(self, lines: list[tuple[str, str]]) -> None:
        """Replaces what was drawn by these (text, style), each cut to one row."""
        from rich.cells import cell_len, set_cell_size

        width = columns(self._err) - 1  # a full row would make the terminal wrap
        flat = [(text.expandtabs(4), style) for text, style in lines]
        fitting = [(text if cell_len(text) <= width else set_cell_size(text, width), style) for text, style in flat]
        taken_back = self._taken_back()
        self._drawn = [cell_len(text) for text, _ in fitting]
        self._write(taken_back + "\n".join(self._styled(text, style) for text, style in fitting))

    def erase(self) -> None:
        self._write(self._taken_back())
        self._drawn = []

    def print(self, text: str, style: str) -> None:
        """Writes a line that stays."""
        self.erase()
        self._write(self._styled(text, style) + "\n")

    def _taken_back(self) -> str:
        if not self._drawn:
            return ""
        width = columns(self._err)  # it may have become narrower since, and the lines wrapped
        rows = sum(max(1, -(-cells // width)) for cells in self._drawn)
        return "\r" + (f"\x1b[{rows - 1}A" if rows > 1 else "") + "\x1b[J"

    def _styled(self, text: str, style: str) -> str:
        code = _STYLES.get(style, "") if self._color else ""
        return f"{code}{text}{RESET}" if code else text

    def _write(self, text: str) -> None:
        if text:
            self._err.write(encodable(text, self._err))
            self._err.flush()

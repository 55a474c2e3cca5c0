"""A terminal in miniature: what a person would see after a program wrote these bytes."""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Iterator, Mapping, Sequence

_TOKEN = re.compile(r"\x1b\[([0-9;]*)([A-Za-z])|([\r\n])|([^\x1b\r\n]+)|(\x1b)")


class Screen:
    """The control codes that our display uses; any other escape fails the test that fed it."""

    def __init__(self, columns: int = 80) -> None:
        self.columns = columns
        self.lines: list[list[str]] = [[]]
        self.row = self.column = 0

    def feed(self, text: str) -> None:
        for found in _TOKEN.finditer(text):
            args, command, newline, plain, escape = found.groups()
            if plain:
                for char in plain:
                    self._put(char)
            elif newline == "\r":
                self.column = 0
            elif newline == "\n":
                self._down()
            elif escape:
                raise AssertionError(f"a bare escape reached the terminal: {text[found.start() :][:40]!r}")
            else:
                self._command(args, command)

    def text(self) -> list[str]:
        """The rows, without blanks at their ends and without empty rows at the end."""
        rows = ["".join(row).rstrip() for row in self.lines]
        while rows and not rows[-1]:
            rows.pop()
        return rows

    def _put(self, char: str) -> None:
        if self.column >= self.columns:
            self._down()
            self.column = 0
        row = self.lines[self.row]
        row.extend(" " * (self.column + 1 - len(row)))
        row[self.column] = char
        self.column += 1

    def _down(self) -> None:
        self.row += 1
        if self.row == len(self.lines):
            self.lines.append([])

    def _command(self, args: str, command: str) -> None:
        if command == "A":
            self.row = max(0, self.row - int(args or 1))
        elif command == "J" and args in ("", "0"):
            del self.lines[self.row][self.column :]
            del self.lines[self.row + 1 :]
        elif command != "m":
            raise AssertionError(f"unexpected control sequence {args}{command}")


def run_in_terminal(
    command: Sequence[str], *, env: Mapping[str, str] | None = None, columns: int = 100, interrupt_at: str = ""
) -> tuple[int, str]:
    """Runs a program whose standard streams are a terminal; returns its exit code and all that it wrote.

    Args:
        command: The program.
        env: Its environment.
        columns: Of the terminal.
        interrupt_at: Once this has been written, the program gets what Ctrl-C sends.
    """
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    env = {**os.environ, "TERM": "xterm-256color"} if env is None else env
    process = subprocess.Popen(command, stdin=follower, stdout=follower, stderr=follower, env=env)
    try:
        os.close(follower)
        written = b""
        for chunk in _chunks(leader, time.monotonic() + 120):
            written += chunk
            if interrupt_at and interrupt_at.encode() in written:
                process.send_signal(signal.SIGINT)
                interrupt_at = ""
        return process.wait(timeout=30), written.decode()
    finally:
        process.kill()  # where it has not ended
        process.wait()
        os.close(leader)


def _chunks(leader: int, deadline: float) -> Iterator[bytes]:
    while time.monotonic() < deadline:
        if select.select([leader], [], [], 1.0)[0]:
            try:
                yield os.read(leader, 65536)
            except OSError:  # EIO: the last holder of the other end is gone
                return

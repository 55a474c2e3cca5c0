"""How commands print facts: one JSON document, or a table."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import click

from kinetic_ray.core.terminal import RESET, sanitize

F = TypeVar("F", bound=Callable[..., Any])

_GREEN, _RED, _YELLOW, _CYAN = (f"\x1b[{code}m" for code in (32, 31, 33, 36))
#: Colours of a job's status and of a finding's level.
_STYLES = {
    "RUNNING": _CYAN,
    "SUCCEEDED": _GREEN,
    "FAILED": _RED,
    "STOPPED": _YELLOW,
    "ok": _GREEN,
    "warn": _YELLOW,
    "fail": _RED,
}
_GAP = "  "


def json_option(command: F) -> F:
    """Adds `--json` as the argument `as_json`."""
    option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead.")
    return option(command)


def print_json(document: Any) -> None:
    """Prints a document: indented on a terminal, else in one line."""
    indent = 2 if sys.stdout.isatty() else None
    click.echo(json.dumps(document, ensure_ascii=False, indent=indent, allow_nan=False, default=str))


def say(text: str) -> None:
    """Prints a line for people, with control codes taken out."""
    click.echo("\n".join(sanitize(line, color=False) for line in text.split("\n")))


def note(text: str) -> None:
    """Tells something beside the facts, on standard error."""
    click.echo(f"kinetic: {sanitize(text, color=False)}", err=True)


def print_table(headers: Sequence[str], rows: Sequence[Sequence[str]], *, color: bool) -> None:
    """Prints aligned columns, never cut and never folded: what reads them, or copies an id, gets whole words.

    Args:
        headers: One title a column.
        rows: Cells as text; what they hold is never read as markup.
        color: Whether a terminal may be given colours.
    """
    clean = [[sanitize(cell, color=False).replace("\t", " ") for cell in row] for row in rows]
    titles = [header.upper() for header in headers]
    widths = [max(map(len, column)) for column in zip(titles, *clean, strict=True)]
    click.echo(_row(titles, widths, {}))
    styles = _STYLES if color and sys.stdout.isatty() else {}
    for row in clean:
        click.echo(_row(row, widths, styles))


def _row(cells: Sequence[str], widths: Sequence[int], styles: Mapping[str, str]) -> str:
    padded = [
        f"{styles[cell]}{cell}{RESET}{' ' * (width - len(cell))}" if cell in styles else cell.ljust(width)
        for cell, width in zip(cells, widths, strict=True)
    ]
    return _GAP.join(padded).rstrip()

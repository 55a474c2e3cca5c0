"""How commands print facts: one JSON document, or a table."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from kinetic_ray.ui.text import sanitize

F = TypeVar("F", bound=Callable[..., Any])

#: Colours of a job's status and of a finding's level.
_COLORS = {
    "RUNNING": "cyan",
    "SUCCEEDED": "green",
    "FAILED": "red",
    "STOPPED": "yellow",
    "ok": "green",
    "warn": "yellow",
    "fail": "red",
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
    """Prints aligned columns, never cut: programs that read them get whole words.

    Args:
        headers: One title a column.
        rows: Cells as text; what they hold is never read as markup.
        color: Whether a terminal may be given colours.
    """
    clean = [[sanitize(cell, color=False).replace("\t", " ") for cell in row] for row in rows]
    if not sys.stdout.isatty():
        click.echo("\n".join(_aligned([[header.upper() for header in headers], *clean])))
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, len(_GAP), 0, 0), header_style="bold")
    for place, header in enumerate(headers):
        table.add_column(header.upper(), no_wrap=place == 0, overflow="fold")
    for row in clean:
        table.add_row(*(Text(cell, _COLORS.get(cell, "")) for cell in row))
    Console(no_color=not color, highlight=False).print(table)


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [_GAP.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]

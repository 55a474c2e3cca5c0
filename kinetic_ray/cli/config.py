"""`kinetic config`: what every setting is, and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import click

from kinetic_ray import config as settings
from kinetic_ray.cli.output import json_option, note, print_json, print_table
from kinetic_ray.config import Found
from kinetic_ray.core.urls import shown_url
from kinetic_ray.profiles import Profile
from kinetic_ray.settings import SETTINGS, UPSTREAM_VARIABLES


@dataclass(frozen=True, slots=True)
class Row:
    """One setting as it is shown."""

    name: str
    variable: str
    default: str
    found: Found


@click.command()
@click.argument("what", metavar="[show]", required=False, type=click.Choice(["show"]))
@click.option("--explain", is_flag=True, help="Also show which values each one goes before.")
@json_option
def config(what: str | None, explain: bool, as_json: bool) -> None:  # noqa: ARG001  upstream's word
    """Show every setting, and where it comes from.

    A flag goes before a KINETIC_* variable, that before the profile, that before the default.
    """
    root = click.get_current_context().find_root()
    environ: Mapping[str, str] = root.obj or settings.environment()
    flag = root.params.get("profile")
    active = settings.active_profile(flag, environ)
    rows = [
        Row(name, SETTINGS[name].env, SETTINGS[name].default, _found(name, flag, active, environ)) for name in SETTINGS
    ]
    strange = settings.strange_settings(active, environ)
    strange += [
        f"{name} is keras-team/kinetic's, and means nothing here" for name in sorted(UPSTREAM_VARIABLES & {*environ})
    ]
    if as_json:
        print_json({"settings": [_facts(row) for row in rows], "unknown": strange})
        return
    headers = ("setting", "value", "from", *(("goes before",) if explain else ()))
    print_table(headers, [_cells(row, explain=explain) for row in rows], color=settings.color())
    for line in strange:
        note(line)


def _found(name: str, flag: str | None, active: Profile | None, environ: Mapping[str, str]) -> Found:
    """As a call finds it; which profile counts is no matter of a profile but of its file."""
    if name != "profile":
        return settings.find_setting(name, None, active, environ)
    file = settings.profiles(environ)
    there = [("--profile", flag), ("KINETIC_PROFILE", environ.get("KINETIC_PROFILE")), (str(file.path), file.current)]
    named = [(source, value) for source, value in there if value]
    return Found(named[0][1], named[0][0], tuple(named[1:])) if named else Found(None, "default")


def _facts(row: Row) -> dict[str, Any]:
    value = None if row.found.value is None else shown_url(row.found.value)
    beaten = [{"source": source, "value": shown_url(value)} for source, value in row.found.beaten]
    return {"name": row.name, "variable": row.variable, "value": value, "source": row.found.source, "beaten": beaten}


def _cells(row: Row, *, explain: bool) -> tuple[str, ...]:
    value = f"({row.default})" if row.found.value is None else shown_url(row.found.value)
    cells = (row.name, value, row.found.source)
    if not explain:
        return cells
    return (*cells, "; ".join(f"{source}: {shown_url(value)}" for source, value in row.found.beaten))

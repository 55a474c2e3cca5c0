"""`kinetic ship`: what a call would send of a project, and what it would not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kinetic_ray import config
from kinetic_ray.cli.exits import ExitCode
from kinetic_ray.cli.output import json_option, note, print_json, print_table, say
from kinetic_ray.cli.shipped import Since, since_last_call
from kinetic_ray.errors import UsageError
from kinetic_ray.ui.text import counted, format_size

if TYPE_CHECKING:
    from kinetic_ray.bundle.survey import Item, Survey

_SHOWN = 30


@click.command()
@click.argument("script", metavar="[SCRIPT]", required=False, type=click.Path())
@click.option("--list", "is_list", is_flag=True, help="List what is sent and what isn't; also without this word.")
@click.option(
    "--all", "is_all", is_flag=True, help=f"List everything: not only the largest {_SHOWN} of each, caches as well."
)
@json_option
def ship(script: str | None, is_list: bool, is_all: bool, as_json: bool) -> int:  # noqa: ARG001  it does nothing else
    """List what a call sends of your project, how big it is, and why.

    SCRIPT, or a folder, says which project; the current folder by default. Nothing is sent and nothing is run. What
    is new or changed since the last call that sent the project is marked: without any, a call sends nothing. The
    exit code is 1 where a call would be refused because there is too much.
    """
    from kinetic_ray.bundle.survey import project_at, survey
    from kinetic_ray.calls.asking import places_of

    place = Path(script or ".")
    if not place.exists():
        raise UsageError(f"{script}: no such script or folder")
    target = config.resolve()
    found = survey(project_at(place, avoid=places_of(target)))
    since = since_last_call(target.store_url, found)
    if as_json:
        print_json(_facts(found, since))
    else:
        _print(found, since, is_all=is_all)
    if found.problem:
        note(found.problem)
    return ExitCode.NO if found.problem else ExitCode.OK


def _facts(found: Survey, since: Since | None) -> dict[str, Any]:
    news = None if since is None else {"job_id": since.job_id, **asdict(since.news)}
    return {
        "root": None if found.root is None else str(found.root),
        "why_root": found.why_root,
        "cwd": found.cwd,
        "files": len(found.sent),
        "bytes": found.size,
        "sent": [{"name": item.name, "size": item.size, "why": item.why} for item in found.sent],
        "left_out": [asdict(item) for item in found.left_out],
        "problem": found.problem,
        "since": news,
    }


def _print(found: Survey, since: Since | None, *, is_all: bool) -> None:
    where = "only what is listed" if found.root is None else str(found.root)
    say(f"project: {where} ({found.why_root})")
    say(f"working folder on the hosts: {found.cwd}")
    say(f"\nsent: {counted(len(found.sent), 'file')}, {format_size(found.size)}")
    if since is not None:
        say(_told(found, since))
    _print_items(_marked(found.sent, since), is_all=is_all)
    if found.left_out:
        say("\nleft out:")
        _print_items(found.left_out, is_all=is_all)


def _told(found: Survey, since: Since) -> str:
    """What has happened to the files since the last call, in a line."""
    news = since.news
    if news.is_empty:
        return f"as at the last call ({since.job_id}): nothing would be sent again"
    fresh = {*news.new, *news.changed}
    size = format_size(sum(item.size or 0 for item in found.sent if item.name in fresh))
    counts = [(len(news.new), "new"), (len(news.changed), "changed"), (len(news.gone), "gone")]
    told = ", ".join(f"{count} {what}" for count, what in counts if count)
    return f"since the last call ({since.job_id}): {told}; {size} of new and changed files"


def _marked(items: Sequence[Item], since: Since | None) -> list[Item]:
    """With what is new or changed first, and marked."""
    if since is None:
        return [*items]
    marks = dict.fromkeys(since.news.new, "new") | dict.fromkeys(since.news.changed, "changed")
    marked = [replace(item, why=f"{marks[item.name]}; {item.why}") for item in items if item.name in marks]
    return [*marked, *(item for item in items if item.name not in marks)]


def _print_items(items: Sequence[Item], *, is_all: bool) -> None:
    notable = [item for item in items if item.kind != "cache"]
    shown = [item for place, item in enumerate(notable) if place < _SHOWN or item.kind == "secret"]
    shown = [*items] if is_all else shown
    if shown:
        rows = [("?" if item.size is None else format_size(item.size), item.name, item.why) for item in shown]
        print_table(("size", "what", "why"), rows, color=config.color())
    if len(shown) < len(items):
        size = sum(item.size or 0 for item in items) - sum(item.size or 0 for item in shown)
        say(f"and {len(items) - len(shown)} more of {format_size(size)} in all: --all shows them")

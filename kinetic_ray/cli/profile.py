"""`kinetic profile`: named targets."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from kinetic_ray import config
from kinetic_ray.cli.completing import complete_profile
from kinetic_ray.cli.output import json_option, note, print_json, print_table, say
from kinetic_ray.core.option_values import check_text
from kinetic_ray.core.urls import has_password, shown_url
from kinetic_ray.errors import UsageError
from kinetic_ray.profiles import FIELDS, Profile, Profiles, edit_profiles, with_current, with_profile, without_profile

F = TypeVar("F", bound=Callable[..., Any])

#: keras-team/kinetic's names of commands.
_ALIASES = {"ls": "list", "rm": "remove"}
_GKE = ("project", "zone", "cluster", "namespace")


class _Commands(click.Group):
    """Knows upstream's short names as well."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return super().get_command(ctx, _ALIASES.get(cmd_name, cmd_name))


@click.group(cls=_Commands)
def profile() -> None:
    """Name targets, and choose which one is used.

    A profile says where jobs go: backend, store, and a cluster's project, zone, name and namespace. What it leaves
    open is the default. Flags and KINETIC_* variables go before it: `kinetic config --explain` shows who wins.
    """


def _name_argument(command: F) -> F:
    return click.argument("name", metavar="NAME", shell_complete=complete_profile)(command)


@profile.command()
@click.argument("name", metavar="NAME")
@click.option("--backend", help='Where jobs run: "local", or "module:Class" of your own.')
@click.option("--store", metavar="URL", help="Folder or URL that holds the jobs' records.")
@click.option("--project", help="A cluster's project.")
@click.option("--zone", help="A cluster's zone.")
@click.option("--cluster", help="A cluster's name.")
@click.option("--namespace", help="A namespace of a cluster.")
@click.option("--local-slices", metavar="JSON", help='The pool that this machine pretends to have: {"tpu-v6e-16": 2}.')
@click.option("--force", is_flag=True, help="Replace a profile of that name.")
@json_option
def create(name: str, force: bool, as_json: bool, **given: str | None) -> None:
    """Make a profile. The first one is used from then on."""
    fields = {key: given[key] for key in FIELDS if given[key]}
    if not fields:
        raise UsageError(f"a profile says something: give at least one of {', '.join(map(_flag, FIELDS))}")
    for key, value in fields.items():
        check_text(_flag(key), value)
    if backend := fields.get("backend"):
        config.check_backend(backend, "--backend=")
    if slices := fields.get("local_slices"):
        from kinetic_ray.backends.local.pool import parse_pool

        parse_pool(slices)
    store = fields.get("store")
    if store and has_password(store):
        raise UsageError(
            f"--store={shown_url(store)!r}: a URL with a password in it is refused, for records would tell it"
        )
    if store and "://" not in store:
        fields["store"] = str(Path(store).expanduser().absolute())  # the same place from any working folder
    clean = {key: value for key, value in fields.items() if value is not None}
    there = edit_profiles(config.profiles_file(), with_profile(name, clean, replace=force))
    _tell(there, there.find(name, ""), as_json=as_json)


def _flag(key: str) -> str:
    return f"--{key.replace('_', '-')}"


@profile.command("list")
@json_option
def list_command(as_json: bool) -> None:
    """List the profiles."""
    there = config.profiles()
    found = [there.find(name, "") for name in there.names]
    if as_json:
        rows = [_facts(there, each) for each in found]
        print_json({"file": str(there.path), "current": there.current, "profiles": rows})
    elif not found:
        note(f"no profiles in {there.path}; kinetic profile create makes one")
    else:
        cells = [
            ("*" if each.name == there.current else "", each.name, *(_shown(each).get(key, "-") for key in FIELDS))
            for each in found
        ]
        print_table(("", "name", *FIELDS), cells, color=config.color())


@profile.command()
@click.argument("name", metavar="[NAME]", required=False, shell_complete=complete_profile)
@json_option
def show(name: str | None, as_json: bool) -> None:
    """Say what a profile says; without a name the one that counts."""
    there = config.profiles()
    found = there.find(name, "") if name else config.active_profile()
    if found is None:
        raise UsageError("no profile is in use: kinetic profile use NAME, or name one here")
    _tell(there, found, as_json=as_json)


@profile.command()
@_name_argument
@json_option
def use(name: str, as_json: bool) -> None:
    """Use a profile from now on."""
    path = config.profiles_file()
    config.profiles().find(name, "")
    there = edit_profiles(path, with_current(name))
    _tell(there, there.find(name, ""), as_json=as_json)


@profile.command()
@json_option
def unset(as_json: bool) -> None:
    """Use no profile any more."""
    there = edit_profiles(config.profiles_file(), with_current(None))
    if as_json:
        print_json({"current": there.current})
    else:
        say("no profile is in use")


@profile.command()
@_name_argument
@click.option("-y", "--yes", is_flag=True, help="Don't ask.")
@json_option
def remove(name: str, yes: bool, as_json: bool) -> None:
    """Remove a profile. Jobs and stores stay."""
    path = config.profiles_file()
    config.profiles().find(name, "")
    if not yes and not as_json and sys.stdin.isatty():
        click.confirm(f"Remove the profile {name}?", abort=True, err=True)
    there = edit_profiles(path, without_profile(name))
    if as_json:
        print_json({"removed": name, "current": there.current})
    else:
        say(f"{name} is removed" + ("" if there.current else "; no profile is in use"))


def _shown(found: Profile) -> dict[str, str]:
    """What it says, without a password that somebody has written into the file."""
    return {key: shown_url(value) for key, value in found.fields.items()}


def _tell(there: Profiles, found: Profile, *, as_json: bool) -> None:
    """Prints one profile, and what is odd about it."""
    if as_json:
        print_json(_facts(there, found))
    else:
        say(f"{found.name}{' (in use)' if found.name == there.current else ''}  {there.path}")
        width = max(map(len, FIELDS))
        for key, value in _shown(found).items():
            say(f"  {key:>{width}}  {value}")
    for line in found.describe_unknown():
        note(line)
    if found.fields.get("backend", "local") == "local" and any(key in found.fields for key in _GKE):
        note("clusters come with a later version: with this profile jobs run on this machine")


def _facts(there: Profiles, found: Profile) -> dict[str, Any]:
    fields = {key: _shown(found).get(key) for key in FIELDS}
    return {"name": found.name, "current": found.name == there.current, **fields, "unknown": [*found.unknown]}

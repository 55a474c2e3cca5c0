"""`kinetic secret`: what jobs may name in `secrets=`, kept on this machine for its owner alone."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any, TypeVar

import click

from kinetic_ray import config
from kinetic_ray.cli.completing import complete_secret
from kinetic_ray.cli.output import json_option, note, print_json, print_table, say
from kinetic_ray.core.secrets import USUAL_KEYS, check_key, check_name
from kinetic_ray.errors import UsageError
from kinetic_ray.vault import Entry, Vault

F = TypeVar("F", bound=Callable[..., Any])

_UNITS = ((86400, "d"), (3600, "h"), (60, "min"))


def _name_argument(command: F) -> F:
    return click.argument("name", metavar="NAME", shell_complete=complete_secret)(command)


@click.group()
def secret() -> None:
    """Keep secrets for jobs: tokens and passwords that hosts set as variables.

    A job names them, as in @kinetic.remote(secrets=["hf"]); values never leave this machine's owner-only files but
    for the processes that run the job.
    """


@secret.command("set")
@_name_argument
@click.argument("variables", nargs=-1, metavar="[VARIABLE]...")
def set_secret(name: str, variables: tuple[str, ...]) -> None:
    """Store a secret; what it holds of other variables stays.

    Secrets that are called after a service need no VARIABLE: "kinetic secret set hf" asks for HF_TOKEN, and so for
    aws, github, kaggle, openai, wandb and others. For others: kinetic secret set database DB_PASSWORD.

    Values are asked for without being shown, or read from standard input; as arguments others could see them.
    """
    keys = [check_key(key) for key in variables] or USUAL_KEYS.get(check_name(name), ())
    if not keys:
        raise UsageError(f"which variable does {name} set? kinetic secret set {name} VARIABLE")
    Vault.of(config.home()).put(name, {key: _value_of(key, len(keys)) for key in keys})
    say(f"stored: {name} sets {', '.join(keys)}")


@secret.command("list")
@json_option
def list_secrets(as_json: bool) -> None:
    """List secrets and the variables that they set; values are never shown."""
    entries = Vault.of(config.home()).entries()
    if as_json:
        print_json({"secrets": [_facts(entry) for entry in entries]})
    elif entries:
        rows = [(entry.name, ", ".join(entry.keys), _age(entry)) for entry in entries]
        print_table(("name", "variables", "age"), rows, color=config.color())
    else:
        note("no secrets here. Store one: kinetic secret set NAME")


@secret.command("remove")
@_name_argument
@click.argument("variables", nargs=-1, metavar="[VARIABLE]...")
def remove_secret(name: str, variables: tuple[str, ...]) -> None:
    """Remove a secret, or some of its variables. Jobs that run keep what they have."""
    if not Vault.of(config.home()).remove(name, variables):
        what = f"secret {name!r} with {', '.join(variables)}" if variables else f"secret {name!r}"
        raise UsageError(f"no {what} here; kinetic secret list shows what there is")
    say(f"removed: {name}" + (f" {', '.join(variables)}" if variables else ""))


def _value_of(key: str, count: int) -> str:
    if sys.stdin.isatty():
        return str(click.prompt(key, hide_input=True, err=True))
    if count > 1:
        raise UsageError(f"standard input holds one value, and {count} variables are asked for: set one at a time")
    try:
        value = sys.stdin.buffer.read().decode()
    except UnicodeDecodeError:
        raise UsageError(f"{key}: standard input is not UTF-8; encode the value, e.g. as base64") from None
    value = value.removesuffix("\n").removesuffix("\r")
    if not value:
        raise UsageError(f"{key}: standard input is empty")
    return value


def _facts(entry: Entry) -> dict[str, object]:
    return {"name": entry.name, "variables": list(entry.keys), "stored_at": entry.stored_at}


def _age(entry: Entry) -> str:
    seconds = max(0.0, time.time() - entry.stored_at)
    for size, unit in _UNITS:
        if seconds >= size:
            return f"{int(seconds // size)} {unit}"
    return "< 1 min"

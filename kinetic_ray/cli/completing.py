"""What a shell offers for values: accelerators, statuses, profiles, slices. Silent where something can't be read."""

from __future__ import annotations

import click
from click.shell_completion import CompletionItem

from kinetic_ray import config
from kinetic_ray.core.urls import shown_url
from kinetic_ray.errors import KineticError

_ANSWER_SECONDS = 1.0


def complete_accelerator(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG001
    """Accelerators, each with its hosts and chips; the prefix "tpu-" may be left out."""
    from kinetic_ray.core.accelerators import all_accelerators

    begun = incomplete.lower()
    rows = all_accelerators()
    return [
        CompletionItem(row.name, help=row.describe().partition(": ")[2])
        for row in rows
        if row.name.startswith(begun) or row.name.removeprefix(f"{row.kind}-").startswith(begun)
    ]


def complete_status(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG001
    """The statuses that a listed job can have."""
    from kinetic_ray.core.state import JobStatus

    found = [str(status) for status in JobStatus if status is not JobStatus.NOT_FOUND]
    return [CompletionItem(status) for status in found if status.startswith(incomplete.upper())]


def complete_profile(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG001
    """Profiles, each with what it says."""
    try:
        there = config.profiles()
        named = [there.find(name, "") for name in there.names if name.startswith(incomplete)]
    except KineticError:
        return []
    return [
        CompletionItem(each.name, help=" ".join(f"{k}={shown_url(v)}" for k, v in each.fields.items()))
        for each in named
    ]


def complete_secret(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Secrets that are stored, and names that need no variable."""
    from kinetic_ray.core.secrets import USUAL_KEYS
    from kinetic_ray.vault import Vault

    try:
        there = Vault.of(config.home()).names()
    except KineticError:
        there = []
    usual = {
        name: ", ".join(keys) for name, keys in USUAL_KEYS.items() if param.name == "name" and ctx.info_name == "set"
    }
    items = {**usual, **dict.fromkeys(there, "stored")}
    return [CompletionItem(name, help=told) for name, told in sorted(items.items()) if name.startswith(incomplete)]


def complete_slice(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG001
    """The slices of the embedded cluster, and the hosts of each; starts nothing."""
    from kinetic_ray.backends.local import client

    try:
        answer = client.ask(config.home(), {"op": "status"}, _ANSWER_SECONDS) or {}
    except (KineticError, OSError):
        return []
    items = [
        CompletionItem(name, help=told)
        for each in answer.get("slices", ())
        for name, told in (
            (each["name"], f"{each['accelerator']}, {each['state']}"),
            *((f"{each['name']}.{number}", "one host of it") for number in range(len(each["hosts"]))),
        )
    ]
    return [item for item in items if item.value.startswith(incomplete)]

"""Which job a command means: an id, the beginning or end of one, or "latest"."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from kinetic_ray import config
from kinetic_ray.cli.exits import ExitCode, Refusal
from kinetic_ray.errors import KineticError, UsageError
from kinetic_ray.ui.text import counted

if TYPE_CHECKING:
    from kinetic_ray.backends.base import Backend
    from kinetic_ray.core.names import IndexEntry
    from kinetic_ray.jobs import JobHandle
    from kinetic_ray.journal import JobJournal
    from kinetic_ray.store import Store

LATEST = "latest"
_SHORTEST = 4  # characters that may stand for an id
_COMPLETIONS = 200


@dataclass(frozen=True, slots=True)
class Held:
    """A job that a command works on."""

    handle: JobHandle[Any]
    journal: JobJournal
    backend: Backend

    @property
    def job_id(self) -> str:
        return self.journal.job_id

    @property
    def store(self) -> Store:
        return self.journal.store


def hold_job(text: str, store: str | None) -> Held:
    """The one job that `text` stands for.

    Args:
        text: As for :func:`find_job`.
        store: The flag `--store`.
    """
    from kinetic_ray.backends.base import load_backend
    from kinetic_ray.jobs import JobHandle
    from kinetic_ray.journal import JobJournal
    from kinetic_ray.store import open_store

    target = config.resolve(store=store)
    opened = open_store(target.store_url, create=False)
    job_id, backend = find_job(opened, text), load_backend(target)
    return Held(JobHandle(job_id, target, store=opened, backend=backend), JobJournal(opened, job_id), backend)


def find_job(store: Store, text: str) -> str:
    """The id of the one job that `text` stands for.

    The beginning of an id tells when it was made, so jobs of one minute share it: the end does as well.

    Raises:
        Refusal: NOT_FOUND.
        UsageError: Several jobs fit, or `text` is too short to say.
    """
    from kinetic_ray.journal import list_entries

    entries = list_entries(store)
    ids = [entry.job_id for entry in entries]
    if text == LATEST and ids:
        return ids[0]
    if text in ids or _exists(store, text):
        return text
    fitting = [job_id for job_id in ids if job_id.startswith(text) or job_id.endswith(text)]
    if text == LATEST or not fitting:
        raise Refusal(
            f"no job {text!r} in the store {store.url}: it has {len(ids)} (kinetic jobs list)", ExitCode.NOT_FOUND
        )
    if len(text) < _SHORTEST or len(fitting) > 1:
        shown = ", ".join(fitting[:3]) + (", ..." if len(fitting) > 3 else "")
        raise UsageError(
            f"{text!r} stands for {counted(len(fitting), 'job')}: {shown}. Give more of the id, or its end"
        )
    return fitting[0]


def _exists(store: Store, text: str) -> bool:
    """Whether a whole id is known: the index is only a hint."""
    from kinetic_ray.core.names import check_id
    from kinetic_ray.journal import JobJournal

    try:
        check_id(text, "job")
    except UsageError:
        return False
    return JobJournal(store, text).exists()


def complete_job(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG001
    """What a shell offers for a job: ids, with status and function beside them; nothing when the store is away."""
    from kinetic_ray.journal import list_entries
    from kinetic_ray.store import open_store

    try:
        profile = ctx.find_root().params.get("profile")  # the root's own callback doesn't run for completion
        target = config.resolve(store=ctx.params.get("store"), profile=profile)
        store = open_store(target.store_url, create=False)
        entries: list[IndexEntry] = list_entries(store)[:_COMPLETIONS]
    except KineticError:
        return []
    found = [CompletionItem(e.job_id, help=f"{e.state} {e.func_name}") for e in entries]
    return [item for item in (*found, CompletionItem(LATEST)) if item.value.startswith(incomplete)]

"""What `kinetic doctor` says of users' values that are kept here: secrets, and variables of jobs that nobody runs."""

from __future__ import annotations

from collections.abc import Callable

from kinetic_ray import config
from kinetic_ray.backends.base import load_backend
from kinetic_ray.cli.findings import Finding
from kinetic_ray.errors import ConfigError, KineticError
from kinetic_ray.journal import JobJournal, pending_jobs
from kinetic_ray.store import Store, open_store
from kinetic_ray.vault import Vault

_SHOWN = 3


def check_secrets() -> Finding:
    """Secrets can be read, and by their owner only."""
    return judge_vault(Vault.of(config.home()))


def judge_vault(vault: Vault) -> Finding:
    """Grades the secrets of a folder."""
    try:
        entries = vault.entries()
    except KineticError as error:
        return Finding("secrets", "warn", str(error), "jobs that name it are refused until then")
    return Finding("secrets", "ok", f"{len(entries)} in {vault.folder}" if entries else "none stored")


def check_values() -> Finding:
    """No job that nobody runs keeps the values of its variables."""
    try:
        target = config.resolve()
        store = open_store(target.store_url, create=False)
        backend = load_backend(target)
        return judge_values(store, lambda job_id: backend.observe(store.url, job_id).state.is_driven)
    except ConfigError as error:  # there is no store yet, or another check tells of it
        return Finding("values of jobs", "ok", f"not looked for: {error}")
    except KineticError as error:
        return Finding("values of jobs", "warn", f"could not be looked for: {error}", "try again")


def judge_values(store: Store, is_driven: Callable[[str], bool]) -> Finding:
    """Grades a store: the `env` object of a job goes when the job has ended, which a lost one never does by itself.

    Args:
        store: The store.
        is_driven: Whether somebody works on a job or will.
    """
    kept = [
        journal.job_id for journal in pending_jobs(store) if _holds_values(journal) and not is_driven(journal.job_id)
    ]
    if not kept:
        return Finding("values of jobs", "ok", "no job that nobody runs keeps values of variables")
    more = f" and {len(kept) - _SHOWN} more" if len(kept) > _SHOWN else ""
    told = f"nobody runs {', '.join(kept[:_SHOWN])}{more}, and values of variables are kept for them"
    return Finding(
        "values of jobs", "warn", told, "kinetic jobs cancel JOB ends it, and they go; kinetic jobs result JOB runs it"
    )


def _holds_values(journal: JobJournal) -> bool:
    return bool(journal.store.list(journal.keys.env_folder))

"""What a call is refused for before anything of it is made: options and places that can't work where it goes."""

from __future__ import annotations

from pathlib import Path

from kinetic_ray import config
from kinetic_ray.calls.asking import refuse_image, refuse_missing_runtime
from kinetic_ray.calls.overlooked import tell_overlooked
from kinetic_ray.config import Target
from kinetic_ray.core.urls import has_password, shown_url
from kinetic_ray.errors import ConfigError, UsageError
from kinetic_ray.options import Options
from kinetic_ray.store.folder import path_of


def refuse_what_cannot_work(options: Options, target: Target) -> None:
    """Refuses what this target can never do.

    Raises:
        UsageError: An option; the message names it and the way out.
        ConfigError: A setting, or a package that is missing.
    """
    tell_overlooked(target, options)
    if target.backend != "local":
        return
    refuse_image(options)
    _refuse_memory(target)
    refuse_missing_runtime(options)


def output_dir_of(options: Options, target: Target) -> str | None:
    """Where outputs go: the argument, then the environment; None = the job's own place in the store.

    A relative folder is the client's, and a file URL is a path. Other URLs are left to backends of one's own.

    Raises:
        UsageError: A URL that jobs of this version can't write to: the files would be lost.
    """
    given, source = options.output_dir, "output_dir="
    if given is None:
        given, source = config.output_dir(), "KINETIC_OUTPUT_DIR="
    if given is None:
        return None
    if has_password(given):
        raise UsageError(
            f"{source}{shown_url(given)!r}: a URL with a password in it is refused, for the job's records would tell it"
        )
    scheme, separator, _ = given.partition("://")
    if not separator:
        return str(Path(given).expanduser().absolute())
    if scheme == "file":
        return str(path_of(given, f"{source}{shown_url(given)!r}"))
    if target.backend == "local":
        raise UsageError(
            f"{source}{shown_url(given)!r}: jobs can't write to {scheme}:// in this version of kinetic_ray, their "
            "files would be lost. Name a local path, or leave it out: then outputs are kept in the store"
        )
    return given


def _refuse_memory(target: Target) -> None:
    if target.store_url.startswith("memory:"):
        raise ConfigError(
            f"store {target.store_url!r}: such a store lives in this process only, the {target.backend} backend runs "
            "jobs in others. Name a folder; tests may use kinetic_ray.testing.thread_backend:ThreadBackend"
        )

"""What a function's options ask of a cluster: checks, and the gang that its calls need."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from kinetic_ray.backends.base import Need
from kinetic_ray.calls.overlooked import tell_overlooked
from kinetic_ray.config import Target, resolve
from kinetic_ray.core.env_vars import check_env_size
from kinetic_ray.core.extras import install_hint
from kinetic_ray.core.secrets import parse_ref
from kinetic_ray.errors import ConfigError, UsageError
from kinetic_ray.options import Options, can_import
from kinetic_ray.payload.versions import packages_stamp
from kinetic_ray.runner.calls.wish import Wish
from kinetic_ray.vault import Vault

if TYPE_CHECKING:
    from kinetic_ray.calls.code import Code


def need_of(options: Options) -> Need:
    """What a backend is asked for, to refuse at once what can never fit."""
    return Need(
        accelerator=options.accelerator.name,
        num_slices=options.num_slices,
        hosts=options.accelerator.hosts,
        chips_per_host=options.chips_per_host,
        cpus=options.cpus_per_host,
        memory=options.memory,
        secrets=options.secrets,
    )


def secrets_of(options: Options, target: Target) -> dict[str, str]:
    """The secrets that a call names, each with its version: a changed one is set in fresh processes only."""
    if not options.secrets:
        return {}
    vault = Vault.of(target.home)
    return {text: vault.version(parse_ref(text).name) for text in options.secrets}


def wish_of(
    options: Options, code: Code, variables: Mapping[str, str], secrets: Mapping[str, str] = MappingProxyType({})
) -> Wish:
    """The gang that a call needs.

    Args:
        options: The function's.
        code: As it is now; its digests decide which warm gangs will do.
        variables: The call's, captured ones among them.
        secrets: See :func:`secrets_of`.
    """
    accelerator = options.accelerator
    is_cpu = accelerator.kind == "cpu"
    return Wish(
        accelerator="cpu" if is_cpu else accelerator.name,
        chips_per_host=accelerator.chips_per_host,
        num_slices=0 if is_cpu else options.num_slices,
        hosts=accelerator.hosts,
        cpus=options.cpus_per_host,
        memory=options.memory or 0,
        runtime=options.chosen_runtime(),
        env_vars=dict(variables),
        secrets=dict(secrets),
        bundle=code.bundle_digest,
        sys_path=code.sys_path,
        cwd=code.cwd,
        main=code.main,
        python=platform.python_version(),
        packages=packages_stamp(),
    )


def refuse_for_calls(name: str, options: Options) -> None:
    """Refuses options that mean nothing to a call, which has no records and no files in a store.

    Raises:
        UsageError: An option; the message names it and the way out.
        ConfigError: A package that is missing.
    """
    if options.output_dir is not None:
        raise UsageError(
            f"{name}.remote(): output_dir= is for durable jobs, {name}.run(...) and {name}.run_async(...): a call "
            f"keeps no files. Return what you need, or take it back: {name}.options(output_dir=None).remote(...)"
        )
    target = resolve(**options.where())
    named = options.backend is not None or options.profile is not None
    if named and target.backend != "local":
        raise UsageError(
            f"{name}.remote(): backend={target.backend!r} has no Ray cluster that this process can join; "
            f"{name}.run_async(...) gives it a durable job"
        )
    tell_overlooked(target, options)
    refuse_image(options)
    refuse_missing_runtime(options)


def check_variables(variables: Mapping[str, str]) -> None:
    """Refuses variables that no process could start with.

    Raises:
        UsageError: One is too long, or all are together.
    """
    check_env_size(variables)


def refuse_image(options: Options) -> None:
    """Refuses an image where there are no containers, unless it may be passed over.

    Raises:
        UsageError: An image was given.
    """
    if options.image is not None and not options.local_ignore_image:
        raise UsageError(
            f"image={options.image!r}: the local backend runs jobs with this very Python, not in a container. "
            "Pass local_ignore_image=True to run without the image"
        )


def refuse_missing_runtime(options: Options) -> None:
    """Hosts of the local backend have this very environment; "auto" takes what there is.

    Raises:
        ConfigError: The runtime's package is not installed.
    """
    if options.runtime == "jax" and not can_import("jax"):
        raise ConfigError(f"runtime='jax' needs jax, which is not installed here: {install_hint('jax')}")


def places_of(target: Target) -> list[Path]:
    """What is never part of a project: the client's state, and a store that lies in the project's folder."""
    folder = target.store_url.removeprefix("file://")
    return [target.home] if "://" in folder else [target.home, Path(folder)]

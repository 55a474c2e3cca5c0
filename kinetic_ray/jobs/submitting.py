"""The path of a call on the client: everything that can be refused is, then records, then the backend."""

from __future__ import annotations

import contextlib
import os
import platform
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from kinetic_ray import config
from kinetic_ray.backends.base import Backend, Need, load_backend
from kinetic_ray.bundle import Bundle, find_project
from kinetic_ray.config import Target
from kinetic_ray.core.env_vars import capture, check_env_size
from kinetic_ray.core.names import make_id
from kinetic_ray.core.spec import BundleRef, Fingerprint, JobSpec
from kinetic_ray.errors import KineticError, SubmissionError
from kinetic_ray.jobs.handle import JobHandle
from kinetic_ray.jobs.refusals import can_import, output_dir_of, refuse_what_cannot_work
from kinetic_ray.jobs.watching import interruptible, not_created_on_interrupt
from kinetic_ray.journal import JobJournal, new_env_id
from kinetic_ray.options import Options
from kinetic_ray.payload import Payload, pack_call
from kinetic_ray.store import Store, open_store
from kinetic_ray.version import __version__


@dataclass(frozen=True, slots=True)
class Call:
    """One call, before anything is made of it.

    Attributes:
        function: What is called on every rank.
        args: Its arguments.
        kwargs: Its keyword arguments.
        name: The function's name, for people.
        script: A script that the function is to run, absolute; its path on the host becomes the first argument.
    """

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    name: str
    script: Path | None = None


def submit(call: Call, options: Options, target: Target | None = None) -> JobHandle[Any]:
    """Records a call as a job and has the backend run it.

    Args:
        call: What to run.
        options: How.
        target: Where; None = as the options and the environment say.

    Raises:
        UsageError, ConfigError, PayloadError: Refused; nothing was created.
        SubmissionError: The job is recorded, but the backend could not start it.
    """
    target = config.resolve(backend=options.backend) if target is None else target
    with not_created_on_interrupt(call.name):
        backend, store, spec = _recorded(call, options, target)
    with interruptible(spec.job_id):
        _hand_over(backend, store, spec)
    return JobHandle(spec.job_id, target, store=store, backend=backend)


def _recorded(call: Call, options: Options, target: Target) -> tuple[Backend, Store, JobSpec]:
    refuse_what_cannot_work(options, target)
    check_env_size(_environment_of(options))
    options = replace(options, output_dir=output_dir_of(options, target))
    project = find_project(call.function, call.script, avoid=_places_of(target))
    args = call.args if call.script is None else (project.script_path(), *call.args)
    payload = pack_call(call.function, args, call.kwargs, by_value=project.goes_by_value, main_file=project.main_name)
    bundle = project.build(payload.modules)
    backend = load_backend(target)
    backend.check(_need_of(options))
    store = open_store(target.store_url)
    return backend, store, record(store, call, options, payload, bundle)


def record(store: Store, call: Call, options: Options, payload: Payload, bundle: Bundle | None) -> JobSpec:
    """Stores payload and bundle, then the spec: from there on the job exists."""
    environment = _environment_of(options)
    accelerator = options.accelerator
    now = time.time()
    spec = JobSpec(
        job_id=make_id("job", int(now * 1000), os.urandom(10)),
        func_name=call.name,
        created_at=now,
        accelerator=accelerator.name,
        payload=store.put_blob(payload.data),
        client=_fingerprint(),
        bundle=None if bundle is None else BundleRef(store.put_blob(bundle.data), bundle.sys_path, bundle.cwd),
        chips_per_host=options.chips_per_host,
        num_slices=options.num_slices,
        hosts=1 if accelerator.kind == "tpu" else accelerator.hosts,
        gather=options.gather,
        runtime=_runtime_of(options),
        timeout=options.timeout,
        capacity_timeout=options.capacity_timeout,
        cpus=_cpus_of(options),
        memory=options.memory,
        env_names=tuple(sorted(environment)),
        env_id=new_env_id() if environment else None,
        output_dir=options.output_dir,
        name=options.name,
        tags=options.tags,
        priority=options.priority,
        owner=config.owner(),
    )
    journal = JobJournal(store, spec.job_id)
    try:
        journal.create(spec, environment)
    except BaseException:  # Ctrl-C as well
        with contextlib.suppress(KineticError):  # no values may lie about without a job that they belong to
            journal.erase()
        raise
    return spec


def _environment_of(options: Options) -> dict[str, str]:
    return {**capture(options.capture_env_vars, config.environment()), **options.env_vars}


def _hand_over(backend: Backend, store: Store, spec: JobSpec) -> None:
    try:
        backend.submit(store.url, spec.job_id)
    except (KineticError, OSError) as exc:
        raise SubmissionError(
            f"{spec.job_id} ({spec.func_name}) is recorded in {store.url}, but could not be started: {exc}. "
            f"Mend that and run kinetic jobs result {spec.job_id}, which starts it; "
            f"or remove it: kinetic jobs cleanup {spec.job_id}"
        ) from exc


def _need_of(options: Options) -> Need:
    return Need(
        accelerator=options.accelerator.name,
        num_slices=options.num_slices,
        hosts=options.accelerator.hosts,
        chips_per_host=options.chips_per_host,
        cpus=_cpus_of(options),
        memory=options.memory,
    )


def _cpus_of(options: Options) -> float:
    return options.cpus or float(options.accelerator.cpus) or 1.0


def _runtime_of(options: Options) -> str:
    """The runtime, where "auto" is jax for a TPU where jax can be imported, else plain."""
    if options.runtime != "auto":
        return options.runtime
    return "jax" if options.accelerator.kind == "tpu" and can_import("jax") else "plain"


def _places_of(target: Target) -> list[Path]:
    """What is never part of a project: the client's state, and a store that lies in the project's folder."""
    folder = target.store_url.removeprefix("file://")
    return [target.home] if "://" in folder else [target.home, Path(folder)]


def _fingerprint() -> Fingerprint:
    return Fingerprint(platform.python_version(), version("ray"), version("cloudpickle"), __version__)

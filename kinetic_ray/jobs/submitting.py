"""The path of a call on the client: everything that can be refused is, then records, then the backend."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kinetic_ray import config
from kinetic_ray.backends.base import Backend, load_backend
from kinetic_ray.bundle import Bundle, find_project
from kinetic_ray.calls.asking import need_of, places_of
from kinetic_ray.calls.files import sent_now
from kinetic_ray.config import Target
from kinetic_ray.core.env_vars import check_env_size
from kinetic_ray.core.names import make_id
from kinetic_ray.core.spec import BundleRef, JobSpec
from kinetic_ray.errors import KineticError, SubmissionError
from kinetic_ray.interrupts import Begun, beginning, interrupts_held
from kinetic_ray.jobs.handle import JobHandle
from kinetic_ray.jobs.refusals import output_dir_of, refuse_what_cannot_work
from kinetic_ray.journal import JobJournal, new_env_id
from kinetic_ray.options import Options
from kinetic_ray.payload import Payload, pack_call
from kinetic_ray.payload.versions import fingerprint
from kinetic_ray.store import Store, open_store


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


def submit(call: Call, options: Options, target: Target | None = None, begun: Begun | None = None) -> JobHandle[Any]:
    """Records a call as a job and has the backend run it.

    Args:
        call: What to run.
        options: How.
        target: Where; None = as the options and the environment say.
        begun: Told how far it has come, where the caller tells what a Ctrl-C has ended.

    Raises:
        UsageError, ConfigError, PayloadError: Refused; nothing was created.
        SubmissionError: The job is recorded, but the backend could not start it.
    """
    target = config.resolve(**options.where()) if target is None else target
    with beginning(call.name, begun) as way:
        backend, store, spec, environment = _made(call, options, target)
        with interrupts_held():  # else it could be there with nobody to run it, while it is said that it goes on
            record(store, spec, environment)
            way.job_id = spec.job_id
            _hand_over(backend, store, spec)
            way.is_handed_over = True
    return JobHandle(spec.job_id, target, store=store, backend=backend)


def _made(call: Call, options: Options, target: Target) -> tuple[Backend, Store, JobSpec, Mapping[str, str]]:
    refuse_what_cannot_work(options, target)
    environment = options.variables(config.environment())
    check_env_size(environment)
    options = replace(options, output_dir=output_dir_of(options, target))
    project = find_project(call.function, call.script, avoid=places_of(target))
    args = call.args if call.script is None else (project.script_path(), *call.args)
    payload = pack_call(call.function, args, call.kwargs, by_value=project.goes_by_value, main_file=project.main_name)
    bundle = sent_now(project, payload.modules).bundle
    backend = load_backend(target)
    backend.check(need_of(options))
    store = open_store(target.store_url)
    return backend, store, stored(store, call, options, payload, bundle, environment), environment


def stored(
    store: Store, call: Call, options: Options, payload: Payload, bundle: Bundle | None, environment: Mapping[str, str]
) -> JobSpec:
    """Stores payload and bundle, and makes the spec that names them."""
    accelerator = options.accelerator
    now = time.time()
    return JobSpec(
        job_id=make_id("job", int(now * 1000), os.urandom(10)),
        func_name=call.name,
        created_at=now,
        accelerator=accelerator.name,
        payload=payload.store(store.put_blob),
        client=fingerprint(payload.modules),
        bundle=None if bundle is None else BundleRef(store.put_blob(bundle.data), bundle.sys_path, bundle.cwd),
        chips_per_host=options.chips_per_host,
        num_slices=options.num_slices,
        hosts=1 if accelerator.kind == "tpu" else accelerator.hosts,
        gather=options.gather,
        runtime=options.chosen_runtime(),
        timeout=options.timeout,
        capacity_timeout=options.capacity_timeout,
        cpus=options.cpus_per_host,
        memory=options.memory,
        env_names=tuple(sorted(environment)),
        env_id=new_env_id() if environment else None,
        secrets=options.secrets,
        output_dir=options.output_dir,
        name=options.name,
        tags=options.tags,
        priority=options.priority,
        owner=config.owner(),
    )


def record(store: Store, spec: JobSpec, environment: Mapping[str, str]) -> None:
    """Stores the spec, and the values of its variables: from there on the job exists."""
    journal = JobJournal(store, spec.job_id)
    try:
        journal.create(spec, environment)
    except BaseException:  # Ctrl-C as well
        with contextlib.suppress(KineticError):  # no values may lie about without a job that they belong to
            journal.erase()
        raise


def _hand_over(backend: Backend, store: Store, spec: JobSpec) -> None:
    try:
        backend.submit(store.url, spec.job_id)
    except (KineticError, OSError) as exc:
        raise SubmissionError(
            f"{spec.job_id} ({spec.func_name}) is recorded in {store.url}, but could not be started: {exc}. "
            f"Mend that and run kinetic jobs result {spec.job_id}, which starts it; "
            f"or remove it: kinetic jobs cleanup {spec.job_id}"
        ) from exc

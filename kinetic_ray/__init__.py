"""One decorator takes a Python function from a laptop to a slice of TPUs, on Ray.

Everything here is imported when it is first used: the import itself loads nothing that a script might not need.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from kinetic_ray.version import __version__

if TYPE_CHECKING:
    from kinetic_ray import collections as collections
    from kinetic_ray import credentials as credentials
    from kinetic_ray import debug as debug
    from kinetic_ray import job_status as job_status
    from kinetic_ray import jobs as jobs
    from kinetic_ray.api import RemoteClass, RemoteFunction, remote, run
    from kinetic_ray.api import RemoteFunction as RemoteCallable
    from kinetic_ray.batch import BatchError, BatchHandle, attach_batch
    from kinetic_ray.calls.actors import ActorHandle, kill
    from kinetic_ray.calls.refs import get, init, put, shutdown, wait
    from kinetic_ray.core.state import JobStatus
    from kinetic_ray.data import Data
    from kinetic_ray.errors import (
        ConfigError,
        DataError,
        JobCancelled,
        JobError,
        JobFailed,
        JobLost,
        JobTimeout,
        KineticError,
        PayloadError,
        StoreError,
        SubmissionError,
        UsageError,
    )
    from kinetic_ray.jobs import JobHandle, attach, list_jobs
    from kinetic_ray.runner.session import Context, context, report

__all__ = [
    "ActorHandle",
    "BatchError",
    "BatchHandle",
    "ConfigError",
    "Context",
    "Data",
    "DataError",
    "JobCancelled",
    "JobError",
    "JobFailed",
    "JobHandle",
    "JobLost",
    "JobStatus",
    "JobTimeout",
    "KineticError",
    "PayloadError",
    "RemoteCallable",
    "RemoteClass",
    "RemoteFunction",
    "StoreError",
    "SubmissionError",
    "UsageError",
    "__version__",
    "attach",
    "attach_batch",
    "context",
    "get",
    "init",
    "kill",
    "list_jobs",
    "put",
    "remote",
    "report",
    "run",
    "shutdown",
    "wait",
]

_HOMES = {
    "kinetic_ray.api": ("RemoteClass", "RemoteFunction", "remote", "run"),
    "kinetic_ray.batch": ("BatchError", "BatchHandle", "attach_batch"),
    "kinetic_ray.calls.actors": ("ActorHandle", "kill"),
    "kinetic_ray.calls.refs": ("get", "init", "put", "shutdown", "wait"),
    "kinetic_ray.core.state": ("JobStatus",),
    "kinetic_ray.data": ("Data",),
    "kinetic_ray.jobs": ("JobHandle", "attach", "list_jobs"),
    "kinetic_ray.runner.session": ("Context", "context", "report"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}
#: keras-team/kinetic's names for what is here already.
_OTHER_NAMES = {"RemoteCallable": "RemoteFunction"}
#: Modules that are reached as attributes, as `kinetic.collections.map` and the like are written.
_MODULES = ("collections", "credentials", "debug", "job_status", "jobs")


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    first = _OTHER_NAMES.get(name, name)
    found = getattr(importlib.import_module(_HOME_OF.get(first, "kinetic_ray.errors")), first)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return list(__all__)

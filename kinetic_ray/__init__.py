"""One decorator takes a Python function from a laptop to a slice of TPUs, on Ray.

Everything here is imported when it is first used: the import itself loads nothing that a script might not need.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from kinetic_ray.version import __version__

if TYPE_CHECKING:
    from kinetic_ray.api import RemoteClass, RemoteFunction, remote, run
    from kinetic_ray.calls.actors import ActorHandle, kill
    from kinetic_ray.calls.refs import get, init, put, shutdown, wait
    from kinetic_ray.core.state import JobStatus
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
    "ConfigError",
    "Context",
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
    "RemoteClass",
    "RemoteFunction",
    "StoreError",
    "SubmissionError",
    "UsageError",
    "__version__",
    "attach",
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
    "kinetic_ray.calls.actors": ("ActorHandle", "kill"),
    "kinetic_ray.calls.refs": ("get", "init", "put", "shutdown", "wait"),
    "kinetic_ray.core.state": ("JobStatus",),
    "kinetic_ray.jobs": ("JobHandle", "attach", "list_jobs"),
    "kinetic_ray.runner.session": ("Context", "context", "report"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(importlib.import_module(_HOME_OF.get(name, "kinetic_ray.errors")), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return list(__all__)

"""This process and Ray: attaching to a cluster, and leaving no trace of that outside of Ray.

Ray reads three things from the environment once and keeps them: whether it sends a token, the token, and whether it may
use other addresses than loopback. It has to read them for our cluster while it attaches, also where it was imported
long before, and again for whatever the user does with Ray afterwards.
"""

from __future__ import annotations

import logging
import signal
import sys
import threading
import warnings
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from kinetic_ray import config
from kinetic_ray.backends.base import Entrance
from kinetic_ray.errors import ConfigError

#: Set by Ray in a process that it connects: the first makes `breakpoint()` Ray's, in everything that is started.
_RAY_SETS = ("PYTHONBREAKPOINT", "RAY_CLIENT_MODE")
#: Of a cluster that doesn't understand this process.
OTHER_CODE = (
    "it most likely runs other code of kinetic_ray than this process does, from before an upgrade or an edit. "
    "kinetic local stop --force ends it, with all that it runs; the next call starts it anew"
)


@dataclass(frozen=True, slots=True)
class Attached:
    """Where this process's Ray is connected to.

    Attributes:
        address: host:port of the GCS; "ray://" for a connection of Ray Client, which is of no use to us.
        job: The process's Ray job, in hex.
    """

    address: str
    job: str


def attached() -> Attached | None:
    """Where Ray is connected to now; None where it isn't, or was never imported."""
    if "ray" not in sys.modules:
        return None
    import ray
    from ray.util.client import ray as client

    if client.is_connected():
        return Attached("ray://", "")
    if not ray.is_initialized():
        return None
    context = ray.get_runtime_context()
    return Attached(context.gcs_address, context.get_job_id())


def current_core() -> object | None:
    """What Ray keeps for this process's connection, another object after each; None where there is none.

    Comparing it costs a tenth of asking Ray which job this is, and is done at each call.
    """
    worker = sys.modules["ray._private.worker"].global_worker
    return getattr(worker, "core_worker", None) if worker.connected else None


def attach(entrance: Entrance) -> str:
    """Connects Ray, which isn't connected yet; gives the process's Ray job.

    The environment is changed only meanwhile. What Ray keeps of it is read again once it is shut down, by whomever.

    Raises:
        ConfigError: The cluster can't be reached.
    """
    import ray
    from ray._private import worker

    try:
        with config.changed_environment(entrance.environment, kept=_RAY_SETS), _undisturbed():
            _read_environment()
            ray.init(address=entrance.address, log_to_driver=False, logging_level=logging.ERROR)
    except Exception as exc:
        _read_environment()
        raise ConfigError(
            f"the cluster at {entrance.address} can't be joined: {type(exc).__name__}: {exc}. "
            "kinetic local status tells whether it is up; try again"
        ) from exc
    # Ray drops its node when it is shut down. That is the only moment which it lets us know of.
    weakref.finalize(worker._global_node, _read_environment).atexit = False  # noqa: SLF001
    return str(ray.get_runtime_context().get_job_id())


def check_desk(desk: Any) -> None:
    """Refuses a desk whose class Ray could not import here; it has put another one in its place, without a word.

    Raises:
        ConfigError: The cluster's code is not this process's.
    """
    takes = desk._ray_method_signatures["call"]  # noqa: SLF001 - the only trace of it
    if "order" not in [parameter.name for parameter in takes]:
        raise ConfigError(f"the cluster can't be called from here: {OTHER_CODE}")


def detach() -> None:
    """Disconnects Ray."""
    import ray

    ray.shutdown()


def _read_environment() -> None:
    """Has Ray read again what it reads once."""
    from ray._private import ray_constants as constants
    from ray._raylet import AuthenticationTokenLoader, Config  # type: ignore[attr-defined]

    AuthenticationTokenLoader.instance().reset_cache()
    Config.initialize("")
    usual = not constants.IS_WINDOWS_OR_OSX
    constants.ENABLE_RAY_CLUSTER = constants.env_bool(constants.ENABLE_RAY_CLUSTERS_ENV_VAR, usual)


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Keeps what Ray would change in a process that it starts in: its handler of SIGTERM, how much it logs."""
    logger = logging.getLogger("ray")
    level = logger.level or logging.WARNING
    main = threading.current_thread() is threading.main_thread()
    handler = signal.getsignal(signal.SIGTERM)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
        if main and handler is not None:
            signal.signal(signal.SIGTERM, handler)

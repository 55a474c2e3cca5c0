"""What Ray says of the cluster's own actors, in words about the call: a user has never heard of them."""

from __future__ import annotations

from typing import Any

from kinetic_ray.calls.attaching import OTHER_CODE
from kinetic_ray.calls.connect import Connection
from kinetic_ray.core.state import Reason
from kinetic_ray.errors import ConfigError
from kinetic_ray.runner.calls.failures import CallFailure

#: Seconds that the desk may take: it waits for word of a lost host itself.
_PATIENCE = 10.0
_DESK_LOST = (
    "the process of the cluster that had the call in its hands has died, and it isn't known whether the call has run. "
    "The next one works: call again if running it twice does no harm"
)


def explained(error: Any, connection: Connection | None) -> BaseException:
    """An actor's error as what it means for the call; the error itself where the actor is the user's own.

    Args:
        error: Ray's RayActorError.
        connection: This process's place in the cluster; None where it has none.
    """
    import ray

    if connection is None or error.actor_id is None:
        return error  # type: ignore[no-any-return]
    if error.actor_id == connection.desk._actor_id.hex():  # noqa: SLF001 - a handle says it nowhere else
        return _caused(CallFailure(str(Reason.DRIVER_LOST), _DESK_LOST).for_user(), error)
    try:
        ray.get(connection.desk.explain.remote(error.actor_id), timeout=_PATIENCE)
    except ray.exceptions.RayTaskError as told:
        cause = getattr(told, "cause", None)
        return _caused(cause, error) if isinstance(cause, BaseException) else error
    except (ray.exceptions.RayError, TimeoutError):
        pass  # the desk has gone as well: then Ray's own words are all there is
    return error  # type: ignore[no-any-return]


def misunderstood(error: Any, connection: Connection | None) -> BaseException | None:
    """What it means if the desk itself has broken off over a call; None where the call has failed by itself.

    Args:
        error: Ray's RayTaskError.
        connection: This process's place in the cluster; None where it has none.
    """
    if connection is None:
        return None
    text = str(error)
    is_desks = f"actor_id={connection.desk._actor_id.hex()}" in text.partition("\n")[0]  # noqa: SLF001 - as above
    if not is_desks or f"{CallFailure.__module__}.{CallFailure.__name__}" in text:
        return None
    last = text.rstrip().rpartition("\n")[2]
    return _caused(ConfigError(f"the cluster can't make anything of the call ({last}): {OTHER_CODE}"), error)


def _caused(told: BaseException, error: BaseException) -> BaseException:
    told.__cause__ = error
    return told

"""Ray's `get`, `put` and `wait` for calls, with their errors as themselves, and the end of calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar, overload

from kinetic_ray import config
from kinetic_ray.errors import PayloadError, UsageError, notes_of
from kinetic_ray.frames import own_frames_hidden, raise_told

if TYPE_CHECKING:
    from ray.includes.object_ref import ObjectRef

    from kinetic_ray.calls.connect import Connection

R = TypeVar("R")


@overload
def get(refs: ObjectRef[R], *, timeout: float | None = None) -> R: ...
@overload
def get(refs: Sequence[ObjectRef[R]], *, timeout: float | None = None) -> list[R]: ...
@own_frames_hidden()
def get(refs: Any, *, timeout: float | None = None) -> Any:
    """Waits for the value of a ref, or for the values of a list of them, as `ray.get` does.

    What the function raised is raised as itself, with the remote traceback as a note; `ray.get` gives Ray's
    `RayTaskError`, which is of both classes. Ctrl-C ends the waiting, not the call.

    Args:
        refs: What `.remote(...)` or `put` gave, or a list of them.
        timeout: Seconds to wait; None = as long as it takes.

    Raises:
        TimeoutError: It took longer.
        JobFailed: The call ended without a value and without an exception of its own; the message tells why.
        Exception: What the function raised.
    """
    import ray

    if type(refs) is not ray.ObjectRef:
        refs = _listed(refs)
        if refs == []:
            return []

    from kinetic_ray.calls.session import CURRENT

    _join("get")
    try:
        value = ray.get(refs, timeout=timeout)
        if type(refs) is ray.ObjectRef and (session := CURRENT.session) is not None:
            session.got.add(refs)
        return value
    except ray.exceptions.RayTaskError as error:
        own = _misunderstood(error) or users_own(error)
    except ray.exceptions.RayActorError as error:
        own = _explained(error)
    return raise_told(own)


def _listed(refs: Any) -> Any:
    """Refs as Ray takes them: a list.

    Raises:
        UsageError: What is to be called, or a job, in a ref's place.
    """
    refs = list(refs) if isinstance(refs, tuple) else refs
    for one in refs if isinstance(refs, list) else [refs]:
        if callable(getattr(one, "remote", None)):
            raise UsageError(f"get(): {one!r} is no ref; call it: kinetic.get(....remote(...))")
        if isinstance(getattr(one, "job_id", None), str):
            raise UsageError(f"get(): {one!r} is a job, and no ref; its value: job.result()")
    return refs


def _explained(error: BaseException) -> BaseException:
    from kinetic_ray.calls.explaining import explained

    return explained(error, _connection())


def _misunderstood(error: BaseException) -> BaseException | None:
    from kinetic_ray.calls.explaining import misunderstood

    return misunderstood(error, _connection())


def _connection() -> Connection | None:
    from kinetic_ray.calls.session import CURRENT

    return None if CURRENT.session is None else CURRENT.session.connection


def users_own(error: BaseException) -> BaseException:
    """The exception that user code raised, under what Ray wraps it in; Ray's where there is none."""
    cause, told = error, ""
    while (inner := getattr(cause, "cause", None)) is not None and isinstance(inner, BaseException):
        told = str(getattr(cause, "traceback_str", "") or told)
        cause = inner
    if cause is not error and told and not notes_of(cause):
        cause.add_note(f"\nRaised in a Ray task:\n{told.rstrip()}")
    return cause


@own_frames_hidden()
def put(value: R) -> ObjectRef[R]:
    """Puts a value into the cluster's object store, once for many calls, as `ray.put` does.

    Args:
        value: Anything that can be pickled. Arrays are read from there without a copy.

    Raises:
        PayloadError: It can't be pickled; names the part.
        UsageError, ConfigError: No cluster can be joined.
    """
    from kinetic_ray.calls.caller import goes_by_value
    from kinetic_ray.calls.session import current_session
    from kinetic_ray.runner.calls.packing import pack_arguments, pack_function

    try:
        packed, _ = pack_function(value, goes_by_value)
    except PayloadError:
        pack_arguments((value,), {}, goes_by_value, "kinetic.put()")  # fails as well, and says so as of an argument
        raise
    found: ObjectRef[R] = current_session().put(packed)
    return found


@own_frames_hidden()
def wait(
    refs: Sequence[ObjectRef[R]], *, num_returns: int = 1, timeout: float | None = None, fetch_local: bool = True
) -> tuple[list[ObjectRef[R]], list[ObjectRef[R]]]:
    """Waits until some refs have values, as `ray.wait` does.

    Args:
        refs: Refs, none of them twice.
        num_returns: How many to wait for.
        timeout: Seconds to wait; None = as long as it takes.
        fetch_local: Whether values count only once they are on this machine.

    Returns:
        Those that are ready, and the others.
    """
    import ray

    _join("wait")
    ready, others = ray.wait([*refs], num_returns=num_returns, timeout=timeout, fetch_local=fetch_local)
    return ready, others


@own_frames_hidden()
def init(*, backend: str | None = None, profile: str | None = None) -> None:
    """Joins this process to the cluster now, instead of at its first call.

    Args:
        backend: As the option of that name.
        profile: A named target.

    Raises:
        UsageError: The process is connected to another Ray cluster, or there is none that processes can join.
        ConfigError: The cluster can't be started.
    """
    from kinetic_ray.calls import connect

    connect.init(backend=backend, profile=profile)


@own_frames_hidden()
def shutdown() -> None:
    """Leaves the cluster: calls of this process that wait are dropped, those that run end, and its actors.

    Durable jobs and the cluster itself go on. Does nothing where no cluster was joined; a later call joins again.
    """
    from kinetic_ray.calls import connect

    connect.shutdown()


def _join(name: str) -> None:
    """Sees to it that this process is in the cluster that refs came from: Ray would start one of its own.

    Raises:
        UsageError: It is in none any more.
    """
    import ray

    if ray.is_initialized():
        return
    if config.inside_a_job():
        from kinetic_ray.calls.connect import connect

        connect()
    else:
        raise UsageError(
            f"{name}(): this process is in no cluster (any more), and its refs went with the one that they came from: "
            "kinetic.shutdown() was called, or the cluster has ended. Call again for new ones"
        )

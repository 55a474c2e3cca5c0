"""What an agent does with refs in the arguments and values that it passes on: it fetches, and puts anew, unopened.

A ref that is an argument stands for its value. Where that value is a packed one of ours it goes to the child as it is.
Any other value of Ray's is taken in the form in which Ray keeps it, so that nothing of the user's is rebuilt in the
agent; one that holds refs itself can only be read by a process that has joined Ray, so the child reads it.
"""

from __future__ import annotations

import pickle
from typing import Any

from kinetic_ray.runner.calls import live
from kinetic_ray.runner.calls.failures import CallFailure
from kinetic_ray.runner.calls.packing import Live, Packed, pack_value

#: Stands in the pickle of a value that Ray can only rebuild where it is joined.
_NEEDS_RAY = (b"_ref_deserializer", b"_actor_handle_deserializer", b"_rdt_")
_OURS = b"kinetic_ray.runner.calls.packing"


def resolve(packed: Packed) -> Packed:
    """Arguments in which refs that stand for their values are replaced by these; waits for them.

    Raises:
        CallFailure: One has none, because its own call failed.
        RayError: Likewise, of a task or an actor that isn't ours.
    """
    if not any(each.is_value for each in packed.live):
        return packed
    return Packed(packed.data, packed.buffers, [_resolved(each) for each in packed.live])


def adopt(packed: Packed) -> Packed:
    """A value from a child, with Ray's own refs: names become refs, values of refs that end with the child are put."""
    if not packed.live:
        return packed
    return Packed(packed.data, packed.buffers, [Live(_adopted(each.obj)) for each in packed.live])


def cause_of(exc: Any) -> BaseException:
    """The failure that an error of Ray's carries, where it is one of ours; else the error."""
    return exc.cause if isinstance(exc.cause, CallFailure) else exc


def _resolved(each: Live) -> Live:
    return Live(_fetch(each.obj), is_value=True) if each.is_value else each


def _fetch(ref: Any) -> Any:
    """The value of a ref, packed; the ref itself where the child has to read it."""
    import ray

    worker = ray._private.worker.global_worker  # noqa: SLF001 - Ray has no public way to leave a value unopened
    [(data, metadata, _)] = worker.core_worker.get_objects([ref], -1)
    if metadata.split(b",")[0] != ray._private.ray_constants.OBJECT_METADATA_TYPE_PYTHON:  # noqa: SLF001
        return pack_value(_read(ref))  # plain data, or an error, which is raised
    shape, pickled = ray._raylet.split_buffer(data)  # noqa: SLF001
    in_band, buffers = ray._raylet.unpack_pickle5_buffers(pickled)  # noqa: SLF001
    in_band = bytes(in_band)
    if _OURS in in_band[:200]:
        value = _read(ref)
        return value if isinstance(value, Packed) else pack_value(value)
    if any(sign in in_band for sign in _NEEDS_RAY):
        return ref
    return pack_value(_Unopened(bytes(shape), in_band, list(buffers)))


def _read(ref: Any) -> Any:
    import ray

    try:
        return ray.get(ref)
    except ray.exceptions.RayTaskError as exc:
        raise cause_of(exc) from None


def _adopted(obj: Any) -> Any:
    if not isinstance(obj, Packed):
        return live.object_of(obj)
    import ray

    return ray.put(adopt(obj))


class _Unopened:
    """A value in the form in which Ray keeps it; it is rebuilt where it is unpickled."""

    def __init__(self, shape: bytes, in_band: bytes, buffers: list[Any]) -> None:
        self._parts = (shape, in_band, *buffers)

    def __reduce_ex__(self, _protocol: Any) -> tuple[Any, ...]:
        shape, in_band, *buffers = self._parts
        return live.open_rays, (shape, in_band, *map(pickle.PickleBuffer, buffers))

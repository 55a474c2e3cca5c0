"""Refs and actor handles on the way between an agent and its child, which are two processes to Ray.

Ray counts who holds a ref within its own messages only. Between an agent and its child a ref travels as a name: the
agent holds it while the call runs, so the child may borrow it. A ref that the child owns would end with the child: its
value goes to the agent instead, which puts it anew.
"""

from __future__ import annotations

import logging
import os
import pickle
import signal
import threading
from typing import Any

from kinetic_ray.errors import ConfigError
from kinetic_ray.runner.calls.packing import Live, Packed, pack_value, unpack
from kinetic_ray.runner.calls.words import Wire


def name_of(obj: Any) -> Wire:
    """How a ref or an actor handle travels."""
    import ray

    core = ray._private.worker.global_worker.core_worker  # noqa: SLF001 - Ray has no public way
    if isinstance(obj, ray.ObjectRef):
        _, owner, status = core.serialize_object_ref(obj)
        return {"ref": obj.binary().hex(), "owner": owner.hex(), "status": status.hex()}
    return {"actor": obj._serialization_helper()[0].hex()}  # noqa: SLF001


def as_told(wire: Wire) -> Wire:
    """Leaves a name as it is: a child makes the object when it needs it."""
    return wire


def object_of(wire: Wire) -> Any:
    """The ref or actor handle of a name; this process must have joined Ray."""
    import ray

    if "actor" in wire:
        helper = ray.actor.ActorHandle._deserialization_helper  # noqa: SLF001
        return helper(bytes.fromhex(wire["actor"]), False, None)
    owner = bytes.fromhex(wire["owner"])
    ref = ray.ObjectRef(bytes.fromhex(wire["ref"]), owner)
    worker = ray._private.worker.global_worker  # noqa: SLF001
    worker.core_worker.deserialize_and_register_object_ref(
        ref.binary(), ray.ObjectRef.nil(), owner, bytes.fromhex(wire["status"])
    )
    return ref


def awaken(packed: Packed) -> Packed:
    """In a child: what is live in a value as this process can use it. Joins Ray if it has to."""
    if not packed.live:
        return packed
    return Packed(packed.data, packed.buffers, [Live(_awake(*each), each.is_value) for each in packed.live])


def _awake(obj: Any, is_value: bool) -> Any:
    if isinstance(obj, Packed):
        return unpack(awaken(obj))
    join()
    made = object_of(obj)
    if not is_value:
        return made
    import ray

    return ray.get(made)


def put_to_sleep(packed: Packed) -> Packed:
    """In a child: a value in which refs that this process owns are replaced by their values."""
    if not packed.live:
        return packed
    return Packed(packed.data, packed.buffers, [Live(_asleep(each.obj), each.is_value) for each in packed.live])


def _asleep(obj: Any) -> Any:
    import ray

    if not isinstance(obj, ray.ObjectRef) or not _is_own(obj):
        return obj
    return put_to_sleep(pack_value(ray.get(obj)))


def _is_own(ref: Any) -> bool:
    import ray

    core = ray._private.worker.global_worker.core_worker  # noqa: SLF001
    own = core.get_owner_address(ray.put(None))
    return bool(core.get_owner_address(ref) == own)


def open_rays(shape: bytes, in_band: bytes, *buffers: Any) -> Any:
    """Rebuilds a value from the form in which Ray keeps it: what of it is no plain data is pickled, as a list."""
    import msgpack  # as Ray does; Ray itself need not be imported for this, which takes a second

    objects = pickle.loads(in_band, buffers=buffers)

    def find(_code: int, place: bytes) -> Any:
        return objects[msgpack.loads(place)]

    return msgpack.loads(shape, ext_hook=find, raw=False, strict_map_key=False)


def join() -> None:
    """Has this process join the cluster that its variables name; does nothing where it has.

    Raises:
        ConfigError: They name none.
    """
    import ray

    if ray.is_initialized():
        return
    address = os.environ.get("KINETIC_RAY_ADDRESS") or os.environ.get("RAY_ADDRESS")
    if not address:
        raise ConfigError("a ref was passed to a process that belongs to no Ray cluster: RAY_ADDRESS isn't set there")
    kept = signal.getsignal(signal.SIGTERM)
    ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, kept)  # Ray sets its own

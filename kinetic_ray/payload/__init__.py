"""The pickled call: function and arguments as they travel to every rank."""

from kinetic_ray.payload.calls import dump_call, load_call, pack_call
from kinetic_ray.payload.parts import Payload
from kinetic_ray.payload.scripts import run_script

__all__ = ["Payload", "dump_call", "load_call", "pack_call", "run_script"]

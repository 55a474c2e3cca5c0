"""The decorators, and what they make of functions and classes."""

from kinetic_ray.api.classes import RemoteClass
from kinetic_ray.api.decorators import remote, run, submit_script
from kinetic_ray.api.functions import RemoteFunction

__all__ = ["RemoteClass", "RemoteFunction", "remote", "run", "submit_script"]

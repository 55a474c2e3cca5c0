"""One decorator takes a Python function from a laptop to a slice of TPUs, on Ray."""

from kinetic_ray.version import __version__

__all__ = ["__version__"]

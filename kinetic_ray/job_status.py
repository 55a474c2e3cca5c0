"""`JobStatus`, under the module's name that keras-team/kinetic has for it."""

from kinetic_ray.core.state import JobStatus

__all__ = ["JobStatus"]

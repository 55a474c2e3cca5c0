"""Jobs as their users hold them: handles, attaching, listing."""

from kinetic_ray.core.state import JobStatus
from kinetic_ray.jobs.finding import attach, list_jobs
from kinetic_ray.jobs.handle import JobHandle
from kinetic_ray.jobs.phases import JobPhase
from kinetic_ray.jobs.watching import Reporter

__all__ = ["JobHandle", "JobPhase", "JobStatus", "Reporter", "attach", "list_jobs"]

"""Jobs as their users hold them: handles, attaching, listing."""

from kinetic_ray.core.state import JobStatus
from kinetic_ray.jobs.finding import attach, list_jobs
from kinetic_ray.jobs.handle import JobHandle
from kinetic_ray.jobs.logs import LogLine
from kinetic_ray.jobs.phases import JobPhase
from kinetic_ray.jobs.showing import Reporter

__all__ = ["JobHandle", "JobPhase", "JobStatus", "LogLine", "Reporter", "attach", "list_jobs"]

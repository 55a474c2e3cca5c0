"""A job's durable records in the store, and the index of all jobs."""

from kinetic_ray.journal.index import Rebuilt, list_entries, pending_jobs, rebuild_index
from kinetic_ray.journal.job import INDEX_ORDER, DriverLog, Fenced, JobJournal, new_env_id
from kinetic_ray.journal.reading import Segments

__all__ = [
    "INDEX_ORDER",
    "DriverLog",
    "Fenced",
    "JobJournal",
    "Rebuilt",
    "Segments",
    "list_entries",
    "new_env_id",
    "pending_jobs",
    "rebuild_index",
]

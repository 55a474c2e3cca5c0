"""How Ray's dashboard and state API call what runs for a job: by function, slice, host and attempt. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from kinetic_ray.core.names import JobKeys
from kinetic_ray.runner.slices import Host


@dataclass(frozen=True, slots=True)
class Title:
    """What a gang serves.

    Attributes:
        function: Its name, for people.
        job_id: The job.
        epoch: The driver's.
        attempt: The one that the gang is made for; later ones may use it as well.

    Example:
        >>> title = Title("train", "job-0000000000e008000000000000", 1, 2)
        >>> title.agent(Host(3, 0, "tpu-v6e-16-0", 3))
        'train/tpu-v6e-16-0/host-3/attempt-2/job-0000000000e008000000000000.1'
        >>> title.words(Host(3, 0, "tpu-v6e-16-0", 3)), title.words(Host(0))
        ('train on host 3 of tpu-v6e-16-0', 'train on host 0')
        >>> title.call(Host(1, worker_id=1), 2, "start")
        'train on host 1, attempt 2: start'
    """

    function: str
    job_id: str
    epoch: int
    attempt: int

    def agent(self, host: Host) -> str:
        """The name of a host's agent: never given twice in a cluster, for Ray refuses a second actor of one name."""
        place = f"{host.slice_name or 'cpu'}/host-{host.worker_id}"
        return f"{self.function}/{place}/attempt-{self.attempt}/{self.job_id}.{self.epoch}"

    def words(self, host: Host) -> str:
        """The agent's repr, which Ray shows for the actor and before the names of its methods."""
        return f"{self.function} on {host.where}"

    def log(self, host: Host) -> str:
        """The key of the log of a host's rank."""
        return JobKeys(self.job_id).log(self.epoch, self.attempt, host.rank)

    def call(self, host: Host, attempt: int, method: str) -> str:
        """The name of a call that belongs to an attempt."""
        return f"{self.words(host)}, attempt {attempt}: {method}"

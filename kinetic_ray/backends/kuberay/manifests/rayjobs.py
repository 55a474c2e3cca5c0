"""A RayJob: a cluster of one job's own, which the operator makes and removes; the job is submitted as to any other."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from kinetic_ray.backends.kuberay.clusters import ClusterSpec
from kinetic_ray.backends.kuberay.manifests import labels
from kinetic_ray.backends.kuberay.manifests.head import head_group
from kinetic_ray.backends.kuberay.manifests.labels import Json, metadata
from kinetic_ray.backends.kuberay.manifests.rayclusters import cluster_body
from kinetic_ray.backends.kuberay.manifests.workers import worker_group
from kinetic_ray.backends.kuberay.names import JOB_LIMIT, check_count, check_name
from kinetic_ray.backends.kuberay.pools import Pool
from kinetic_ray.errors import ConfigError

#: Seconds that a job's own cluster may take until the job runs, where the job doesn't say.
_PATIENCE = 24 * 3600
#: What starting and ending take beside the job's own time, at most; the job's driver keeps the time itself.
_SLACK = 900
_MOST = 2**31 - 1


@dataclass(frozen=True, slots=True)
class JobCluster:
    """A cluster of one job's own.

    Attributes:
        name: Of the RayJob: the job's id.
        cluster: The profile's cluster, whose store, image, head, accounts and token it has.
        pool: The hosts that it is made of.
        slices: How many replicas, all from the beginning.
        timeout: Running seconds that the job may take; None = no deadline.
        capacity_timeout: Seconds that it may wait for its hosts; None = a day.
        ttl: Seconds after its end until the operator removes the hosts.

    Raises:
        ConfigError: A field can't work.
    """

    name: str
    cluster: ClusterSpec
    pool: Pool
    slices: int = 1
    timeout: float | None = None
    capacity_timeout: float | None = None
    ttl: int = 60

    def __post_init__(self) -> None:
        check_name(self.name, "job", JOB_LIMIT)
        check_count(self.slices, "num_slices", 1, 1000)
        check_count(self.ttl, "ttl", 0, _MOST)
        for what, seconds in (("timeout", self.timeout), ("capacity_timeout", self.capacity_timeout)):
            if seconds is not None and not 0 < seconds < _MOST / 4:
                raise ConfigError(f"{what}={seconds!r}: expected a positive number of seconds, 17 years at most")

    @property
    def waits(self) -> int:
        """Seconds until it must run."""
        return _PATIENCE if self.capacity_timeout is None else math.ceil(self.capacity_timeout) + _SLACK

    @property
    def deadline(self) -> int | None:
        """Seconds until it is ended whatever it does: the net under the driver, which keeps the job's time."""
        return None if self.timeout is None else self.waits + math.ceil(self.timeout) + _SLACK


def rayjob(job: JobCluster) -> Json:
    """The RayJob."""
    spec = job.cluster
    pool = replace(job.pool, min_slices=job.slices, max_slices=job.slices)
    groups = [worker_group(spec, pool, job.name)]
    # One token for all clusters of a profile: KubeRay made it for the standing one.
    body = cluster_body(head_group(spec, job.name), groups, {"secretName": spec.name})
    queue = {labels.QUEUE: spec.queue} if spec.queue else {}
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayJob",
        "metadata": metadata(job.name, spec.namespace, spec.name, **{labels.JOB: job.name}, **queue),
        "spec": {
            "submissionMode": "InteractiveMode",
            **({} if job.deadline is None else {"activeDeadlineSeconds": job.deadline}),
            "preRunningDeadlineSeconds": job.waits,
            # Not by rules of deletion: they have none for a job that was stopped, and Kueue takes no RayJob with them.
            "shutdownAfterJobFinishes": True,
            "ttlSecondsAfterFinished": job.ttl,
            "rayClusterSpec": body,
        },
    }

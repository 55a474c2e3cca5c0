"""What a host agent is told: the plan of a host, and the task of one rank in one attempt."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from kinetic_ray.core.names import JobKeys
from kinetic_ray.core.outcome import Blob
from kinetic_ray.core.spec import BundleRef, Fingerprint

#: Long compiles keep a rank from answering on a TPU; simulated devices have no such excuse.
HEARTBEAT_SIMULATED, HEARTBEAT_REAL = 10, 600


RUNTIMES = ("plain", "jax")
#: In a rank's working folder: where its bundle is unpacked.
CODE = "code"


@dataclass(frozen=True, slots=True)
class HostPlan:
    """What a zygote is made for; two equal plans share one.

    Attributes:
        runtime: "jax" or "plain".
        chips: Devices of a TPU host; 0 for any other host.
        simulated: The devices are CPU devices that stand for chips.
        env_vars: The job's variables, set before the zygote is executed.
        secrets: Secrets of the host, set likewise: NAME or NAME:VARIABLE -> the version that was seen, "" for any.
    """

    runtime: str = "plain"
    chips: int = 0
    simulated: bool = False
    env_vars: Mapping[str, str] = field(default_factory=dict, repr=False)
    secrets: Mapping[str, str] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> HostPlan:
        return HostPlan(**data)


@dataclass(frozen=True, slots=True)
class Limits:
    """How long a rank waits for its peers, in seconds.

    Attributes:
        initialize: For all ranks to meet.
        heartbeat: Until a silent peer counts as dead; None = by the devices.
        barrier: At the end, for the slowest rank. Generous: a dead peer ends the wait at once, and a rank that
            evaluates for hours after the others returned is no fault.
    """

    initialize: int = 300
    heartbeat: int | None = None
    barrier: int = 24 * 3600


@dataclass(frozen=True, slots=True)
class RankTask:
    """One rank of one attempt.

    Attributes:
        store_url: Where the job's records are.
        job_id: The job.
        epoch: The driver's epoch.
        attempt: From 1; a fenced attempt never starts again.
        rank: Slice index x hosts + worker id.
        world_size: Ranks in the gang.
        payload: The pickled call; None where the child serves calls.
        bundle: The user's code, if any was sent.
        client: Versions on the client, compared before anything is unpickled; None = no check.
        runtime: "jax" or "plain"; the zygote's.
        chips: Devices per host; 0 where there are none to count.
        simulated: See :class:`HostPlan`.
        slice_index: The rank's slice, from 0.
        num_slices: Slices in the gang.
        slice_name: Its name.
        coordinator: "host:port" of rank 0; "" for a gang of one.
        role: The rank's role in the job.
        argv: `sys.argv` of the call.
        env: Set after the fork: KINETIC_*, MEGASCALE_*.
        keeps_value: Whether the rank's value is wanted; else it is dropped on the host, and needn't be picklable.
        output_dir: A folder; "" = one that ends with the attempt.
        work_dir: Where the attempt unpacks and runs; the agent fills it in.
        limits: See :class:`Limits`.
        serves: Whether the child serves calls, one after the other, instead of running one.
    """

    store_url: str
    job_id: str
    epoch: int
    attempt: int
    rank: int
    world_size: int
    payload: Blob | None
    bundle: BundleRef | None = None
    client: Fingerprint | None = None
    runtime: str = "plain"
    chips: int = 0
    simulated: bool = False
    slice_index: int = 0
    num_slices: int = 1
    slice_name: str = ""
    coordinator: str = ""
    role: str = "worker"
    argv: tuple[str, ...] = ("",)
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    keeps_value: bool = True
    output_dir: str = ""
    work_dir: str = ""
    limits: Limits = field(default_factory=Limits)
    serves: bool = False

    @property
    def heartbeat(self) -> int:
        """Seconds until a silent peer counts as dead."""
        default = HEARTBEAT_SIMULATED if self.simulated else HEARTBEAT_REAL
        return default if self.limits.heartbeat is None else self.limits.heartbeat

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> RankTask:
        """Reads what :meth:`to_dict` wrote, also after a trip through JSON."""
        fields = dict(data)
        if fields.get("payload") is not None:
            fields["payload"] = Blob.from_dict(fields["payload"])
        if fields.get("bundle") is not None:
            fields["bundle"] = BundleRef.from_dict(fields["bundle"])
        if fields.get("client") is not None:
            fields["client"] = Fingerprint(**fields["client"])
        fields["argv"] = tuple(fields.get("argv", ("",)))
        fields["limits"] = Limits(**fields.get("limits", {}))
        return RankTask(**fields)


def mirrored_folder(task: RankTask) -> Path | None:
    """The local folder of output files whose place is in a store that is no folder itself; None where they stay."""
    if "://" not in task.output_dir or task.output_dir != f"{task.store_url}/{JobKeys(task.job_id).outputs}":
        return None
    return Path(task.work_dir, "outputs")

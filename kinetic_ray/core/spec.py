"""The frozen, JSON-serialisable description of one call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from kinetic_ray.core.names import check_id
from kinetic_ray.core.outcome import Blob


@dataclass(frozen=True, slots=True)
class BundleRef:
    """The user's code in the store, and how it was laid out on the client.

    Attributes:
        blob: The archive.
        sys_path: Folders to put on `sys.path`, relative to the bundle's root ("." is the root).
        cwd: The working folder, relative to the root.
    """

    blob: Blob
    sys_path: tuple[str, ...] = (".",)
    cwd: str = "."

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> BundleRef:
        return BundleRef(Blob.from_dict(data["blob"]), tuple(data["sys_path"]), data["cwd"])


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """Versions on the client, compared with the host's before anything is unpickled.

    Attributes:
        python: Python's.
        ray: Ray's.
        cloudpickle: Of what has written the payload.
        kinetic_ray: Ours.
        packages: Of the installed packages that the payload names, as they are imported; "" where one doesn't tell.
    """

    python: str
    ray: str
    cloudpickle: str
    kinetic_ray: str
    packages: Mapping[str, str] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class JobSpec:
    """One call, as the driver reads it.

    Attributes:
        job_id: "job-…"; the Ray submission id is the same.
        func_name: The function's qualified name, for people.
        created_at: Unix seconds by the client's clock.
        accelerator: Canonical name, e.g. "tpu-v6e-16" or "cpu".
        payload: The pickled (function, args, kwargs).
        client: Versions on the client.
        bundle: The user's code; None where there is none to send (a REPL outside of any folder, say).
        chips_per_host: Overrides the table (v6e/v5e 2x4 as two hosts); None = the table's.
        num_slices: Slices in the gang.
        hosts: Ranks of a cpu or GPU gang; 1 otherwise (a TPU's hosts follow from the accelerator).
        gather: "leader" or "all".
        runtime: "jax" or "plain", resolved from "auto" by the client.
        timeout: Running seconds over all attempts; None = no deadline.
        capacity_timeout: Seconds that the job may queue; None = no bound.
        cpus: CPUs per host of a cpu gang.
        memory: Bytes per host; None = not reserved.
        env_names: Names of the variables in the env object; never a value.
        env_id: Random id of the env object; None when there is none.
        secrets: Secrets of the hosts whose variables are set, as NAME or NAME:VARIABLE.
        output_dir: Where outputs go; None = the job's own `outputs/` in the store.
        name: A name for people.
        tags: Searchable tags.
        priority: Higher goes first; 0 by default.
        owner: Who submitted, for people.
    """

    job_id: str
    func_name: str
    created_at: float
    accelerator: str
    payload: Blob
    client: Fingerprint
    bundle: BundleRef | None = None
    chips_per_host: int | None = None
    num_slices: int = 1
    hosts: int = 1
    gather: str = "leader"
    runtime: str = "plain"
    timeout: float | None = None
    capacity_timeout: float | None = None
    cpus: float = 1.0
    memory: int | None = None
    env_names: tuple[str, ...] = ()
    env_id: str | None = None
    secrets: tuple[str, ...] = ()
    output_dir: str | None = None
    name: str = ""
    tags: tuple[str, ...] = field(default=())
    priority: int = 0
    owner: str = ""

    def __post_init__(self) -> None:
        check_id(self.job_id, "job")

    @property
    def format_version(self) -> int:
        """The version of its record: the oldest whose readers know all that it says.

        Version 2 is where it names secrets, version 3 where it names packages.
        """
        if self.client.packages:
            return 3
        return 2 if self.secrets else 1

    def to_dict(self) -> dict[str, Any]:
        fields = asdict(self)
        if not self.secrets:
            del fields["secrets"]
        if not self.client.packages:
            del fields["client"]["packages"]
        return fields

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> JobSpec:
        """Reads what :meth:`to_dict` wrote, also after a trip through JSON.

        Raises:
            TypeError: A field is unknown or missing (the record's version guards against that).
        """
        fields = dict(data)
        fields["payload"] = Blob.from_dict(fields["payload"])
        fields["client"] = Fingerprint(**fields["client"])
        if fields.get("bundle") is not None:
            fields["bundle"] = BundleRef.from_dict(fields["bundle"])
        fields["env_names"] = tuple(fields.get("env_names", ()))
        fields["secrets"] = tuple(fields.get("secrets", ()))
        fields["tags"] = tuple(fields.get("tags", ()))
        return JobSpec(**fields)

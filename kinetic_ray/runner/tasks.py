"""From a spec to what is asked of the cluster: the broker's ticket, the hosts' plan, the ranks' tasks. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from kinetic_ray.core.accelerators import parse_accelerator
from kinetic_ray.core.spec import JobSpec
from kinetic_ray.runner.queue import CPU, Ticket
from kinetic_ray.runner.slices import Host, multislice_env
from kinetic_ray.runner.task import HostPlan, RankTask


@dataclass(frozen=True, slots=True)
class Start:
    """What is new in every attempt.

    Attributes:
        epoch: The driver's.
        attempt: From 1.
        coordinator: "host:port" on rank 0's host, fresh; "" for a single rank.
        slices_coordinator: Another one, for the slices' meeting; "" for a single slice.
    """

    epoch: int
    attempt: int
    coordinator: str = ""
    slices_coordinator: str = ""


def ticket_of(spec: JobSpec, epoch: int) -> Ticket:
    """What the job wants of the cluster."""
    wanted = Ticket(spec.job_id, epoch, spec.accelerator, priority=spec.priority, name=spec.name or spec.func_name)
    if parse_accelerator(spec.accelerator).kind == "cpu":  # "cpu-2" as well, whose CPUs the spec has beside its name
        return replace(wanted, accelerator=CPU, hosts=spec.hosts, cpus=spec.cpus, memory=spec.memory or 0)
    return replace(wanted, chips_per_host=_chips(spec), slices=spec.num_slices)


def plan_of(spec: JobSpec, env: Mapping[str, str], *, simulated: bool) -> HostPlan:
    """What each host prepares for the job."""
    return HostPlan(spec.runtime, _chips(spec), simulated, dict(env), dict.fromkeys(spec.secrets, ""))


def tasks_of(
    spec: JobSpec, start: Start, hosts: Sequence[Host], *, store_url: str, output_dir: str, simulated: bool
) -> list[RankTask]:
    """The tasks of one attempt, by rank."""
    return [
        RankTask(
            store_url=store_url,
            job_id=spec.job_id,
            epoch=start.epoch,
            attempt=start.attempt,
            rank=host.rank,
            world_size=len(hosts),
            payload=spec.payload,
            bundle=spec.bundle,
            client=spec.client,
            runtime=spec.runtime,
            chips=_chips(spec),
            simulated=simulated,
            slice_index=host.slice_index,
            num_slices=spec.num_slices,
            slice_name=host.slice_name,
            coordinator=start.coordinator,
            env=multislice_env(host, spec.num_slices, start.slices_coordinator),
            keeps_value=host.rank == 0 or spec.gather == "all",
            output_dir=output_dir,
        )
        for host in hosts
    ]


def _chips(spec: JobSpec) -> int:
    return parse_accelerator(spec.accelerator, chips_per_host=spec.chips_per_host).chips_per_host

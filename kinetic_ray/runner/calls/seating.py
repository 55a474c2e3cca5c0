"""What the hosts of a gang are told: the broker's ticket and the ranks' tasks, from a wish. Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from kinetic_ray.runner.calls.wish import Order, Wish
from kinetic_ray.runner.queue import CPU, Ticket
from kinetic_ray.runner.slices import Host, multislice_env
from kinetic_ray.runner.task import RankTask


@dataclass(frozen=True, slots=True)
class Meeting:
    """Where the ranks of a gang meet: "host:port" on rank 0's host, fresh; "" where there is nobody to meet."""

    ranks: str = ""
    slices: str = ""


def ticket_of(order: Order, gang: str, epoch: int) -> Ticket:
    """What a gang for this order wants of the cluster."""
    wish = order.wish
    is_cpu = wish.accelerator == CPU
    return Ticket(
        gang,
        epoch,
        wish.accelerator,
        chips_per_host=wish.chips_per_host,
        slices=0 if is_cpu else max(1, wish.num_slices),
        hosts=wish.hosts if is_cpu else 0,
        cpus=wish.cpus if is_cpu else 0.0,
        memory=wish.memory if is_cpu else 0,
        priority=order.priority,
        name=order.name,
        yields=order.kind == "function",
        ancestors=order.ancestors,
    )


def plan_key(wish: Wish) -> str:
    """Names what a host's zygote has to be made for."""
    return json.dumps([wish.runtime, wish.chips_per_host, dict(wish.env_vars), dict(wish.secrets)], sort_keys=True)


def tasks_of(wish: Wish, gang: str, hosts: Sequence[Host], meeting: Meeting, *, simulated: bool) -> list[RankTask]:
    """The tasks of a gang's children, by rank."""
    slices = max(1, wish.num_slices)
    return [
        RankTask(
            store_url="",
            job_id=gang,
            epoch=1,
            attempt=1,
            rank=host.rank,
            world_size=len(hosts),
            payload=None,
            runtime=wish.runtime,
            chips=wish.chips_per_host,
            simulated=simulated,
            slice_index=host.slice_index,
            num_slices=slices,
            slice_name=host.slice_name,
            coordinator=meeting.ranks,
            argv=(wish.main or "",),
            env=multislice_env(host, slices, meeting.slices),
            serves=True,
        )
        for host in hosts
    ]

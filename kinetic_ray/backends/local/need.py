"""What a job may ask of this machine at most."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from kinetic_ray.backends.local import pool
from kinetic_ray.core.accelerators import parse_accelerator
from kinetic_ray.errors import UsageError


def check_need(limits: pool.Limits, need: Mapping[str, Any]) -> None:
    """Refuses what can never run here.

    Args:
        limits: The slices that there may be.
        need: The fields of :class:`kinetic_ray.backends.base.Need`.

    Raises:
        UsageError: It never fits.
    """
    accelerator = parse_accelerator(need["accelerator"], chips_per_host=need.get("chips_per_host") or None)
    if accelerator.kind == "gpu":
        raise UsageError(f"{accelerator.name}: the embedded cluster has CPUs and simulates TPUs, but has no GPUs")
    if accelerator.kind == "tpu":
        if why := pool.refusal(limits, accelerator, int(need.get("num_slices") or 1)):
            raise UsageError(why)
        return
    hosts = int(need.get("hosts") or 1)
    wanted = hosts * float(need.get("cpus") or 0)
    if wanted > (there := usable_cpus()):
        raise UsageError(f"{wanted:g} CPUs at once never fit: this machine has {there}")
    memory = hosts * int(need.get("memory") or 0)
    if memory > (there := total_memory()):
        raise UsageError(f"{memory} bytes of memory at once never fit: this machine has {there}")


def usable_cpus() -> int:
    """CPUs that this process may run on."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # only Linux has it
        return os.cpu_count() or 1


def total_memory() -> int:
    """Bytes of this machine's memory."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")

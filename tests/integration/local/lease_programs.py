"""What jobs of the broker's tests run; imported by name on the hosts, so it imports nothing heavy at its top."""

import os
import threading
from pathlib import Path
from typing import Any


def wait_for(file: str) -> str:
    """Returns its slice's name once a file is there."""
    pause = threading.Event()
    while not Path(file).exists():
        pause.wait(0.02)
    return slice_name()


def slice_name() -> str:
    return os.environ["KINETIC_SLICE_NAME"]


def place_nested_call() -> dict[str, Any]:
    """Places what this job would call and wait for, two CPU hosts, while it holds all CPUs itself."""
    import ray

    from kinetic_ray.runner.queue import Lease, Ticket
    from kinetic_ray.runner.slices import Placement, hosts_of

    ray.init(address=os.environ["KINETIC_RAY_ADDRESS"], namespace="kinetic", log_to_driver=False)
    ticket = Ticket("call-nested", 1, "cpu", hosts=2, cpus=0.5, ancestors=(os.environ["KINETIC_JOB_ID"],))
    broker = ray.get_actor("kinetic-broker")
    answer = ray.get(broker.acquire.remote(ticket.to_dict()), timeout=60)
    placement = Placement(Lease(ticket))
    try:
        ray.get(list(placement.ready().values()), timeout=60)
        where = ray.remote(lambda: os.environ.get("TPU_NAME", ""))
        refs = [where.options(**placement.actor_options(host)).remote() for host in hosts_of(Lease(ticket))]
        return {"answer": answer, "slices": ray.get(refs, timeout=60)}
    finally:
        placement.remove()
        ray.get(broker.release.remote("call-nested", 1), timeout=60)

"""What the ranks of these tests run; imported by name on the hosts, so it imports nothing heavy at its top."""

import os
import signal
import threading
from pathlib import Path
from typing import Any


def give(value: Any) -> Any:
    return value


def variable(name: str) -> str | None:
    return os.environ.get(name)


def rank() -> int:
    from kinetic_ray.runner.session import context

    return context().rank


def all_reduce() -> tuple[int, list[int]]:
    """One collective over all ranks: devices in the gang, and every rank's number."""
    import jax
    import jax.numpy as jnp
    from jax.experimental import multihost_utils

    ranks = multihost_utils.process_allgather(jnp.array([rank()])).ravel().tolist()
    return jax.device_count(), ranks


def fail_on(failing: int) -> int:
    """All ranks work together until one of them raises."""
    for step in range(1_000_000):
        if step == 3 and rank() == failing:
            raise ValueError(f"bad batch on rank {failing}")
        all_reduce()
    return rank()


def leave_on(leaving: int, code: int) -> int:
    """One rank ends its process without a word, after a collective that all have seen."""
    all_reduce()
    if rank() == leaving:
        os._exit(code)
    all_reduce()
    return rank()


def stay(folder: str) -> None:
    """Tells its pid in a file, with that of a child of its own, then stays until somebody ends it."""
    child = os.fork()
    if child == 0:
        os.setsid()
        _wait_for_ever()
    whole = Path(folder, f".{rank()}")
    whole.write_text(f"{os.getpid()} {child}")
    whole.rename(Path(folder, str(rank())))
    _wait_for_ever()


def stay_stubbornly(folder: str) -> None:
    """As :func:`stay`, but it and its child ignore what can be ignored, and swallow what is raised in them."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    while True:
        try:
            stay(folder)
        except BaseException:  # noqa: BLE001 - that is what it is for
            continue


def stay_on(staying: int, folder: str) -> None:
    """One rank stays, the others return."""
    if rank() == staying:
        stay(folder)


def train_and_stay(folder: str) -> None:
    """As :func:`stay`, but all ranks keep meeting in collectives."""
    whole = Path(folder, f".{rank()}")
    whole.write_text(f"{os.getpid()} {os.getpid()}")
    all_reduce()
    whole.rename(Path(folder, str(rank())))
    while True:
        all_reduce()


def wait_for(file: str) -> int:
    """Returns its rank once a file is there."""
    pause = threading.Event()
    while not Path(file).exists():
        pause.wait(0.02)
    return rank()


def fail_once_there(file: str) -> None:
    """Raises once a file is there."""
    wait_for(file)
    raise KeyError("there")


def speak(gate: str) -> None:
    """Every rank prints: some lines, once a file is there bytes that are no text, and a line without an end."""
    os.write(1, f"rank {rank()} begins\n".encode())
    wait_for(gate)
    for number in range(1000):
        os.write(1, f"rank {rank()}: line {number} ü\n".encode())
    os.write(1, b"no text: \xff\n")
    os.write(2, b"last words")


def report_steps(steps: int, silent: int) -> None:
    """Reports steps 1..n on every rank but one."""
    from kinetic_ray.runner.session import report

    if rank() != silent:
        for step in range(1, steps + 1):
            report(step, total=steps, loss=1.0 / step)


def held_in_ray() -> dict[str, Any]:
    """What other jobs still hold in the cluster: placement groups, agents, leases."""
    import ray
    from ray.util.placement_group import placement_group_table

    ray.init(address=os.environ["KINETIC_RAY_ADDRESS"], namespace="kinetic", log_to_driver=False)
    mine = os.environ["KINETIC_JOB_ID"]
    groups = [group["name"] for group in placement_group_table().values() if group["state"] != "REMOVED"]
    leases = ray.get(ray.get_actor("kinetic-broker").holds.remote(), timeout=30)
    return {
        "groups": [name for name in groups if mine not in name],
        "leases": [job_id for job_id in leases if job_id != mine],
    }


def _wait_for_ever() -> None:
    while True:
        signal.pause()

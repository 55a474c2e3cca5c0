"""How the ranks of a JAX gang meet and part.

Rank 0 runs the coordinator; the others wait until its port answers, since a follower that comes first loses a second to
gRPC's retry. Simulated hosts keep everything on loopback. The gang parts by a barrier: a rank that leaves straight
after its last collective breaks those of its peers.
"""

from __future__ import annotations

import atexit
import functools
import os
import socket
import sys
import time
from typing import Any

from kinetic_ray.runner.task import RankTask

LOOPBACK = "127.0.0.1"


def join(task: RankTask) -> None:
    """Initialises `jax.distributed` for a gang of several ranks, and checks the devices.

    Raises:
        TimeoutError: Rank 0 did not answer within `task.limits.initialize` seconds.
        RuntimeError: JAX sees other devices than the accelerator has.
    """
    import jax
    from jax._src import api

    atexit.unregister(api.clean_up)  # it would leave the gang before the barrier, and drop devices that end with us
    if task.world_size > 1:
        _meet(task)
    _forgive_user_calls(task)
    if task.chips:
        _check_devices(task, jax.devices())


def leave(task: RankTask) -> None:
    """Waits for all ranks, then takes the distributed runtime down.

    Raises:
        Exception: A peer is gone, or the barrier took longer than `task.limits.barrier`.
    """
    from jax._src import distributed, xla_bridge

    if xla_bridge.backends_are_initialized():
        import jax

        jax.effects_barrier()
    if task.world_size > 1:
        distributed.global_state.shutdown()


def _meet(task: RankTask) -> None:
    from jax._src import distributed

    started = time.monotonic()
    options: dict[str, Any] = {}
    host, _, port = task.coordinator.rpartition(":")
    if task.simulated:
        _stay_on_loopback()
        options["coordinator_bind_address"] = f"{LOOPBACK}:{port}"
    if task.rank > 0:
        await_port(host, int(port), task.limits.initialize)
    left = task.limits.initialize - (time.monotonic() - started)
    distributed.initialize(
        task.coordinator,
        num_processes=task.world_size,
        process_id=task.rank,
        cluster_detection_method="deactivate",
        initialization_timeout=max(1, int(left)),
        heartbeat_timeout_seconds=task.heartbeat,
        shutdown_timeout_seconds=task.limits.barrier,
        **options,
    )


def await_port(host: str, port: int, timeout: float) -> None:
    """Returns once something accepts connections there.

    Raises:
        TimeoutError: Nothing did within `timeout` seconds.
    """
    deadline = time.monotonic() + timeout
    pause = 0.002
    while True:
        try:
            socket.create_connection((host, port), timeout=max(0.1, deadline - time.monotonic())).close()
        except OSError as exc:
            if time.monotonic() >= deadline:
                raise TimeoutError(f"rank 0's coordinator at {host}:{port} did not answer in {timeout:g} s") from exc
            time.sleep(pause)
            pause = min(pause * 1.5, 0.25)
        else:
            return


def _stay_on_loopback() -> None:
    """Makes gloo listen on loopback, whatever the machine's name resolves to, and gRPC go there without a proxy."""
    from jax._src import config, distributed, xla_bridge
    from jax._src.lib import _jax

    def make_client() -> Any:
        client = distributed.global_state.client
        collectives = None
        if client is not None and config.cpu_collectives_implementation.value == "gloo":
            collectives = _jax.make_gloo_tcp_collectives(distributed_client=client, hostname=LOOPBACK)
        return xla_bridge.make_cpu_client(collectives)

    xla_bridge.register_backend_factory("cpu", make_client, priority=0, fail_quietly=False)
    if any(name.lower().endswith("_proxy") for name in os.environ):
        kept = os.environ.get("no_grpc_proxy") or os.environ.get("no_proxy", "")  # noqa: SIM112 - gRPC's spelling
        os.environ["no_grpc_proxy"] = ",".join(filter(None, [kept, LOOPBACK, "localhost"]))  # noqa: SIM112


def _forgive_user_calls(task: RankTask) -> None:
    """Turns the user's own `jax.distributed.initialize()` and `shutdown()` into notes, however they are imported.

    Code written for plain JAX calls them; here the gang exists already, and its end is a barrier of all ranks.
    """
    import jax.distributed
    from jax._src import distributed

    for name in ("initialize", "shutdown"):
        for module in (jax.distributed, distributed):
            setattr(module, name, functools.partial(_note, name, task.rank, task.world_size))


def _note(name: str, rank: int, world_size: int, *_args: Any, **_kwargs: Any) -> None:
    does = "has initialised the gang already" if name == "initialize" else "ends the gang after the call"
    text = f"kinetic: jax.distributed.{name}() changes nothing here: kinetic {does} (rank {rank} of {world_size})"
    sys.stderr.write(text + "\n")


def _check_devices(task: RankTask, devices: list[Any]) -> None:
    """JAX falls back to fewer or other devices without a word when a chip is taken; a gang must not train on those."""
    expected = task.chips * task.world_size
    platform = devices[0].platform
    if task.simulated:
        fits = len(devices) == expected
    else:  # chips of v2, v3 and v7x show as two devices each
        fits = platform == "tpu" and len(devices) in (expected, 2 * expected)
    if not fits:
        wanted = f"{expected} {'simulated' if task.simulated else 'tpu'} devices ({task.world_size} x {task.chips})"
        raise RuntimeError(
            f"JAX sees {len(devices)} {platform} devices where the accelerator has {wanted}: "
            "another process may hold the chips, or JAX_PLATFORMS or XLA_FLAGS in env_vars say otherwise"
        )

"""The contender from Ray Train: JaxTrainer on a simulated slice of its own.

JaxTrainer asks for a CPU on every host, and simulated hosts offer none, so four hosts that do are started for it, by
the same node process that builds all the others.
"""

import asyncio
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import ray

from benchmarks.all_reduce import first_all_reduce
from benchmarks.gang import ACCELERATOR, CHIPS, DEADLINE, HOSTS
from kinetic_ray.backends.local.env import host_environment
from kinetic_ray.backends.local.launch import Launched, Launcher
from kinetic_ray.backends.local.plan import NodePlan
from kinetic_ray.core.accelerators import parse_accelerator

LEFT_OUT = "JaxTrainer is left out: ray[train] is not installed (pip install 'kinetic-ray[tune]')"


def is_installed() -> bool:
    """Whether Ray Train can be imported: it is Ray's, but what it needs is not."""
    return all(find_spec(name) for name in ("pandas", "pyarrow", "tensorboardX"))


@contextmanager
def trainer_hosts(other_slice: str) -> Iterator[None]:
    """Four hosts with a CPU each, and nothing for JaxTrainer to take of the slice that the others run on."""
    holder = ray.remote(_Holder).options(
        num_cpus=0, resources={"TPU-v6e-16-head": 1}, label_selector={"ray.io/tpu-slice-name": other_slice}
    )
    held = holder.remote()
    ray.get(held.ready.remote(), timeout=DEADLINE)
    with tempfile.TemporaryDirectory(prefix="krt", dir="/tmp") as folder, asyncio.Runner() as runner:
        started = runner.run(_start(Launcher(Path(folder)), Path(folder)))
        try:
            yield
        finally:
            runner.run(_stop(started))
            ray.kill(held)


class _Holder:
    def ready(self) -> None:
        """Answers once it is placed."""


async def _start(launcher: Launcher, folder: Path) -> list[Launched]:
    head = next(node for node in ray.nodes() if "node:__internal_head__" in node["Resources"])
    started = []
    for worker_id in range(HOSTS):
        name = f"t{worker_id}"
        (folder / name).mkdir()
        plan = NodePlan(
            name=name,
            temp_dir=str(folder / name),
            socket_dir=str(folder),
            cpus=1,
            chips=CHIPS,
            object_store=100 << 20,
            gcs_address=os.environ["KINETIC_RAY_ADDRESS"],
            runtime_env_port=head["RuntimeEnvAgentPort"],
        )
        environ = host_environment(parse_accelerator(ACCELERATOR), "trainer-slice", worker_id)
        started.append((await launcher.start(plan, environ, DEADLINE))[0])
    return started


async def _stop(started: list[Launched]) -> None:
    for launched in started:
        await launched.stop(at_once=False)


def train_once() -> float:
    """Trains once; gives the time at which the last rank had the sum."""
    from ray.train import RunConfig, ScalingConfig
    from ray.train.v2.jax import JaxTrainer

    environment = {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": f"--xla_force_host_platform_device_count={CHIPS}"}
    scaling = ScalingConfig(
        use_tpu=True,
        num_workers=HOSTS,
        topology="4x4",
        accelerator_type="TPU-V6E",
        resources_per_worker={"TPU": CHIPS, "CPU": 1},
    )
    with tempfile.TemporaryDirectory() as folder:
        config = RunConfig(storage_path=folder, worker_runtime_env={"env_vars": environment})
        loop = {"folder": folder}
        JaxTrainer(_train, train_loop_config=loop, scaling_config=scaling, run_config=config).fit()
        return max(float(path.read_text()) for path in Path(folder).glob("rank-*"))


def _train(config: dict[str, str]) -> None:
    import jax

    seconds = first_all_reduce()
    (Path(config["folder"]) / f"rank-{jax.process_index()}").write_text(repr(seconds))

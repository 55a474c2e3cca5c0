"""The contender from Ray Train: JaxTrainer on the same simulated slice."""

import tempfile
from collections.abc import Callable
from pathlib import Path

from benchmarks.gang import CHIPS, HOSTS, first_all_reduce

LEFT_OUT = "JaxTrainer is left out: ray[train] is not installed (pip install 'kinetic-ray[tune]')"


def trainer_gang() -> Callable[[], float] | None:
    """A function that trains once and gives the time at which the last rank had the sum; None without ray[train]."""
    try:
        from ray.train import RunConfig, ScalingConfig
        from ray.train.v2.jax import JaxTrainer
    except ImportError:
        return None

    environment = {
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": f"--xla_force_host_platform_device_count={CHIPS}",
    }
    scaling = ScalingConfig(
        use_tpu=True,
        num_workers=HOSTS,
        topology="4x4",
        accelerator_type="TPU-V6E",
        resources_per_worker={"TPU": CHIPS},
    )

    def run() -> float:
        with tempfile.TemporaryDirectory() as folder:
            config = RunConfig(storage_path=folder, worker_runtime_env={"env_vars": environment})
            loop = {"folder": folder}
            JaxTrainer(_train, train_loop_config=loop, scaling_config=scaling, run_config=config).fit()
            return max(float(path.read_text()) for path in Path(folder).glob("rank-*"))

    return run


def _train(config: dict[str, str]) -> None:
    import jax

    seconds = first_all_reduce()
    (Path(config["folder"]) / f"rank-{jax.process_index()}").write_text(repr(seconds))

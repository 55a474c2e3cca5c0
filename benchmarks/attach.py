"""From the start of a Python process to its first result, on a cluster that runs and on one that has to start."""

import os
import tempfile
from pathlib import Path

from benchmarks.harness import Aim, Contender, interleave, table, timed
from benchmarks.programs import run_python
from kinetic_ray.backends.local import backend

_RAW_TASK = (
    "import ray; ray.init({}, log_to_driver=False, logging_level=40); f = ray.remote(lambda: 1); ray.get(f.remote())"
)
_OURS = """
import kinetic_ray as kinetic

@kinetic.remote
def f():
    return 1

if __name__ == "__main__":
    kinetic.get(f.remote())
"""


def run(rounds: int) -> str:
    """Compares a script with one `.remote()` call with one that does the same with plain Ray."""
    with tempfile.TemporaryDirectory(prefix="krs", dir="/tmp") as folder:
        script = Path(folder) / "script.py"
        script.write_text(_OURS)
        ours = Contender("kinetic", timed(lambda: run_python(str(script))))
        theirs = Contender("ray.init(address), a task", timed(lambda: run_python("-c", _RAW_TASK.format("'auto'"))))
        later = interleave([ours, theirs], rounds)
        cold, cold_ray = _cold(script), _cold_ray()
        first = interleave([cold, cold_ray], max(2, rounds // 3), warm_up=0)
    return "\n\n".join(
        (
            table("a new process to its first result", later, [Aim(ours.name, theirs.name, 1.3)]),
            table("the same, no cluster yet", first, [Aim(cold.name, cold_ray.name, 1.05)]),
        )
    )


def _cold(script: Path) -> Contender:
    def sample() -> float:
        with tempfile.TemporaryDirectory(prefix="krc", dir="/tmp") as home:
            try:
                return timed(lambda: run_python(str(script), KINETIC_HOME=home))()
            finally:
                _stop(home)

    return Contender("kinetic, which starts its cluster", sample)


def _stop(home: str) -> None:
    here = os.environ.get("KINETIC_HOME")
    os.environ["KINETIC_HOME"] = home
    try:
        backend.stop(Path(home), force=True)
    finally:
        if here is not None:
            os.environ["KINETIC_HOME"] = here


def _cold_ray() -> Contender:
    def sample() -> float:
        with tempfile.TemporaryDirectory(prefix="krr", dir="/tmp") as folder:
            words = f"_temp_dir={folder!r}, num_cpus={os.cpu_count()}, object_store_memory=10**8"
            return timed(lambda: run_python("-c", _RAW_TASK.format(words), RAY_ADDRESS="local"))()

    return Contender("ray.init(), a task", sample)

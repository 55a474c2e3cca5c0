"""What it costs to import kinetic_ray and to ask the command for its help."""

import subprocess
import sys

from benchmarks.harness import Contender, interleave, table, timed


def run(rounds: int) -> str:
    """Compares `import kinetic_ray` and `kinetic --help` with a bare interpreter."""

    def process(*words: str) -> Contender:
        command = [sys.executable, *words]
        return Contender(
            " ".join(("python", *words)),
            timed(lambda: subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=True)),
        )

    contenders = [
        process("-c", "pass"),
        process("-c", "import kinetic_ray"),
        process("-m", "kinetic_ray", "--help"),
        process("-c", "import ray"),
    ]
    return table("one process", interleave(contenders, rounds))

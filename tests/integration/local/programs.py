"""Functions that the tests of the embedded cluster run on it."""

import kinetic_ray as kinetic

#: Ranks of :func:`hold`.
RANKS = 4


@kinetic.run(accelerator="tpu-v6e-16")
def hold(folder: str) -> str:
    """Meets the other ranks, leaves its process's number in a file, waits to be ended."""
    import os
    import signal
    from pathlib import Path

    from jax.experimental import multihost_utils

    multihost_utils.sync_global_devices("held")
    told = Path(folder, f".{os.getpid()}")
    told.write_text(str(os.getpid()))
    told.rename(Path(folder, str(kinetic.context().rank)))
    signal.pause()
    return "unreachable"

"""What every contender of the slice benchmarks runs. It imports nothing at its top: a rank that finds it by name would
otherwise import Ray first, which is no part of what is measured.
"""


def first_all_reduce() -> float:
    """Sums over all devices of all ranks, and gives the time at which this rank had the sum."""
    import time

    import jax
    import jax.numpy as jnp
    import numpy as np
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    mesh = Mesh(np.array(jax.devices()), ("all",))
    count = jax.device_count()
    ones = jax.make_array_from_callback(
        (count,), NamedSharding(mesh, PartitionSpec("all")), lambda index: np.ones(count, np.float32)[index]
    )
    total = jax.jit(jnp.sum, out_shardings=NamedSharding(mesh, PartitionSpec()))(ones)
    if float(total) != count or count != 16:
        raise ValueError(f"{count} devices summed up to {total}")
    return time.time()

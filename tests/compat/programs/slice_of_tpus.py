"""One program on all hosts of a slice, as upstream's multi-host examples: the ranks find each other without help."""

import kinetic


@kinetic.run(
    accelerator="tpu-v5litepod-8:spot",
    backend="pathways",
    project="my-project",
    zone="us-central1-a",
    cluster="my-cluster",
    spot=True,
)
def one_host():
    import jax

    return jax.process_count(), jax.device_count()


@kinetic.run(accelerator="tpu-v6e-16", backend="pathways")
def four_hosts():
    import jax
    import jax.numpy as jnp

    if jax.process_count() == 1:
        raise RuntimeError("expected several hosts")
    ones = jnp.ones(jax.local_device_count())
    total = jax.pmap(lambda x: jax.lax.psum(x, "i"), axis_name="i")(ones)
    return {"hosts": jax.process_count(), "devices": jax.device_count(), "sum": float(total[0])}


if __name__ == "__main__":
    assert one_host() == (1, 8)
    assert four_hosts() == {"hosts": 4, "devices": 16, "sum": 16.0}
    print("done")

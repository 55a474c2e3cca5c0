"""Trains a classifier of handwritten digits data-parallel over every device of a slice, and says how well it does.

    python examples/digits.py [--accelerator tpu-v6e-16] [--steps 200]

The data is the UCI set of handwritten digits that scikit-learn ships: 1,797 pictures of 8 x 8 pixels. The model is a
network of two layers, written out in full. Every device works on its share of each batch, and the gradients are
averaged over all of them at each step, so that sixteen devices learn what one device would (to rounding).
"""

import argparse
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import kinetic_ray as kinetic

STEPS, BATCH, EVERY = 200, 256, 20
RATE, MOMENTUM = 0.2, 0.9
ALL = ("host", "device")  # the axes of the mesh
Digits = tuple[np.ndarray, np.ndarray]  # pictures (n, 64) in [0, 1], labels (n,) in 0..9


def load_data(held_out: int = 360) -> tuple[Digits, Digits]:
    """The pictures to learn from, and those held out for the test; always split in the same way."""
    from sklearn.datasets import load_digits

    pictures, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(labels))
    pictures, labels = (pictures[order] / 16).astype(np.float32), labels[order].astype(np.int32)
    return (pictures[held_out:], labels[held_out:]), (pictures[:held_out], labels[:held_out])


def new_weights(hidden: int = 128) -> dict[str, np.ndarray]:
    """The same starting point on every host."""
    rng = np.random.default_rng(1)
    first = rng.normal(0, (2 / 64) ** 0.5, (64, hidden)).astype(np.float32)
    second = rng.normal(0, (1 / hidden) ** 0.5, (hidden, 10)).astype(np.float32)
    return {"w1": first, "b1": np.zeros(hidden, np.float32), "w2": second, "b2": np.zeros(10, np.float32)}


def logits(weights: dict[str, Any], pictures: jax.Array) -> jax.Array:
    """The model."""
    hidden = jax.nn.relu(pictures @ weights["w1"] + weights["b1"])
    return hidden @ weights["w2"] + weights["b2"]


def training_program(mesh: Mesh, unravel: Callable[[jax.Array], dict[str, Any]]) -> Callable[..., Any]:
    """Compiles several steps of gradient descent into one program over all devices of the mesh."""

    def loss_of(flat: jax.Array, pictures: jax.Array, labels: jax.Array) -> jax.Array:
        scores = jax.nn.log_softmax(logits(unravel(flat), pictures))
        return -jnp.take_along_axis(scores, labels[:, None], axis=1).mean()

    def step(state: tuple[jax.Array, jax.Array], batch: tuple[jax.Array, jax.Array]) -> Any:
        flat, velocity = state
        loss, gradient = jax.value_and_grad(loss_of)(flat, *batch)
        # Loss and gradient travel together, inside a host first: few and large messages are what makes a slice fast.
        mean = jax.lax.pmean(jax.lax.pmean(jnp.append(gradient, loss), "device"), "host")
        velocity = MOMENTUM * velocity + mean[:-1]
        return (flat - RATE * velocity, velocity), mean[-1]

    def steps(state: tuple[jax.Array, jax.Array], pictures: jax.Array, labels: jax.Array) -> Any:
        return jax.lax.scan(step, state, (pictures, labels))

    shares = P(None, ALL)
    return jax.jit(
        jax.shard_map(steps, mesh=mesh, in_specs=(P(), shares, shares), out_specs=(P(), P()), check_vma=False)
    )


def mesh_of_hosts() -> Mesh:
    """All devices, one row per host."""
    devices = sorted(jax.devices(), key=lambda device: (device.process_index, device.id))
    return Mesh(np.array(devices).reshape(jax.process_count(), -1), ALL)


def spread(array: np.ndarray, mesh: Mesh, spec: P) -> jax.Array:
    """A global array of which each host hands over only the parts that its own devices hold."""
    return jax.make_array_from_callback(array.shape, NamedSharding(mesh, spec), lambda index: array[index])


def fit(data: Digits, steps: int, tell: Callable[[int, float], None]) -> tuple[dict[str, np.ndarray], list[float]]:
    """Trains on all devices of all hosts; gives the weights and the loss of every step, the same on every host."""
    mesh = mesh_of_hosts()
    flat, unravel = ravel_pytree(new_weights())
    program = training_program(mesh, unravel)
    state = spread(np.asarray(flat), mesh, P()), spread(np.zeros(flat.shape, np.float32), mesh, P())
    rng, losses = np.random.default_rng(2), []
    for start in range(0, steps, EVERY):
        count = min(EVERY, steps - start)
        rows = np.stack([rng.permutation(len(data[1]))[:BATCH] for _ in range(count)])
        state, new = program(state, *(spread(part[rows], mesh, P(None, ALL)) for part in data))
        losses += np.asarray(new).tolist()
        tell(start + count, losses[-1])
    return {name: np.asarray(value) for name, value in unravel(np.asarray(state[0])).items()}, losses


def save(weights: dict[str, np.ndarray], losses: list[float]) -> None:
    """Writes the checkpoint and a picture of the learning curve into the job's output directory."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    folder = kinetic.context().output_dir
    np.savez(folder / "checkpoint.npz", losses=losses, **weights)
    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.add_subplot(title="Digits", xlabel="step", ylabel="training loss", yscale="log")
    axes.plot(range(1, len(losses) + 1), losses)
    FigureCanvasAgg(figure).print_png(str(folder / "learning-curve.png"))


@kinetic.run(accelerator="tpu-v6e-16")
def train(learn: Digits, test: Digits, steps: int = STEPS) -> float:
    """Trains, saves, and gives the share of held-out pictures that were recognised."""
    leader = kinetic.context().rank == 0
    if leader:
        print(f"training on {jax.device_count()} devices of {jax.process_count()} hosts", flush=True)

    def tell(step: int, loss: float) -> None:
        kinetic.report(step, total=steps, loss=loss)
        if leader:
            print(f"step {step:4d}  loss {loss:.4f}", flush=True)

    weights, losses = fit(learn, steps, tell)
    accuracy = float((np.asarray(logits(weights, test[0])).argmax(1) == test[1]).mean())
    if leader:
        save(weights, losses)
        print(f"test accuracy {accuracy:.4f}", flush=True)
        print(f"checkpoint and learning curve are in {kinetic.context().output_uri}", flush=True)
    return accuracy


def main() -> None:
    """Reads the command line and runs the training where it says."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--accelerator", default="tpu-v6e-16", help="what to train on, for example tpu-v6e-16 or cpu")
    parser.add_argument("--steps", type=int, default=STEPS)
    args = parser.parse_args()
    learn, test = load_data()
    accuracy = train.options(accelerator=args.accelerator)(learn, test, args.steps)
    print(f"the job returned {accuracy:.4f}")


if __name__ == "__main__":
    main()

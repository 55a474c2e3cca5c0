"""What GKE's TPU device plugin puts into a container that has chips."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from cluster.sim.kubelet import quantities
from cluster.sim.kubelet.shapes import Json

RESOURCE = "google.com/tpu"
ACCELERATOR, TOPOLOGY = "cloud.google.com/gke-tpu-accelerator", "cloud.google.com/gke-tpu-topology"

# GKE's label -> (the generation's name in TPU_ACCELERATOR_TYPE, what its number counts per chip). A table of its own on
# purpose: the package's must agree with it without sharing it.
_GENERATIONS = {
    "tpu-v4-podslice": ("v4", 2),
    "tpu-v5p-slice": ("v5p", 2),
    "tpu-v5-lite-podslice": ("v5litepod", 1),
    "tpu-v6e-slice": ("v6e", 1),
    "tpu7x": ("tpu7x", 2),
}
_HOST_SHAPES = {1: (1, 1, 1), 4: (2, 2, 1), 8: (2, 4, 1)}
_FIRST_METRICS_PORT, _VBAR_PORT = 8431, 8353


@dataclass(frozen=True, slots=True)
class HostShape:
    """One host of a slice, as its node's labels tell."""

    type: str
    topology: tuple[int, ...]
    chips: int

    @property
    def hosts(self) -> int:
        return max(1, math.prod(self.topology) // self.chips)

    @property
    def is_cube(self) -> bool:
        """Whether the slice is made of whole cubes, whose links wrap round."""
        return len(self.topology) == 3 and all(side % 4 == 0 for side in self.topology)


def host_shape(labels: Mapping[str, str], chips: int) -> HostShape | None:
    """The shape of a node's slice; None if the node is no TPU host.

    Args:
        labels: The node's.
        chips: How many it has.
    """
    generation = _GENERATIONS.get(labels.get(ACCELERATOR, ""))
    if generation is None or not chips or not labels.get(TOPOLOGY):
        return None
    name, per_chip = generation
    sides = tuple(int(side) for side in labels[TOPOLOGY].split("x"))
    return HostShape(f"{name}-{math.prod(sides) * per_chip}", sides, chips)


def chips_of(container: Json) -> int:
    """The chips that a container asks for."""
    limits = (container.get("resources") or {}).get("limits") or {}
    return quantities.in_units(limits.get(RESOURCE) or 0)


def device_variables(shape: HostShape, chips: int, host_address: str) -> dict[str, str]:
    """The environment of a container that was given chips.

    The same as on GKE: a host that is a whole slice knows that it is worker 0, one of several isn't told which it is.
    """
    per_host = _HOST_SHAPES.get(shape.chips, (shape.chips, 1, 1))
    sides = (*shape.topology, 1, 1)[:3]
    bounds = tuple(max(1, side // own) for side, own in zip(sides, per_host, strict=True))
    ports = ",".join(str(_FIRST_METRICS_PORT + index) for index in range(chips))
    env = {
        "TPU_ACCELERATOR_TYPE": shape.type,
        "TPU_TOPOLOGY": "x".join(map(str, shape.topology)),
        "TPU_TOPOLOGY_ALT": "false",
        "TPU_TOPOLOGY_WRAP": ",".join(["true" if shape.is_cube else "false"] * 3),
        "TPU_SKIP_MDS_QUERY": "true",
        "TPU_RUNTIME_METRICS_PORTS": ports,
        "VBAR_CONTROL_SERVICE_URL": f"{host_address}:{_VBAR_PORT}",
    }
    for name, value in (("HOST_BOUNDS", bounds), ("CHIPS_PER_HOST_BOUNDS", per_host)):
        env[name] = env[f"TPU_{name}"] = ",".join(map(str, value))
    if shape.is_cube:
        env["ENABLE_ICI_RESILIENCY"] = "true"
    if shape.hosts == 1:
        env |= {"TPU_WORKER_ID": "0", "TPU_WORKER_HOSTNAMES": "localhost"}
    return env

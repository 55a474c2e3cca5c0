"""The facts about accelerators: TPU families and their slices, GPUs and their machines."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

#: Chips along one edge of the cube that v4, v5p and v7x slices above 2x4x4 are built of.
CUBE_EDGE = 4
CUBE_CHIPS = CUBE_EDGE**3
#: Optical switches join cubes into rings; no axis of a slice is longer than this many chips.
LONGEST_AXIS = 256


@dataclass(frozen=True, slots=True)
class GkeNode:
    """How GKE names the nodes of a slice: its accelerator label, and the machine type up to the chip count."""

    label: str
    machine: str


@dataclass(frozen=True, slots=True)
class TpuFamily:
    """One TPU generation.

    Attributes:
        name: Ours, e.g. "v5e".
        aliases: Other spellings of the name.
        ray_version: Ray's, e.g. "v5litepod".
        gcp_prefix: What GCP's accelerator types start with, e.g. "tpu7x".
        cores_per_chip: As counted in the names of Ray and GCP.
        vm_chips: Chips on the machine types that GKE offers.
        default_chips: What the bare family name stands for.
        shapes: The named topologies, by rising chip count.
        single: GKE's names for slices of one host, None where GKE doesn't offer the family.
        multi: GKE's names for slices of several hosts, likewise.
        max_cubes: Largest slice in 4x4x4 cubes; 0 for 2D families, which have only the named shapes.
    """

    name: str
    aliases: tuple[str, ...]
    ray_version: str
    gcp_prefix: str
    cores_per_chip: int
    vm_chips: tuple[int, ...]
    default_chips: int
    shapes: tuple[str, ...]
    single: GkeNode | None
    multi: GkeNode | None
    max_cubes: int = 0

    @property
    def counts_cores(self) -> bool:
        """Whether GCP's names count cores where ours count chips."""
        return self.cores_per_chip != 1

    def topology_of(self, chips: int) -> str | None:
        """The topology that a chip count stands for, None if there is none."""
        for shape in self.shapes:
            if chips_in(shape) == chips:
                return shape
        if chips % CUBE_CHIPS or not 0 < chips <= self.max_cubes * CUBE_CHIPS:
            return None
        return _most_compact(chips // CUBE_CHIPS)

    def has(self, topology: str) -> bool:
        """Whether GKE or Ray knows the topology: a named one, or whole cubes with the axes in rising order."""
        if topology in self.shapes:
            return True
        axes = [int(axis) for axis in topology.split("x")]
        return (
            len(axes) == 3
            and axes == sorted(axes)
            and axes[-1] <= LONGEST_AXIS
            and not any(axis % CUBE_EDGE for axis in axes)
            and 0 < math.prod(axes) <= self.max_cubes * CUBE_CHIPS
        )

    def hosts_for(self, topology: str) -> tuple[int, ...]:
        """How many hosts the slice may have: the default first."""
        chips = chips_in(topology)
        whole = [1] if chips in self.vm_chips else []
        quads = [chips // 4] if chips % 4 == 0 and chips != 4 else []
        return tuple(whole + quads)

    def node(self, hosts: int) -> GkeNode | None:
        return self.single if hosts == 1 else self.multi


@dataclass(frozen=True, slots=True)
class GpuModel:
    """One GPU as GKE offers it.

    Attributes:
        name: Ours, e.g. "a100-80gb".
        aliases: Other spellings, GKE's label among them.
        gke_label: Value of cloud.google.com/gke-accelerator.
        ray_type: Ray's accelerator_type.
        machines: (GPUs on one host, machine type); "" where Compute Engine has no such machine.
    """

    name: str
    aliases: tuple[str, ...]
    gke_label: str
    ray_type: str
    machines: tuple[tuple[int, str], ...]


_SQUARES = ("4x4", "4x8", "8x8", "8x16", "16x16")
_LITE = ("1x1", "2x2", "2x4", *_SQUARES)
_CUBES = ("4x4x4", "4x4x8", "4x8x8", "8x8x8", "8x8x16", "8x16x16", "16x16x16")
_SOLID = ("2x2x1", "2x2x2", "2x2x4", "2x4x4", *_CUBES)

_V3_DEVICE, _V3_SLICE = GkeNode("tpu-v3-device", "ct3-hightpu"), GkeNode("tpu-v3-slice", "ct3p-hightpu")
_V4 = GkeNode("tpu-v4-podslice", "ct4p-hightpu")
_V5E = GkeNode("tpu-v5-lite-podslice", "ct5lp-hightpu")
_V5P = GkeNode("tpu-v5p-slice", "ct5p-hightpu")
_V6E = GkeNode("tpu-v6e-slice", "ct6e-standard")
_V7X = GkeNode("tpu7x", "tpu7x-standard")

# A v3 pod ends at 1024 chips (32x32), as in Ray's table: "v3-2048" is GCP's name for it, in cores.
TPUS = (
    TpuFamily("v2", (), "v2", "v2", 2, (4,), 4, ("2x2", *_SQUARES), None, None),
    TpuFamily("v3", (), "v3", "v3", 2, (4,), 4, ("2x2", *_SQUARES, "16x32", "32x32"), _V3_DEVICE, _V3_SLICE),
    TpuFamily("v4", (), "v4", "v4", 2, (4,), 4, _SOLID, _V4, _V4, max_cubes=64),
    TpuFamily("v5e", ("v5litepod",), "v5litepod", "v5litepod", 1, (1, 4, 8), 4, _LITE, _V5E, _V5E),
    TpuFamily("v5p", (), "v5p", "v5p", 2, (4,), 8, (*_SOLID, "16x16x24"), _V5P, _V5P, max_cubes=140),
    TpuFamily("v6e", ("trillium",), "v6e", "v6e", 1, (1, 4, 8), 8, _LITE, _V6E, _V6E),
    TpuFamily(
        "v7x", ("tpu7x", "ironwood"), "v7x", "tpu7x", 2, (1, 4), 4, ("1x1x1", *_SOLID), _V7X, _V7X, max_cubes=144
    ),
)


def _n1(first: int, *counts: int) -> tuple[tuple[int, str], ...]:
    """N1 machines, to which GPUs are attached: `first` CPUs for one GPU, in proportion for more."""
    return tuple((count, f"n1-standard-{first * count}") for count in counts)


def _by_count(pattern: str, *counts: int) -> tuple[tuple[int, str], ...]:
    return tuple((count, pattern.format(count)) for count in counts)


GPUS = (
    GpuModel("t4", ("nvidia-tesla-t4",), "nvidia-tesla-t4", "T4", _n1(4, 1, 2, 4)),
    GpuModel("p4", ("nvidia-tesla-p4",), "nvidia-tesla-p4", "P4", _n1(4, 1, 2, 4)),
    GpuModel("p100", ("nvidia-tesla-p100",), "nvidia-tesla-p100", "P100", _n1(4, 1, 2, 4)),
    GpuModel("v100", ("nvidia-tesla-v100",), "nvidia-tesla-v100", "V100", _n1(8, 1, 2, 4, 8)),
    GpuModel(
        "l4",
        ("nvidia-l4",),
        "nvidia-l4",
        "L4",
        ((1, "g2-standard-4"), (2, "g2-standard-24"), (4, "g2-standard-48"), (8, "g2-standard-96")),
    ),
    GpuModel(
        "rtx-pro-6000",
        ("nvidia-rtx-pro-6000",),
        "nvidia-rtx-pro-6000",
        "RTX-PRO-6000",
        ((1, "g4-standard-48"), (2, "g4-standard-96"), (4, "g4-standard-192"), (8, "g4-standard-384")),
    ),
    GpuModel(
        "a100",
        ("a100-40gb", "nvidia-tesla-a100"),
        "nvidia-tesla-a100",
        "A100",
        (*_by_count("a2-highgpu-{}g", 1, 2, 4, 8), (16, "a2-megagpu-16g")),
    ),
    GpuModel(
        "a100-80gb",
        ("nvidia-a100-80gb",),
        "nvidia-a100-80gb",
        "A100",
        (*_by_count("a2-ultragpu-{}g", 1, 2, 4, 8), (16, "")),
    ),
    GpuModel(
        "h100",
        ("h100-80gb", "nvidia-h100-80gb"),
        "nvidia-h100-80gb",
        "H100",
        _by_count("a3-highgpu-{}g", 1, 2, 4, 8),
    ),
    GpuModel(
        "h100-mega",
        ("h100-mega-80gb", "nvidia-h100-mega-80gb"),
        "nvidia-h100-mega-80gb",
        "H100",
        ((8, "a3-megagpu-8g"),),
    ),
    GpuModel("h200", ("h200-141gb", "nvidia-h200-141gb"), "nvidia-h200-141gb", "H200", ((8, "a3-ultragpu-8g"),)),
    GpuModel("b200", ("nvidia-b200",), "nvidia-b200", "B200", ((8, "a4-highgpu-8g"),)),
    GpuModel("gb200", ("nvidia-gb200",), "nvidia-gb200", "GB200", ((4, "a4x-highgpu-4g"),)),
    GpuModel("gb300", ("nvidia-gb300",), "nvidia-gb300", "GB300", ((4, "a4x-maxgpu-4g-metal"),)),
)

# What a bare count stands for. These are keras-team/kinetic's answers, kept although more families could serve a
# count here: a script that moves over gets the hardware that it had.
TPU_OF_COUNT: tuple[tuple[str, tuple[int, ...]], ...] = (
    ("v5e", (1, 4, 64, 128, 256)),
    ("v6e", (8, 16)),
    ("v5p", (32,)),
    ("v4", (512, 1024, 2048, 4096)),
)
GPU_OF_COUNT: tuple[tuple[str, tuple[int, ...]], ...] = (("h100", (1, 2, 4, 8)), ("a100-80gb", (16,)))
DEFAULT_TPU, DEFAULT_GPU = "v5e", "l4"


def tpu_family(name: str) -> TpuFamily | None:
    """The TPU generation of that name or alias."""
    return next((family for family in TPUS if name == family.name or name in family.aliases), None)


def gpu_model(name: str) -> GpuModel | None:
    """The GPU of that name, alias or GKE label."""
    return next((model for model in GPUS if name == model.name or name in model.aliases), None)


def chips_in(topology: str) -> int:
    """Chips of a topology, e.g. 16 for "4x4"."""
    return math.prod(int(axis) for axis in topology.split("x"))


def _most_compact(cubes: int) -> str | None:
    """The shape of so many cubes whose longest axis is the shortest, as in GKE's tables; axes in rising order."""
    shapes = [tuple(CUBE_EDGE * axis for axis in axes) for axes in _factors(cubes)]
    best = min(shapes, key=lambda axes: axes[::-1])
    return "x".join(map(str, best)) if best[-1] <= LONGEST_AXIS else None


def _factors(number: int) -> Iterator[tuple[int, int, int]]:
    """All a <= b <= c with a * b * c == number."""
    for a in range(1, number + 1):
        if a**3 > number:
            return
        for b in range(a, number // a + 1):
            if a * b * b > number:
                break
            if number % (a * b) == 0:
                yield a, b, number // (a * b)

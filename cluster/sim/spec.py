"""What a plane is made of: its nodes by the pool, and what stands for the images of its pods."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field, replace
from typing import Literal, cast, get_args

#: GKE's label value and machine type of a host, up to the chip count. A second source beside the package's own table,
#: on purpose: a mistake there is then seen here.
TPUS = {
    "v4": ("tpu-v4-podslice", "ct4p-hightpu"),
    "v5e": ("tpu-v5-lite-podslice", "ct5lp-hightpu"),
    "v5p": ("tpu-v5p-slice", "ct5p-hightpu"),
    "v6e": ("tpu-v6e-slice", "ct6e-standard"),
    "v7x": ("tpu7x", "tpu7x-standard"),
}
GPUS = {
    "t4": ("nvidia-tesla-t4", {1: "n1-standard-4", 2: "n1-standard-8", 4: "n1-standard-16"}),
    "l4": ("nvidia-l4", {1: "g2-standard-4", 2: "g2-standard-24", 4: "g2-standard-48", 8: "g2-standard-96"}),
    "a100": ("nvidia-tesla-a100", {1: "a2-highgpu-1g", 2: "a2-highgpu-2g", 4: "a2-highgpu-4g", 8: "a2-highgpu-8g"}),
    "h100": ("nvidia-h100-80gb", {8: "a3-highgpu-8g"}),
}
_POOL_NAME = re.compile(r"[a-z]([a-z0-9-]{0,38}[a-z0-9])?")

Capacity = Literal["on-demand", "spot", "reserved", "flex-start"]


class ShapeError(ValueError):
    """A pool that GKE would not make either."""


@dataclass(frozen=True, slots=True)
class NodePool:
    """One GKE node pool; of TPUs with several hosts it is one slice.

    Attributes:
        name: The pool's, and the beginning of its nodes' names.
        kind: What its nodes have.
        family: "v6e", "l4"; "" for CPUs.
        topology: How the chips are wired; "" unless TPUs.
        hosts: How many nodes.
        chips: Chips or GPUs of one node; 0 for CPUs.
        capacity: How the machines are paid for, which GKE tells by labels.
        cpus: CPUs of one node, as the scheduler counts them: this machine's real ones are shared by all.
        memory: Memory of one node, likewise.
    """

    name: str
    kind: Literal["cpu", "tpu", "gpu"]
    family: str = ""
    topology: str = ""
    hosts: int = 1
    chips: int = 0
    capacity: Capacity = "on-demand"
    cpus: int = 24
    memory: str = "200Gi"

    def __post_init__(self) -> None:
        if not _POOL_NAME.fullmatch(self.name):
            raise ShapeError(f"{self.name!r} is no name of a node pool: lower case letters, digits and hyphens")
        if not 1 <= self.hosts <= 200:
            raise ShapeError(f"pool {self.name}: {self.hosts} hosts, between 1 and 200 are possible")
        if self.kind == "tpu" and math.prod(map(int, self.topology.split("x"))) % self.chips:
            raise ShapeError(f"pool {self.name}: hosts of {self.chips} chips don't make up a slice of {self.topology}")
        if self.kind == "gpu" and self.chips not in GPUS[self.family][1]:
            raise ShapeError(f"pool {self.name}: no machine has {self.chips} GPUs of type {self.family}")

    @property
    def resource(self) -> str:
        """The name that Kubernetes counts the chips by; "" for CPUs."""
        return {"tpu": "google.com/tpu", "gpu": "nvidia.com/gpu", "cpu": ""}[self.kind]

    @property
    def machine_type(self) -> str:
        if self.kind == "tpu":
            return f"{TPUS[self.family][1]}-{self.chips}t"
        return GPUS[self.family][1][self.chips] if self.kind == "gpu" else "e2-standard-16"

    def node_names(self) -> tuple[str, ...]:
        return tuple(f"{self.name}-{index}" for index in range(self.hosts))


def parse_slice(text: str, name: str = "") -> NodePool:
    """The pool that `FAMILY:TOPOLOGY[:CHIPS_PER_HOST[:CAPACITY]]` stands for, e.g. "v6e:4x4:4" with its four hosts.

    Raises:
        ShapeError: No such slice.
    """
    family, topology, *rest = text.split(":")[:4] if ":" in text else (text, "")
    if family not in TPUS or not re.fullmatch(r"[1-9][0-9]{0,2}(x[1-9][0-9]{0,2}){1,2}", topology):
        raise ShapeError(f"{text!r} is no slice: expected FAMILY:TOPOLOGY:CHIPS_PER_HOST such as v6e:4x4:4")
    total = math.prod(map(int, topology.split("x")))
    chips = _count(text, rest[0]) if rest else min(total, 4)
    capacity = _capacity(text, rest[1] if len(rest) > 1 else "on-demand")
    if total % chips:
        raise ShapeError(f"{text!r}: hosts of {chips} chips don't make up {total}")
    return NodePool(name or f"{family}-{topology}", "tpu", family, topology, total // chips, chips, capacity)


def parse_gpus(text: str, name: str = "") -> NodePool:
    """The pool that `MODEL:GPUS_PER_HOST:HOSTS[:CAPACITY]` stands for, e.g. "l4:1:2".

    Raises:
        ShapeError: No such pool.
    """
    model, *rest = text.split(":")
    if model not in GPUS or not 2 <= len(rest) <= 3:
        raise ShapeError(f"{text!r} is no GPU pool: expected MODEL:GPUS_PER_HOST:HOSTS such as l4:1:2")
    chips, hosts = _count(text, rest[0]), _count(text, rest[1])
    capacity = _capacity(text, rest[2] if len(rest) > 2 else "on-demand")
    return NodePool(name or f"{model}-{chips}", "gpu", model, "", hosts, chips, capacity)


def named_apart(pools: tuple[NodePool, ...]) -> tuple[NodePool, ...]:
    """The pools under names of their own: the second v6e-4x4 becomes v6e-4x4-b."""
    seen: dict[str, int] = {}
    found = []
    for pool in pools:
        seen[pool.name] = seen.get(pool.name, 0) + 1
        ending = "" if seen[pool.name] == 1 else f"-{chr(ord('a') + seen[pool.name] - 1)}"
        found.append(replace(pool, name=pool.name + ending))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Image:
    """What runs where a pod's image matches a pattern.

    Attributes:
        pattern: A shell pattern such as "rayproject/ray:*".
        path: Folder that comes first in PATH: the `bin` of a virtual environment. "" makes a pod in name only:
            Kubernetes sees it run, and nothing does.
        env: Further variables.
    """

    pattern: str
    path: str = ""
    env: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class PlaneSpec:
    """One plane.

    Attributes:
        pools: Its nodes; one of CPUs is added.
        images: What its pods run; the first pattern that matches counts.
        port: Of the API server on 127.0.0.1; 0 takes a free one.
        kuberay: Whether the KubeRay operator runs.
        operator_flags: Further arguments of the operator.
        probe_scale: Factor for delays and periods of probes: pods in name only and two cores need other ones.
        memory_limits: Whether containers beyond their memory limit are killed.
        tpu_webhook: Whether pods get what GKE's TPU webhook gives them.
        cpu_pool: Nodes without chips, for heads.
    """

    pools: tuple[NodePool, ...] = ()
    images: tuple[Image, ...] = (Image("rayproject/ray:fake*"),)
    port: int = 0
    kuberay: bool = True
    operator_flags: tuple[str, ...] = ()
    probe_scale: float = 0.2
    memory_limits: bool = False
    tpu_webhook: bool = False
    cpu_pool: NodePool = field(default=NodePool("default-pool", "cpu", cpus=16, memory="64Gi"))


def _count(text: str, word: str) -> int:
    if not re.fullmatch(r"[1-9][0-9]{0,3}", word):
        raise ShapeError(f"{text!r}: {word!r} is no count")
    return int(word)


def _capacity(text: str, word: str) -> Capacity:
    for known in get_args(Capacity):
        if word == known:
            return cast(Capacity, known)
    raise ShapeError(f"{text!r}: {word!r} is none of {', '.join(get_args(Capacity))}")

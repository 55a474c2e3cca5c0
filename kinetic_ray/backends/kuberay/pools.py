"""A pool: hosts of one kind that a cluster may have, in whole slices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from types import MappingProxyType
from typing import Any, Literal, cast, get_args

from kinetic_ray.backends.kuberay.names import (
    POOL_LIMIT,
    check_count,
    check_label,
    check_name,
    check_quantity,
    check_subdomain,
)
from kinetic_ray.core.accelerators import Accelerator, parse_accelerator
from kinetic_ray.errors import ConfigError, UsageError

Capacity = Literal["on-demand", "spot", "reserved", "flex-start"]
CAPACITIES: tuple[str, ...] = get_args(Capacity)

_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_MOST_SLICES = 1000
#: Labels that a pool's other fields set: a selector that contradicted them would keep the pool empty for ever.
_OWN_LABELS = (
    "cloud.google.com/gke-accelerator",
    "cloud.google.com/gke-flex-start",
    "cloud.google.com/gke-spot",
    "cloud.google.com/gke-tpu-accelerator",
    "cloud.google.com/gke-tpu-topology",
    "cloud.google.com/reservation-name",
)
_NONE: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Toleration:
    """A taint that pods of a pool put up with.

    Attributes:
        key: The taint's.
        value: Its value; "" = any.
        effect: Of Kubernetes; "" = all.
    """

    key: str
    value: str = ""
    effect: str = ""

    def __post_init__(self) -> None:
        check_label(self.key, self.value, "tolerations")
        if self.effect and self.effect not in _EFFECTS:
            raise ConfigError(f"tolerations: effect={self.effect!r}: expected one of {', '.join(_EFFECTS)}")


@dataclass(frozen=True, slots=True)
class Pool:
    """Hosts of one kind: a worker group, whose replicas are whole slices.

    Attributes:
        name: Of the worker group.
        accelerator: What one replica is: a TPU slice, a gang of GPU hosts, or CPU hosts.
        min_slices: Replicas that are always there.
        max_slices: Most replicas.
        capacity: How the machines are paid for.
        reservation: Name of the reservation, where capacity is "reserved".
        cpus: CPUs that a host's pod asks for.
        memory: Its memory, e.g. "16Gi".
        ephemeral_storage: Its disk for unpacked code, environments and what Ray spills.
        secrets: Secrets of Kubernetes that its hosts have as files.
        fuse: Whether its hosts see buckets as folders (GCS FUSE).
        node_selector: Further labels that its nodes must have.
        tolerations: Further taints that its pods put up with.

    Raises:
        ConfigError: A field can't work.
    """

    name: str
    accelerator: Accelerator
    min_slices: int = 0
    max_slices: int = 1
    capacity: Capacity = "on-demand"
    reservation: str = ""
    cpus: int = 1
    memory: str = "4Gi"
    ephemeral_storage: str = "10Gi"
    secrets: tuple[str, ...] = ()
    fuse: bool = False
    node_selector: Mapping[str, str] = field(default_factory=lambda: _NONE)
    tolerations: tuple[Toleration, ...] = ()

    def __post_init__(self) -> None:
        check_name(self.name, "pool", POOL_LIMIT)
        where = f"pool {self.name}: "
        check_count(self.max_slices, f"{where}max_slices", 1, _MOST_SLICES)
        check_count(self.min_slices, f"{where}min_slices", 0, self.max_slices)
        check_count(self.cpus, f"{where}cpus", 1, 1000)
        check_quantity(self.memory, f"{where}memory")
        check_quantity(self.ephemeral_storage, f"{where}ephemeral_storage")
        self._check_accelerator(where)
        self._check_capacity(where)
        for secret in self.secrets:
            check_subdomain(secret, f"{where}secrets")
        for key, value in self.node_selector.items():
            check_label(key, value, f"{where}node_selector")
            if key in _OWN_LABELS:
                raise ConfigError(f"{where}node_selector[{key!r}]: follows from accelerator and capacity; leave it out")

    def _check_accelerator(self, where: str) -> None:
        found = self.accelerator
        if found.kind != "cpu" and not found.gke_label:
            raise ConfigError(f"{where}accelerator={found.name!r}: GKE offers no nodes of it")
        if found.kind == "cpu" and found.cpus > self.cpus:
            raise ConfigError(f"{where}cpus={self.cpus}: {found.name} has {found.cpus} CPUs a host")

    def _check_capacity(self, where: str) -> None:
        if self.capacity not in CAPACITIES:
            raise ConfigError(f"{where}capacity={self.capacity!r}: {_near(str(self.capacity), CAPACITIES)}")
        if (self.capacity == "reserved") != bool(self.reservation):
            raise ConfigError(f"{where}capacity='reserved' and reservation='NAME' go together: give both, or neither")
        if self.reservation:
            check_label("cloud.google.com/reservation-name", self.reservation, f"{where}reservation")

    @property
    def hosts(self) -> int:
        """Pods of one replica."""
        return self.accelerator.hosts

    @property
    def is_slice(self) -> bool:
        """Whether a replica is a TPU slice of several hosts, which only one node pool can hold."""
        return self.accelerator.kind == "tpu" and self.hosts > 1


_FIELDS = tuple(name for name in Pool.__dataclass_fields__ if name != "accelerator")


def parse_pool(given: Mapping[str, Any]) -> Pool:
    """A pool from what a file or flags say.

    Args:
        given: The fields of :class:`Pool`; `accelerator` is a name, with `hosts` and `chips_per_host` beside it where
            they don't follow from it; `tolerations` are mappings. ":spot" at the end of the name is capacity="spot".

    Raises:
        ConfigError: An unknown field, with the nearest one, or a value that can't work.

    Example:
        >>> parse_pool({"name": "big", "accelerator": "tpu-v6e-16", "max_slices": 2}).hosts
        4
    """
    known = (*_FIELDS, "accelerator", "hosts", "chips_per_host")
    for key in given:
        if key not in known:
            raise ConfigError(f"pool: unknown field {key!r}; {_near(str(key), known)}")
    for key in ("name", "accelerator"):
        if key not in given:
            raise ConfigError(f"pool: {key} is missing")
    values = {key: value for key, value in given.items() if key in _FIELDS}
    accelerator = _accelerator(given)
    if accelerator.spot and values.setdefault("capacity", "spot") != "spot":
        raise ConfigError(f"pool: capacity={values['capacity']!r} contradicts ':spot' behind the accelerator: give one")
    return Pool(accelerator=accelerator, **{key: _typed(key, value) for key, value in values.items()})


def _accelerator(given: Mapping[str, Any]) -> Accelerator:
    try:
        return parse_accelerator(
            given["accelerator"], chips_per_host=given.get("chips_per_host"), hosts=given.get("hosts")
        )
    except UsageError as error:
        raise ConfigError(f"pool: {error}") from None


def _typed(key: str, value: Any) -> Any:
    if key == "secrets":
        return _texts(value, "secrets")
    if key == "tolerations":
        if not isinstance(value, list | tuple):
            raise ConfigError(f"pool: tolerations={value!r}: expected a list such as [{{'key': 'team'}}]")
        return tuple(_toleration(item) for item in value)
    if key == "node_selector":
        if not isinstance(value, Mapping):
            raise ConfigError(f"pool: node_selector={value!r}: expected a mapping of labels")
        return MappingProxyType(dict(value))
    if key == "fuse" and not isinstance(value, bool):
        raise ConfigError(f"pool: fuse={value!r}: expected true or false")
    return value


def _toleration(item: Any) -> Toleration:
    if isinstance(item, Toleration):
        return item
    if not isinstance(item, Mapping) or "key" not in item or not set(item) <= {"key", "value", "effect"}:
        raise ConfigError(f"pool: tolerations: {item!r}: expected a mapping with 'key', and 'value' and 'effect'")
    return Toleration(**cast(Mapping[str, str], item))


def _texts(value: Any, what: str) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, list | tuple):
        raise ConfigError(f"pool: {what}={value!r}: expected a list of names")
    return tuple(value)


def _near(word: str, known: tuple[str, ...]) -> str:
    near = get_close_matches(word, known, n=1)
    return f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(known)}"

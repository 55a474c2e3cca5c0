"""Accelerators by name: what a spelling stands for, and the shapes there are."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import Literal

from kinetic_ray.core import accelerator_table as table
from kinetic_ray.core.accelerator_table import GpuModel, TpuFamily
from kinetic_ray.errors import UsageError

_NUMBER = r"[0-9]{1,6}"
_CPU_RE = re.compile(rf"cpu(?:[:-]({_NUMBER}))?")
_GPU_RE = re.compile(rf"(.+?)[x-]({_NUMBER})")
_TPU_RE = re.compile(rf"([a-z0-9]+)(?:-(?:({_NUMBER})|([0-9]{{1,4}}(?:x[0-9]{{1,4}}){{1,2}})))?")
_SPOT = ":spot"


@dataclass(frozen=True, slots=True)
class Accelerator:
    """What one replica needs, resolved: a TPU slice, a gang of GPU hosts, or a gang of CPU hosts.

    Attributes:
        name: The canonical spelling: "tpu-v6e-16", "gpu-l4x4", "cpu". With `hosts` and `chips_per_host` it says all.
        kind: "tpu", "gpu" or "cpu".
        family: "v6e", "l4", "cpu".
        chips: TPU chips of the slice, or GPUs of the gang; 0 for CPUs. Always hosts x chips_per_host.
        topology: How the chips are wired, e.g. "4x4"; "" unless a TPU.
        hosts: TPU VMs of the slice, or hosts of the gang: one rank runs on each.
        chips_per_host: Chips or GPUs of one host.
        cpus: CPUs of one host; 0 unless kind is "cpu".
        pod_type: Ray's name of the slice, e.g. "v6e-16", "v4-16" (cores); "" unless a TPU.
        ray_version: Ray's name of the generation, e.g. "v5litepod"; "" unless a TPU.
        ray_type: Ray's accelerator_type, e.g. "TPU-V6E", "L4"; "" for CPUs.
        gke_label: Value of GKE's node label for the accelerator; "" where GKE doesn't offer it.
        machine_type: Compute Engine's machine type of a host, likewise.
        gcp_name: GCP's name of the slice where that counts cores, e.g. "v4-16" for 8 chips; else "".
        spot: Whether the spelling asked for spot capacity (":spot"); no part of the accelerator's identity.
    """

    name: str
    kind: Literal["tpu", "gpu", "cpu"]
    family: str
    chips: int
    topology: str
    hosts: int
    chips_per_host: int
    cpus: int = 0
    pod_type: str = ""
    ray_version: str = ""
    ray_type: str = ""
    gke_label: str = ""
    machine_type: str = ""
    gcp_name: str = ""
    spot: bool = field(default=False, compare=False)

    @property
    def gke_labels(self) -> dict[str, str]:
        """The labels by which GKE's scheduler finds a node of this accelerator; {} for CPUs."""
        if not self.gke_label:
            return {}
        if self.kind == "gpu":
            return {"cloud.google.com/gke-accelerator": self.gke_label}
        return {
            "cloud.google.com/gke-tpu-accelerator": self.gke_label,
            "cloud.google.com/gke-tpu-topology": self.topology,
        }

    def describe(self) -> str:
        """One line for people; prints GCP's name too wherever that counts cores.

        Example:
            >>> parse_accelerator("tpu-v4-8").describe()
            "tpu-v4-8: 8 chips (2x2x2), 2 hosts x 4 chips, ct4p-hightpu-4t; GCP's name counts cores: v4-16"
        """
        gang = _count(self.hosts, "host")
        machine = f", {self.machine_type}" if self.machine_type else ""
        if self.kind == "cpu":
            return f"{self.name}: {gang} x {_count(self.cpus, 'CPU')}"
        if self.kind == "gpu":
            return f"{self.name}: {gang} x {_count(self.chips_per_host, f'{self.ray_type} GPU')}{machine}"
        cores = f"; GCP's name counts cores: {self.gcp_name}" if self.gcp_name else ""
        size = f"{_count(self.chips, 'chip')} ({self.topology}), {gang} x {_count(self.chips_per_host, 'chip')}"
        return f"{self.name}: {size}{machine}{cores}"


def parse_accelerator(
    text: str, spot: bool = False, *, chips_per_host: int | None = None, hosts: int | None = None
) -> Accelerator:
    """Resolves a spelling of an accelerator.

    Args:
        text: "tpu-v6e-16", "tpu-v5p-2x2x4", "gpu-l4x4", "cpu", "cpu:8" and keras-team/kinetic's other spellings:
            the prefix left out or with a colon, a bare family or count, GKE's labels, ":spot" at the end. Upper
            and lower case are the same. A TPU's number counts chips, never cores.
        spot: As ":spot" at the end.
        chips_per_host: For v6e and v5e slices of 8 chips, 4 takes two 4-chip machines instead of one with 8.
        hosts: Hosts of a cpu or GPU gang (1). A TPU's hosts follow from its name.

    Raises:
        UsageError: Unknown, or `chips_per_host` or `hosts` contradict it.

    Example:
        >>> parse_accelerator("v6e-16").hosts
        4
    """
    if not isinstance(text, str):
        raise UsageError(f"accelerator={text!r}: expected a name such as 'tpu-v6e-16', 'gpu-l4x4' or 'cpu'")
    _check_count("chips_per_host", chips_per_host)
    _check_count("hosts", hosts)
    lowered = text.strip().lower()
    spelling = lowered.removesuffix(_SPOT)
    found = _with_hosts(_resolve(text, spelling), chips_per_host, hosts)
    return replace(found, spot=spot or spelling != lowered)


def all_accelerators() -> tuple[Accelerator, ...]:
    """One row for every named shape: TPUs by generation and size, then GPUs, then "cpu".

    Further v4, v5p and v7x slices, made of whole 4x4x4 cubes, parse by chip count or topology.
    """
    tpus = [_tpu(family, shape) for family in table.TPUS for shape in family.shapes]
    gpus = [_gpu(model, count, machine) for model in table.GPUS for count, machine in model.machines]
    return (*tpus, *gpus, _cpu(1))


# From a spelling to a row.


def _resolve(text: str, spelling: str) -> Accelerator:
    if match := _CPU_RE.fullmatch(spelling):
        return _cpu_of(text, int(match[1] or 1))
    kind, rest = _split_kind(spelling)
    if re.fullmatch(_NUMBER, rest):
        return _by_count(text, kind, int(rest))
    if kind != "tpu" and (gpu := _find_gpu(rest or table.DEFAULT_GPU)):
        return _gpu_of(text, *gpu)
    if kind != "gpu" and (tpu := _find_tpu(rest or table.DEFAULT_TPU)):
        return _tpu_of(text, *tpu)
    raise _unknown(text, rest)


def _split_kind(spelling: str) -> tuple[str, str]:
    """("gpu" or "tpu" where the spelling says so, else "") and what follows."""
    for kind in ("gpu", "tpu"):
        if spelling == kind:
            return kind, ""
        if spelling.startswith((f"{kind}:", f"{kind}-")):
            return kind, spelling[len(kind) + 1 :] or "?"
    return "", spelling or "?"


def _find_gpu(rest: str) -> tuple[GpuModel, int] | None:
    if model := table.gpu_model(rest):
        return model, 1
    match = _GPU_RE.fullmatch(rest)
    model = table.gpu_model(match[1]) if match else None
    return (model, int(match[2])) if match and model else None


def _find_tpu(rest: str) -> tuple[TpuFamily, int | None, str] | None:
    """The family with a chip count (None if not given) or a topology ("" if not given)."""
    match = _TPU_RE.fullmatch(rest)
    family = table.tpu_family(match[1]) if match else None
    if match is None or family is None:
        return None
    topology = "x".join(str(int(axis)) for axis in match[3].split("x")) if match[3] else ""
    return family, int(match[2]) if match[2] else None, topology


def _cpu_of(text: str, cpus: int) -> Accelerator:
    if cpus == 0:
        raise _refusal(text, "a host needs a CPU", ["cpu", "cpu:4"])
    return _cpu(cpus)


def _gpu_of(text: str, model: GpuModel, count: int) -> Accelerator:
    machines = dict(model.machines)
    if count not in machines:
        near = [_gpu(model, other, "").name for other in _nearest(count, machines)]
        raise _refusal(text, f"a host has {_either(machines)} GPUs of type {model.name}, not {count}", near)
    return _gpu(model, count, machines[count])


def _tpu_of(text: str, family: TpuFamily, chips: int | None, topology: str) -> Accelerator:
    if topology:
        if not family.has(topology):
            raise _bad_topology(text, family, topology)
        return _tpu(family, topology)
    chips = family.default_chips if chips is None else chips
    shape = family.topology_of(chips)
    if shape is None:
        raise _bad_size(text, family, chips)
    return _tpu(family, shape)


def _by_count(text: str, kind: str, count: int) -> Accelerator:
    for name, counts in table.GPU_OF_COUNT if kind != "tpu" else ():
        if count in counts and (gpu := _find_gpu(f"{name}x{count}")):
            return _gpu_of(text, *gpu)
    for name, counts in table.TPU_OF_COUNT if kind != "gpu" else ():
        if count in counts and (tpu := _find_tpu(f"{name}-{count}")):
            return _tpu_of(text, *tpu)
    raise _bad_count(text, kind, count)


# Rows.


def _cpu(cpus: int) -> Accelerator:
    return Accelerator("cpu" if cpus == 1 else f"cpu-{cpus}", "cpu", "cpu", 0, "", 1, 0, cpus=cpus)


def _gpu(model: GpuModel, count: int, machine: str) -> Accelerator:
    return Accelerator(
        name=f"gpu-{model.name}" + (f"x{count}" if count > 1 else ""),
        kind="gpu",
        family=model.name,
        chips=count,
        topology="",
        hosts=1,
        chips_per_host=count,
        ray_type=model.ray_type,
        gke_label=model.gke_label,
        machine_type=machine,
    )


def _tpu(family: TpuFamily, topology: str, hosts: int | None = None) -> Accelerator:
    chips = table.chips_in(topology)
    hosts = family.hosts_for(topology)[0] if hosts is None else hosts
    node, cores = family.node(hosts), chips * family.cores_per_chip
    size = str(chips) if family.topology_of(chips) == topology else topology
    return Accelerator(
        name=f"tpu-{family.name}-{size}",
        kind="tpu",
        family=family.name,
        chips=chips,
        topology=topology,
        hosts=hosts,
        chips_per_host=chips // hosts,
        pod_type=f"{family.ray_version}-{cores}",
        ray_version=family.ray_version,
        ray_type=f"TPU-{family.ray_version.upper()}",
        gke_label=node.label if node else "",
        machine_type=f"{node.machine}-{chips // hosts}t" if node else "",
        gcp_name=f"{family.gcp_prefix}-{cores}" if family.counts_cores else "",
    )


def _with_hosts(found: Accelerator, chips_per_host: int | None, hosts: int | None) -> Accelerator:
    """Applies the two arguments, or says which of them contradicts the name."""
    if found.kind == "tpu":
        return _tpu_with_hosts(found, chips_per_host, hosts)
    if chips_per_host not in (None, found.chips_per_host):
        has = f"{found.chips_per_host} GPUs" if found.kind == "gpu" else "no chips"
        raise _contradiction(f"{chips_per_host=}", found, f"a host of it has {has}")
    hosts = hosts or 1
    return replace(found, hosts=hosts, chips=hosts * found.chips_per_host)


def _tpu_with_hosts(found: Accelerator, chips_per_host: int | None, hosts: int | None) -> Accelerator:
    family = next(family for family in table.TPUS if family.name == found.family)
    choices = family.hosts_for(found.topology)
    fact = "it is " + " or ".join(f"{_count(n, 'host')} x {_count(found.chips // n, 'chip')}" for n in choices)
    fitting = [n for n in choices if chips_per_host in (None, found.chips // n)]
    if not fitting:
        raise _contradiction(f"{chips_per_host=}", found, fact)
    if hosts is not None and hosts not in fitting:
        raise _contradiction(f"{hosts=}" + (f", {chips_per_host=}" if hosts in choices else ""), found, fact)
    return _tpu(family, found.topology, fitting[0] if hosts is None else hosts)


# Refusals.


def _check_count(argument: str, value: object) -> None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
        raise UsageError(f"{argument}={value!r}: expected a whole number from 1")


def _refusal(text: str, why: str, near: Iterable[str]) -> UsageError:
    shown = text if len(text) <= 60 else text[:57] + "..."
    names = [repr(name) for name in near]
    hint = f"Did you mean {_either(names)}?" if names else "Write for example 'tpu-v6e-8', 'gpu-l4x4' or 'cpu'"
    return UsageError(f"accelerator={shown!r}: {why}. {hint}")


def _contradiction(given: str, found: Accelerator, fact: str) -> UsageError:
    return UsageError(f"{given} contradicts accelerator={found.name!r}: {fact}. Leave it out, or choose one that fits")


def _unknown(text: str, rest: str) -> UsageError:
    names = {row.name.removeprefix("tpu-").removeprefix("gpu-"): row.name for row in all_accelerators()}
    near = [names[match] for match in get_close_matches(rest[:40], names, n=3, cutoff=0.5)]
    tpus = ", ".join(family.name for family in table.TPUS)
    gpus = ", ".join(model.name for model in table.GPUS)
    return _refusal(text, f"no accelerator is called that (TPUs: {tpus}; GPUs: {gpus}; or cpu)", near)


def _bad_count(text: str, kind: str, count: int) -> UsageError:
    of_kind = (table.GPU_OF_COUNT if kind != "tpu" else ()) + (table.TPU_OF_COUNT if kind != "gpu" else ())
    known = sorted({number for _, counts in of_kind for number in counts})
    near = [f"{kind}:{other}" if kind else str(other) for other in _nearest(count, known)]
    return _refusal(text, f"a number alone stands for hardware if it is {_either(known)}", near)


def _bad_size(text: str, family: TpuFamily, chips: int) -> UsageError:
    sizes = [table.chips_in(shape) for shape in family.shapes]
    cubes = f", and most multiples of 64 up to {family.max_cubes * table.CUBE_CHIPS}" if family.max_cubes else ""
    why = f"{family.name} has slices of {_either(sizes)} chips{cubes}, not {chips}"
    near = [f"tpu-{family.name}-{size}" for size in _nearest(chips, sizes)]
    half = family.topology_of(chips // 2) if family.counts_cores and chips % 2 == 0 else None
    if half:
        near = [_tpu(family, half).name]
        why += f" ({family.gcp_prefix}-{chips} is GCP's name, which counts cores)"
    return _refusal(text, why, near)


def _bad_topology(text: str, family: TpuFamily, topology: str) -> UsageError:
    turned = "x".join(sorted(topology.split("x"), key=int))
    near = [turned] if family.has(turned) else get_close_matches(topology, family.shapes, n=3, cutoff=0)
    cubes = ", and cubes of 4 chips a side with the axes in rising order" if family.max_cubes else ""
    why = f"{family.name} has the topologies {_either(family.shapes)}{cubes}, not {topology}"
    return _refusal(text, why, [f"tpu-{family.name}-{shape}" for shape in near])


def _nearest(wanted: int, known: Iterable[int]) -> list[int]:
    """The next smaller and the next larger number, where there are such."""
    below = [number for number in known if number < wanted]
    above = [number for number in known if number > wanted]
    return [*sorted(below)[-1:], *sorted(above)[:1]]


def _either(choices: Iterable[object]) -> str:
    words = [str(choice) for choice in choices]
    return " or ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else words[0]


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("s" if number != 1 else "")

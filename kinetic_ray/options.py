"""The options of a function: one table that checks and types every value when it is given."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, TypedDict

from kinetic_ray.core.accelerators import Accelerator, parse_accelerator
from kinetic_ray.core.env_vars import capture, check_env_name, check_env_value
from kinetic_ray.core.later_options import LATER, not_yet, refuse_later
from kinetic_ray.core.option_values import (
    check_choice,
    check_count,
    check_duration,
    check_flag,
    check_priority,
    check_tags,
    check_text,
    check_texts,
)
from kinetic_ray.core.quantities import parse_size
from kinetic_ray.core.secrets import check_secrets
from kinetic_ray.core.urls import has_password, shown_url
from kinetic_ray.errors import UsageError


class OptionKwargs(TypedDict, total=False):
    """What decorators and `.options` take, for type checkers."""

    accelerator: str
    num_slices: int
    hosts: int | None
    chips_per_host: int | None
    gather: str
    runtime: str
    timeout: float | str | None
    capacity_timeout: float | str | None
    resources: Mapping[str, float | str] | None
    env_vars: Mapping[str, str] | None
    capture_env_vars: Iterable[str] | None
    secrets: Iterable[str] | None
    output_dir: str | os.PathLike[str] | None
    name: str
    tags: Iterable[str]
    priority: int
    image: str | None
    container_image: str | None
    local_ignore_image: bool
    backend: str | None
    profile: str | None
    project: str | None
    zone: str | None
    cluster: str | None
    namespace: str | None
    capacity: str
    spot: bool
    base_image_repo: str | None


@dataclass(frozen=True, slots=True)
class Options:
    """Checked and typed options.

    Attributes:
        accelerator: Resolved, with its hosts.
        num_slices: Slices in the gang.
        chips_per_host: As given, for the spec.
        gather: "leader": the call's value is rank 0's; "all": the list of all ranks'.
        runtime: "auto", "jax" or "plain".
        timeout: Running seconds over all attempts; None = no deadline.
        capacity_timeout: Seconds that the job may queue; None = no bound.
        cpus: CPUs per host; None = the accelerator's.
        memory: Bytes per host; None = not reserved.
        env_vars: The job's variables.
        capture_env_vars: Names or `PREFIX_*` whose values are read at the call.
        secrets: Secrets of the hosts whose variables are set, as NAME or NAME:VARIABLE.
        output_dir: Where outputs go; None = the job's own place.
        name: For people.
        tags: Searchable.
        priority: Higher goes first among those that wait for the same kind of hosts.
        image: A container image.
        local_ignore_image: Run on this machine although an image is given.
        backend: Where to run; None = the environment's.
        profile: A named target; None = the environment's.
        of_clusters: What was given that only means something on a cluster: project, zone, capacity, ...
    """

    accelerator: Accelerator
    num_slices: int = 1
    chips_per_host: int | None = None
    gather: str = "leader"
    runtime: str = "auto"
    timeout: float | None = None
    capacity_timeout: float | None = None
    cpus: float | None = None
    memory: int | None = None
    env_vars: Mapping[str, str] = field(default_factory=dict, repr=False)
    capture_env_vars: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()
    output_dir: str | None = None
    name: str = ""
    tags: tuple[str, ...] = ()
    priority: int = 0
    image: str | None = None
    local_ignore_image: bool = False
    backend: str | None = None
    profile: str | None = None
    of_clusters: Mapping[str, Any] = field(default_factory=dict)

    @property
    def cpus_per_host(self) -> float:
        """CPUs of each host of a cpu gang."""
        return self.cpus or float(self.accelerator.cpus) or 1.0

    def variables(self, environ: Mapping[str, str]) -> dict[str, str]:
        """The call's variables: those that it captures of this environment, then its own."""
        return {**capture(self.capture_env_vars, environ), **self.env_vars}

    def where(self) -> dict[str, Any]:
        """What `config.resolve` takes of them."""
        named = {name: self.of_clusters.get(name) for name in ("project", "zone", "cluster", "namespace")}
        return {"backend": self.backend, "profile": self.profile, **named}

    def chosen_runtime(self) -> str:
        """The runtime, where "auto" is jax for a TPU where jax can be imported, else plain."""
        if self.runtime != "auto":
            return self.runtime
        return "jax" if self.accelerator.kind == "tpu" and can_import("jax") else "plain"


def can_import(module: str) -> bool:
    """Whether a module is installed, found without importing it."""
    return importlib.util.find_spec(module) is not None


def check_options(given: Mapping[str, Any]) -> Options:
    """Types and checks options.

    Args:
        given: By name; `accelerator` among them. None stands for "not given" everywhere.

    Raises:
        UsageError: An unknown name (with the nearest known one), a value that can't be right, or an option that
            this version does not have yet.

    Example:
        >>> check_options({"accelerator": "tpu-v6e-16", "timeout": "12h"}).timeout
        43200.0
    """
    for name, value in given.items():
        _refuse_unknown(name)
        refuse_later(name, value)
    values = {name: value for name, value in given.items() if name in OPTIONS and value is not None}
    accelerator = parse_accelerator(
        values.pop("accelerator", "cpu"), chips_per_host=values.get("chips_per_host"), hosts=values.pop("hosts", None)
    )
    values |= _capacity_of(values, by_name=accelerator.spot)
    typed: dict[str, Any] = {}
    for name, value in values.items():
        typed |= OPTIONS[name](name, value)
    typed["of_clusters"] = _of_clusters(values)
    _check_resources(accelerator, typed)
    return Options(accelerator, **typed)


def _capacity_of(values: Mapping[str, Any], *, by_name: bool) -> dict[str, Any]:
    """What `capacity` and keras-team/kinetic's words for one of its values say together."""
    wants_spot = by_name or values.get("spot") is True
    capacity = values.get("capacity")
    if wants_spot and capacity not in (None, "spot"):
        word = "':spot' behind the accelerator" if by_name else "spot=True"
        raise UsageError(f"capacity={capacity!r} contradicts {word}: give one")
    return {"spot": True} if wants_spot else {}


def _of_clusters(values: Mapping[str, Any]) -> dict[str, Any]:
    words = {name: values[name] for name in OF_CLUSTERS if values.get(name)}
    if words.get("capacity") == ANY_CAPACITY:
        del words["capacity"]
    return words | ({"backend": values["backend"]} if values.get("backend") in UPSTREAM_BACKENDS else {})


def copy_given(given: Mapping[str, Any]) -> dict[str, Any]:
    """A copy that later changes of the caller's containers don't reach: options hold from their decoration on."""
    return {name: _copy(value) for name, value in given.items()}


def _copy(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    return value if isinstance(value, str | bytes) or not isinstance(value, Iterable) else tuple(value)


# Checkers: (name, value) -> the fields of Options that it sets.


def _runtime(name: str, value: Any) -> dict[str, Any]:
    if value in ("torch", "tensorflow", "mpi"):
        raise not_yet(name, value)
    return check_choice("auto", "jax", "plain")(name, value)


def _resources(name: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise UsageError(f"{name}={value!r}: expected a mapping such as {{'cpu': 2, 'memory': '8GiB'}}")
    fields: dict[str, Any] = {}
    for key, amount in value.items():
        if key == "cpu":
            if isinstance(amount, bool) or not isinstance(amount, int | float) or not 0 < amount < float("inf"):
                raise UsageError(f"{name}['cpu']={amount!r}: expected a positive number of CPUs per host")
            fields["cpus"] = float(amount)
        elif key == "memory":
            fields["memory"] = parse_size(amount, f"{name}['memory']")
        else:
            raise UsageError(f"{name}[{key!r}]: expected the keys 'cpu' and 'memory'")
    return fields


def _check_resources(accelerator: Accelerator, typed: Mapping[str, Any]) -> None:
    given = {key: typed[key] for key in ("cpus", "memory") if key in typed}
    if given and accelerator.kind != "cpu":
        raise UsageError(f"resources=: only for cpu gangs in this version; {accelerator.name} has its hosts to itself")
    if accelerator.cpus > 1 and given.get("cpus", accelerator.cpus) != accelerator.cpus:
        raise UsageError(f"resources['cpu']={given['cpus']:g} contradicts accelerator={accelerator.name!r}: give one")


def _env_vars(name: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise UsageError(f"{name}={type(value).__name__}: expected a mapping of names to text")
    for key, text in value.items():
        check_env_name(name, key)
        check_env_value(name, key, text)
    return {name: dict(value)}


def _capture(name: str, value: Any) -> dict[str, Any]:
    if isinstance(value, Mapping):
        raise UsageError(f"{name}: expected a list of names; a mapping with values goes to env_vars=")
    patterns = check_texts(name, value)
    for pattern in patterns:
        check_env_name(name, pattern.removesuffix("*") or "*")
        if "*" in pattern[:-1]:
            raise UsageError(f"{name}={pattern!r}: expected a name, or a prefix with '*' at its end such as 'WANDB_*'")
    return {name: patterns}


def _output_dir(name: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, str | os.PathLike) or not os.fspath(value) or isinstance(os.fspath(value), bytes):
        raise UsageError(f"{name}={value!r}: expected a folder's path or a URL")
    if has_password(place := os.fspath(value)):
        raise UsageError(
            f"{name}={shown_url(place)!r}: a URL with a password in it is refused, for records would tell it. "
            "Leave it out; give hosts what they need to log in by secrets="
        )
    return {name: place}


def _image(name: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, str) or not value:
        raise UsageError(f"{name}={value!r}: expected an image's name")
    return {} if value in UPSTREAM_IMAGES else {"image": value}


def _backend(name: str, value: Any) -> dict[str, Any]:
    return {} if value in UPSTREAM_BACKENDS else check_text(name, value)


def _checked(check: Callable[[str, Any], dict[str, Any]]) -> Callable[[str, Any], dict[str, Any]]:
    """The same check of what is no field of its own: it goes to `of_clusters`."""

    def only_check(name: str, value: Any) -> dict[str, Any]:
        check(name, value)
        return {}

    return only_check


def _read_by_accelerator(_name: str, _value: Any) -> dict[str, Any]:
    return {}


#: Every option of this version, with its checker.
OPTIONS: Mapping[str, Callable[[str, Any], dict[str, Any]]] = {
    "accelerator": _read_by_accelerator,
    "hosts": _read_by_accelerator,
    "chips_per_host": check_count,
    "num_slices": check_count,
    "gather": check_choice("leader", "all"),
    "runtime": _runtime,
    "timeout": check_duration,
    "capacity_timeout": check_duration,
    "resources": _resources,
    "env_vars": _env_vars,
    "capture_env_vars": _capture,
    "secrets": check_secrets,
    "output_dir": _output_dir,
    "name": check_text,
    "tags": check_tags,
    "priority": check_priority,
    "image": _image,
    "container_image": _image,
    "local_ignore_image": check_flag,
    "backend": _backend,
    "profile": check_text,
    "project": _checked(check_text),
    "zone": _checked(check_text),
    "cluster": _checked(check_text),
    "namespace": _checked(check_text),
    "capacity": _checked(check_choice("on-demand", "spot", "reserved")),
    "spot": _checked(check_flag),
    "base_image_repo": _checked(check_text),
}

#: Options that name a cluster or what only one has.
OF_CLUSTERS = ("project", "zone", "cluster", "namespace", "capacity", "spot", "base_image_repo")
#: The capacity that every machine has, this one too.
ANY_CAPACITY = "on-demand"
#: keras-team/kinetic's words for an image that isn't one's own, and for how it makes a gang: no places of ours.
UPSTREAM_IMAGES, UPSTREAM_BACKENDS = ("bundled", "prebuilt"), ("gke", "pathways")


def _refuse_unknown(name: str) -> None:
    if name not in OPTIONS and name not in LATER:
        near = get_close_matches(name, OPTIONS, n=1)  # none that would be refused as well
        hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(sorted(OPTIONS))}"
        raise UsageError(f"unknown option {name!r}; {hint}")

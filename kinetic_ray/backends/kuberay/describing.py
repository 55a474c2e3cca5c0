"""What a decorated function would be given on a cluster: manifests for people, who may apply them by hand."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, cast

from kinetic_ray import config
from kinetic_ray.backends.kuberay.clusters import ClusterSpec
from kinetic_ray.backends.kuberay.manifests.rayclusters import manifests
from kinetic_ray.backends.kuberay.manifests.rayjobs import JobCluster, rayjob
from kinetic_ray.backends.kuberay.manifests.text import to_yaml
from kinetic_ray.backends.kuberay.names import JOB_LIMIT
from kinetic_ray.backends.kuberay.pools import Capacity, Pool
from kinetic_ray.core.secrets import parse_ref
from kinetic_ray.errors import ConfigError, UsageError
from kinetic_ray.options import Options

KINDS = ("rayjob", "raycluster")


def manifest_of(kind: str, name: str, options: Options, environ: Mapping[str, str] | None = None) -> str:
    """The manifests of a function as YAML, the same bytes for the same options and settings.

    Args:
        kind: "rayjob": a cluster of one call's own. "raycluster": the profile's cluster with a pool for the function,
            and the accounts, rights and network rules that both kinds need.
        name: The function's, after which the RayJob is called; a call's own is called after its job.
        options: The function's.
        environ: Stands in for the process's environment.

    Raises:
        UsageError: No such kind, or an option that no pool can have.
        ConfigError: A setting is missing or can't work on a cluster.
    """
    if kind not in KINDS:
        near = get_close_matches(str(kind).lower(), KINDS, n=1, cutoff=0.4)
        hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(KINDS)}"
        raise UsageError(f"manifest({kind!r}): no such kind; {hint}")
    pool = _pool(options)
    spec = _cluster(options, pool, environ)
    if kind == "raycluster":
        return to_yaml(manifests(spec))
    job = JobCluster(_slug(name), spec, pool, options.num_slices, options.timeout, options.capacity_timeout)
    return to_yaml([rayjob(job)])


def _cluster(options: Options, pool: Pool, environ: Mapping[str, str] | None) -> ClusterSpec:
    if not options.image:
        raise ConfigError(
            "manifest: image= is missing: a cluster's pods run an image with Ray, kinetic_ray and the store's client; "
            "cluster/images in the project's repository has a recipe"
        )
    profile = config.active_profile(options.profile, environ)
    given = options.where()
    found = {
        key: config.find_setting(key, given.get(key), profile, environ) for key in ("cluster", "namespace", "store")
    }
    values = {key: each.value or "" for key, each in found.items()}
    return ClusterSpec(values["cluster"], values["namespace"], options.image, values["store"], (pool,))


def _pool(options: Options) -> Pool:
    words = options.of_clusters
    capacity = "spot" if words.get("spot") or options.accelerator.spot else words.get("capacity", "on-demand")
    if capacity == "reserved":
        raise UsageError(
            "manifest: capacity='reserved': the pool says which reservation, and this function has no pool"
        )
    accelerator = options.accelerator
    ending = "" if capacity == "on-demand" else f"-{capacity}"
    amounts: dict[str, Any] = {"cpus": math.ceil(options.cpus_per_host)} if accelerator.kind == "cpu" else {}
    if options.memory:
        amounts["memory"] = str(options.memory)
    return Pool(
        name=accelerator.name + ending,
        accelerator=accelerator,
        max_slices=options.num_slices,
        capacity=cast(Capacity, capacity),
        secrets=tuple(dict.fromkeys(parse_ref(text).name for text in options.secrets)),
        **amounts,
    )


def _slug(name: str) -> str:
    """A function's name as Kubernetes takes it: "Trainer.fit" becomes "trainer-fit"."""
    words = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    return (words if words[:1].isalpha() else f"job-{words}")[:JOB_LIMIT].rstrip("-")

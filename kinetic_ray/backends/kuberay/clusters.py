"""A cluster of one profile: what its RayCluster and everything around it is made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from kinetic_ray.backends.kuberay.names import (
    CLUSTER_LIMIT,
    check_count,
    check_image,
    check_name,
    check_quantity,
    check_subdomain,
)
from kinetic_ray.backends.kuberay.pools import Pool
from kinetic_ray.core.urls import has_password, shown_url
from kinetic_ray.errors import ConfigError

#: The one minor version that this release works with; the image has it.
RAY_VERSION = "2.60.0"
_NONE: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class ClusterSpec:
    """One cluster.

    Attributes:
        name: Of the RayCluster, and the beginning of all names around it.
        namespace: Where it is.
        image: Container image of head and hosts; it has Ray, kinetic_ray and the store's client.
        store: URL of the store.
        pools: Its worker groups.
        head_cpus: CPUs of the head's pod; tasks get none of them.
        head_memory: Memory of the head's pod: a driver takes about 113 MB.
        head_storage: Disk of the head's pod.
        queue: Kueue's local queue that lets it in; "" = none.
        priority_class: Of its pods; "" = the cluster's default.
        monitoring: Namespace of the Prometheus that may scrape it; "" = nobody may.
        tpu_webhook: Whether GKE's webhook for TPUs is there. It names slices and keeps each on one node pool;
            without it the manifests do both.
        identity: Annotations of its service accounts, e.g. iam.gke.io/gcp-service-account.

    Raises:
        ConfigError: A field can't work.
    """

    name: str
    namespace: str
    image: str
    store: str
    pools: tuple[Pool, ...] = ()
    head_cpus: int = 2
    head_memory: str = "8Gi"
    head_storage: str = "20Gi"
    queue: str = ""
    priority_class: str = ""
    monitoring: str = ""
    tpu_webhook: bool = False
    identity: Mapping[str, str] = field(default_factory=lambda: _NONE)

    def __post_init__(self) -> None:
        check_name(self.name, "cluster", CLUSTER_LIMIT)
        check_name(self.namespace, "namespace")
        check_image(self.image, "image")
        check_store(self.store)
        check_count(self.head_cpus, "head_cpus", 1, 1000)
        check_quantity(self.head_memory, "head_memory")
        check_quantity(self.head_storage, "head_storage")
        for what, text in (("queue", self.queue), ("priority_class", self.priority_class)):
            if text:
                check_subdomain(text, what)
        if self.monitoring:
            check_name(self.monitoring, "monitoring")
        self._check_pools()

    def _check_pools(self) -> None:
        names = [pool.name for pool in self.pools]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ConfigError(f"pools: {', '.join(twice)}: more than one has this name")
        if self.queue and len(self.pools) > 7:
            raise ConfigError(f"queue={self.queue!r}: Kueue takes clusters of at most 7 pools, here are {len(names)}")


def check_store(store: str) -> str:
    """A store that pods reach.

    Raises:
        ConfigError: A folder of one machine, or a URL with a password in it.
    """
    if has_password(store):
        raise ConfigError(
            f"store={shown_url(store)!r}: a URL with a password in it is refused: manifests would tell it"
        )
    scheme, separator, rest = store.partition("://")
    if not separator or scheme in ("file", "memory") or not rest or any(c.isspace() or c == "\0" for c in store):
        raise ConfigError(
            f"store={store!r}: pods can't reach it; a cluster needs a bucket, such as 'gs://bucket/prefix'"
        )
    return store

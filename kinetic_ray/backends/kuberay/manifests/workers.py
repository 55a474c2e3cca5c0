"""Worker groups: one a pool, whose replicas are whole slices."""

from __future__ import annotations

from kinetic_ray.backends.kuberay.clusters import ClusterSpec
from kinetic_ray.backends.kuberay.manifests import labels
from kinetic_ray.backends.kuberay.manifests.access import host_account
from kinetic_ray.backends.kuberay.manifests.labels import Json
from kinetic_ray.backends.kuberay.manifests.pods import (
    BUCKETS_FOLDER,
    SECRETS_FOLDER,
    container_security,
    from_field,
    pod_spec,
    probes,
    resources,
    value,
)
from kinetic_ray.backends.kuberay.pools import Pool, Toleration

_SPOT = "cloud.google.com/gke-spot"
_FLEX = "cloud.google.com/gke-flex-start"
_RESERVATION = "cloud.google.com/reservation-name"
_NODE_POOL = "cloud.google.com/gke-nodepool"
_DEVICES = {"tpu": "google.com/tpu", "gpu": "nvidia.com/gpu"}
#: Seconds between the notice of a pod's end and its end, and those of them that ranks have. GKE gives spot pods 25.
_GRACE, _DRAIN = 60, 45
_SPOT_GRACE, _SPOT_DRAIN = 25, 20


def worker_group(spec: ClusterSpec, pool: Pool, job: str = "") -> Json:
    """The worker group of a pool, with the fewest slices that are always there.

    Args:
        spec: The cluster.
        pool: The pool.
        job: Name of the RayJob that it is a part of.
    """
    tags = {
        **labels.of_cluster(spec.name, job),
        labels.ROLE: "host",
        labels.POOL: pool.name,
        labels.ACCELERATOR: pool.accelerator.name,
    }
    meta: Json = {"labels": tags}
    if pool.fuse:
        meta["annotations"] = {"gke-gcsfuse/volumes": "true"}
    return {
        "groupName": pool.name,
        "numOfHosts": pool.hosts,
        "replicas": pool.min_slices,
        "minReplicas": pool.min_slices,
        "maxReplicas": pool.max_slices,
        "labels": {labels.POOL: pool.name},  # Ray's own label of its nodes, not Kubernetes'
        "rayStartParams": {},
        "template": {"metadata": meta, "spec": _pod(spec, pool)},
    }


def _pod(spec: ClusterSpec, pool: Pool) -> Json:
    grace = _SPOT_GRACE if pool.capacity == "spot" else _GRACE
    volumes = [*(_secret_volume(index, name) for index, name in enumerate(pool.secrets)), *_buckets(pool)]
    pod = pod_spec(spec, host_account(spec.name), grace, [_container(spec, pool)], volumes)
    # A container that came back by itself would join a slice whose other hosts have gone on.
    pod["restartPolicy"] = "Never"
    pod["nodeSelector"] = node_selector(pool)
    pod["tolerations"] = tolerations(pool)
    affinity = _node_affinity(pool) | ({} if spec.tpu_webhook else _slice_affinity(pool))
    return pod | ({"affinity": affinity} if affinity else {})


def _container(spec: ClusterSpec, pool: Pool) -> Json:
    mounts = [
        {"name": f"secret-{index}", "mountPath": f"{SECRETS_FOLDER}/{name}", "readOnly": True}
        for index, name in enumerate(pool.secrets)
    ]
    if pool.fuse:
        mounts.append({"name": "buckets", "mountPath": BUCKETS_FOLDER, "readOnly": True})
    device = _DEVICES.get(pool.accelerator.kind)
    devices = {device: str(pool.accelerator.chips_per_host)} if device else {}
    return {
        "name": "ray-worker",
        "image": spec.image,
        "env": _variables(spec, pool),
        "resources": resources(pool.cpus, pool.memory, pool.ephemeral_storage, devices),
        "securityContext": container_security(devices=bool(devices)),
        "volumeMounts": mounts,
        **probes(head=False),
    }


def _variables(spec: ClusterSpec, pool: Pool) -> list[Json]:
    spot = pool.capacity == "spot"
    drain = value("RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S", str(_SPOT_DRAIN if spot else _DRAIN))
    market = [value("RAY_NODE_MARKET_TYPE", "spot")] if spot else []
    return [drain, *market, *(_slice_names(pool) if pool.accelerator.kind == "tpu" and not spec.tpu_webhook else [])]


def _slice_names(pool: Pool) -> list[Json]:
    """What Ray calls the slice, and the host's number in it.

    A replica's name is never used again, so a lease of a slice that is gone can't be taken for one of its successor.
    KubeRay labels hosts only where a replica has several; a single pod's own name does as well.
    """
    if pool.is_slice:
        return [
            from_field("TPU_NAME", f"metadata.labels['{labels.REPLICA}']"),
            from_field("TPU_WORKER_ID", f"metadata.labels['{labels.HOST_INDEX}']"),
        ]
    return [from_field("TPU_NAME", "metadata.name"), value("TPU_WORKER_ID", "0")]


# Where its pods may be.


def node_selector(pool: Pool) -> dict[str, str]:
    """The labels that nodes of a pool have."""
    capacity = {
        "on-demand": {},
        "spot": {_SPOT: "true"},
        "reserved": {_RESERVATION: pool.reservation},
        "flex-start": {_FLEX: "true"},
    }
    return {**pool.accelerator.gke_labels, **capacity[pool.capacity], **dict(sorted(pool.node_selector.items()))}


def tolerations(pool: Pool) -> list[Json]:
    """The taints that pods of a pool put up with: those of what they asked for, and what was named."""
    device = _DEVICES.get(pool.accelerator.kind)
    own = [Toleration(device, "present", "NoSchedule")] if device else []
    if pool.capacity in ("spot", "flex-start"):
        own.append(Toleration(_SPOT if pool.capacity == "spot" else _FLEX, "true", "NoSchedule"))
    return [_toleration(each) for each in (*own, *pool.tolerations)]


def _toleration(given: Toleration) -> Json:
    shown: Json = {"key": given.key, "operator": "Equal" if given.value else "Exists"}
    shown |= {"value": given.value} if given.value else {}
    return shown | ({"effect": given.effect} if given.effect else {})


def _node_affinity(pool: Pool) -> Json:
    """Keeps what was to stay off machines that may be taken away: GKE labels these, and taints them not always."""
    if pool.capacity != "on-demand":
        return {}
    absent = [{"key": key, "operator": "DoesNotExist"} for key in (_SPOT, _FLEX)]
    return {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": absent}]}
        }
    }


def _slice_affinity(pool: Pool) -> Json:
    """One node pool for all hosts of a replica, and none of another's beside them, whoever that one belongs to.

    A node pool of TPUs is one slice: hosts spread over two would have no links between them.
    """
    if not pool.is_slice:
        return {}
    own = {"topologyKey": _NODE_POOL, "labelSelector": {"matchLabels": {labels.POOL: pool.name}}}
    others = {
        "topologyKey": _NODE_POOL,
        "labelSelector": {"matchExpressions": [{"key": labels.REPLICA, "operator": "Exists"}]},
        "namespaceSelector": {},
    }
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    return {
        "podAffinity": {required: [{**own, "matchLabelKeys": [labels.REPLICA]}]},
        "podAntiAffinity": {required: [{**others, "mismatchLabelKeys": [labels.REPLICA]}]},
    }


# What its pods see.


def _secret_volume(index: int, name: str) -> Json:
    return {"name": f"secret-{index}", "secret": {"secretName": name, "defaultMode": 0o440}}


def _buckets(pool: Pool) -> list[Json]:
    """One volume for all buckets ("_"), read-only; a call only maps folders of it."""
    if not pool.fuse:
        return []
    attributes = {"bucketName": "_", "mountOptions": "implicit-dirs"}
    csi = {"driver": "gcsfuse.csi.storage.gke.io", "readOnly": True, "volumeAttributes": attributes}
    return [{"name": "buckets", "csi": csi}]

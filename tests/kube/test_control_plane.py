"""The API tier: a real control plane and KubeRay, whose pods run in name only."""

import urllib.request
from dataclasses import replace
from typing import Any

import pytest

from cluster.sim import Api, ApiError, Plane, parse_slice
from cluster.sim.build import kuberay_version, kubernetes_version
from tests.kube.conftest import SPEC, Cluster
from tests.kube.objects import (
    RAY,
    has_condition,
    messages,
    pod,
    pod_spec,
    pods_path,
    raycluster,
    rayclusters_path,
    state_of,
    tpu_group,
    wait_on,
    wait_ready,
)

pytestmark = [pytest.mark.kube, pytest.mark.timeout(600)]

NODE_LABELS = {
    "v6e-4x4": {
        "cloud.google.com/gke-nodepool": "v6e-4x4",
        "cloud.google.com/gke-tpu-accelerator": "tpu-v6e-slice",
        "cloud.google.com/gke-tpu-topology": "4x4",
        "cloud.google.com/gke-accelerator-count": "4",
        "node.kubernetes.io/instance-type": "ct6e-standard-4t",
    },
    "v5e-2x2": {"cloud.google.com/gke-tpu-accelerator": "tpu-v5-lite-podslice", "cloud.google.com/gke-spot": "true"},
    "l4-1": {"cloud.google.com/gke-accelerator": "nvidia-l4", "cloud.google.com/gke-accelerator-count": "1"},
}


# What is there.


def test_the_control_plane_is_of_the_pinned_version(plane: Plane) -> None:
    assert plane.api.get("/version")["gitVersion"] == kubernetes_version()
    assert kuberay_version() == "v1.6.0"


def test_every_component_runs(plane: Plane) -> None:
    wait_on(lambda: all(seen.pid for seen in plane.control.components().values()), "all components to run")


@pytest.mark.parametrize("plural", ["rayclusters", "rayjobs", "rayservices"])
def test_kuberays_kinds_are_served(plural: str, kube: Cluster) -> None:
    path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{plural}.ray.io"
    assert has_condition(kube.api.get(path), "Established")
    assert plural in {kind["name"] for kind in kube.api.get(RAY)["resources"]}


def test_there_are_the_nodes_that_were_asked_for(plane: Plane) -> None:
    nodes = plane.api.items("/api/v1/nodes")
    assert len(nodes) == 1 + sum(pool.hosts for pool in SPEC.pools)
    assert all(has_condition(node, "Ready") for node in nodes)
    addresses = [a["address"] for node in nodes for a in node["status"]["addresses"] if a["type"] == "InternalIP"]
    assert len(set(addresses)) == len(nodes)


@pytest.mark.parametrize("pool", sorted(NODE_LABELS))
def test_nodes_are_labelled_and_tainted_as_gkes(pool: str, plane: Plane) -> None:
    node = plane.api.get(f"/api/v1/nodes/{pool}-0")
    assert NODE_LABELS[pool].items() <= node["metadata"]["labels"].items()
    resource = "nvidia.com/gpu" if pool == "l4-1" else "google.com/tpu"
    taint = {"key": resource, "value": "present", "effect": "NoSchedule"}
    assert taint in node["spec"]["taints"]
    assert resource in node["status"]["allocatable"]


# Who may what.


@pytest.mark.parametrize("token", ["", "not-a-token"])
def test_who_has_no_token_is_nobody(token: str, plane: Plane) -> None:
    with pytest.raises(ApiError) as refused:
        replace(plane.api, token=token).get("/api/v1/nodes")
    assert refused.value.status == (401 if token else 403)


def test_a_service_account_may_what_it_was_given_and_nothing_else(kube: Cluster, namespace: str) -> None:
    account = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    wait_on(lambda: kube.api.exists(f"{account}/default"), "the namespace's default account")
    answer = kube.api.create(f"{account}/default/token", {"spec": {"expirationSeconds": 3600}})
    theirs = Api(kube.api.server, answer["status"]["token"], kube.api.tls)
    for path in (pods_path(namespace), f"/api/v1/namespaces/{namespace}/secrets", rayclusters_path(namespace)):
        with pytest.raises(ApiError) as refused:
            theirs.get(path)
        assert refused.value.status == 403
    roles = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}"
    rule = {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}
    kube.api.create(f"{roles}/roles", {"metadata": {"name": "looks"}, "rules": [rule]})
    subject = {"kind": "ServiceAccount", "name": "default", "namespace": namespace}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "looks"}
    kube.api.create(f"{roles}/rolebindings", {"metadata": {"name": "looks"}, "subjects": [subject], "roleRef": role})
    wait_on(lambda: theirs.items(pods_path(namespace)) == [], "the role to count")


# Where pods go.


def test_pods_without_chips_keep_off_nodes_with_chips(kube: Cluster, namespace: str) -> None:
    for index in range(4):
        kube.api.create(pods_path(namespace), pod(f"cpu-{index}", pod_spec()))
    wait_on(lambda: len(_nodes_of(kube, namespace)) == 4, "four pods to have nodes")
    for node in _nodes_of(kube, namespace):
        assert not {"google.com/tpu", "nvidia.com/gpu"} & _resources_of(kube, node)


@pytest.mark.parametrize(("resource", "count"), [("google.com/tpu", 4), ("nvidia.com/gpu", 1)])
def test_pods_that_ask_for_chips_tolerate_their_taint(resource: str, count: int, kube: Cluster, namespace: str) -> None:
    kube.api.create(pods_path(namespace), pod("chips", pod_spec(resource, count)))
    wait_on(lambda: _nodes_of(kube, namespace), "the pod to have a node")
    [node] = _nodes_of(kube, namespace)
    assert resource in _resources_of(kube, node)


def test_a_pod_that_fits_nowhere_waits_and_is_told_why(kube: Cluster, namespace: str) -> None:
    kube.api.create(pods_path(namespace), pod("large", pod_spec("google.com/tpu", 8)))
    wait_on(lambda: messages(kube, namespace, "large", "FailedScheduling"), "the scheduler to say why")
    assert "Insufficient google.com/tpu" in messages(kube, namespace, "large", "FailedScheduling")[0]
    assert kube.api.get(f"{pods_path(namespace)}/large")["status"]["phase"] == "Pending"


def _nodes_of(kube: Cluster, namespace: str) -> list[str]:
    pods = kube.api.items(pods_path(namespace))
    return [pod["spec"]["nodeName"] for pod in pods if pod["spec"].get("nodeName")]


def _resources_of(kube: Cluster, node: str) -> set[str]:
    return set(kube.api.get(f"/api/v1/nodes/{node}")["status"]["allocatable"])


# What KubeRay makes.


def test_a_raycluster_of_a_slice_becomes_ready(kube: Cluster, namespace: str) -> None:
    kube.api.create(rayclusters_path(namespace), raycluster("fleet", tpu_group()))
    wait_ready(kube, namespace, "fleet")
    pods = kube.api.items(pods_path(namespace))
    workers = [pod for pod in pods if pod["metadata"]["labels"]["ray.io/node-type"] == "worker"]
    assert len(pods) == 5
    assert sorted(pod["metadata"]["labels"]["ray.io/replica-host-index"] for pod in workers) == ["0", "1", "2", "3"]
    assert len({pod["spec"]["nodeName"] for pod in workers}) == 4
    assert kube.api.exists(f"/api/v1/namespaces/{namespace}/services/fleet-head-svc")


def test_a_raycluster_grows_and_shrinks_by_whole_slices(kube: Cluster, namespace: str) -> None:
    path = f"{rayclusters_path(namespace)}/elastic"
    kube.api.create(rayclusters_path(namespace), raycluster("elastic", tpu_group(replicas=0)))
    wait_on(lambda: _workers(kube, namespace) == 0 and state_of(kube, namespace, "elastic") == "ready", "its head")
    for replicas in (1, 0):
        change = [{"op": "replace", "path": "/spec/workerGroupSpecs/0/replicas", "value": replicas}]
        kube.api.patch(path, change, "json")
        wait_on(lambda count=4 * replicas: _workers(kube, namespace) == count, f"{4 * replicas} workers")


def test_a_raycluster_that_is_deleted_takes_its_pods_along(kube: Cluster, namespace: str) -> None:
    kube.api.create(rayclusters_path(namespace), raycluster("brief"))
    wait_ready(kube, namespace, "brief")
    kube.api.delete(f"{rayclusters_path(namespace)}/brief")
    wait_on(lambda: kube.api.items(pods_path(namespace)) == [], "its pods to be gone")


def _workers(kube: Cluster, namespace: str) -> int:
    pods = kube.api.items(pods_path(namespace))
    return sum(pod["metadata"]["labels"]["ray.io/node-type"] == "worker" for pod in pods)


def _with(path: str, value: object) -> dict[str, Any]:
    """A good RayCluster with one thing changed; a value of None takes it away."""
    body = raycluster("wrong", tpu_group())
    *parents, last = path.split(".")
    place: Any = body
    for name in parents:
        place = place[int(name) if name.isdigit() else name]
    if value is None:
        del place[last]
    else:
        place[last] = value
    return body


@pytest.mark.parametrize(
    ("path", "value", "told"),
    [
        ("spec.headGroupSpec", None, "spec.headGroupSpec"),
        ("spec.workerGroupSpecs.0.groupName", None, "groupName"),
        ("spec.workerGroupSpecs.0.template", None, "template"),
        ("spec.workerGroupSpecs.0.replicas", "many", "replicas"),
        ("spec.workerGroupSpecs.0.numOfHosts", 1.5, "numOfHosts"),
        ("spec.workerGroupSpecs.0.rayStartParams", {"num-cpus": 4}, "rayStartParams"),
        ("spec.headGroupSpec.template.spec.containers", None, "containers"),
        ("spec.suspend", "yes", "suspend"),
        ("metadata.name", "Not_A_Name", "metadata.name"),
        ("metadata.name", "../escape", "metadata.name"),
        ("metadata.labels", {"a key with spaces": "x"}, "metadata.labels"),
    ],
)
def test_what_is_wrong_is_refused_by_the_real_schema(
    path: str, value: object, told: str, kube: Cluster, namespace: str
) -> None:
    with pytest.raises(ApiError, match=told) as refused:
        kube.api.create(rayclusters_path(namespace), _with(path, value))
    assert refused.value.status in {400, 422}
    assert kube.api.items(rayclusters_path(namespace)) == []


def test_an_unknown_field_is_named_where_strictness_is_asked_for(kube: Cluster, namespace: str) -> None:
    body = _with("spec.workerGroupSpecs.0.numOfHost", 4)
    with pytest.raises(ApiError, match="numOfHost"):
        kube.api.create(f"{rayclusters_path(namespace)}?fieldValidation=Strict", body)


def test_server_side_apply_keeps_one_owner_of_a_field(kube: Cluster, namespace: str) -> None:
    path = f"{rayclusters_path(namespace)}/applied"
    body = raycluster("applied", tpu_group(replicas=0))
    kube.api.patch(f"{path}?fieldManager=one", body, "apply")
    other = _with("spec.rayVersion", "2.61.0")
    other["metadata"]["name"] = "applied"
    with pytest.raises(ApiError, match="rayVersion") as refused:
        kube.api.patch(f"{path}?fieldManager=two", other, "apply")
    assert refused.value.status == 409


def test_a_dry_run_makes_nothing(kube: Cluster, namespace: str) -> None:
    answer = kube.api.create(f"{rayclusters_path(namespace)}?dryRun=All", raycluster("dry"))
    assert answer["metadata"]["name"] == "dry"
    assert kube.api.items(rayclusters_path(namespace)) == []


# The store.


def test_objects_are_kept_under_the_address_that_the_host_has(plane: Plane) -> None:
    bucket = "from-the-host"
    base = f"{plane.gcs_url}/storage/v1/b"
    _ask(base, b'{"name": "%s"}' % bucket.encode(), "application/json")
    _ask(f"{plane.gcs_url}/upload/storage/v1/b/{bucket}/o?uploadType=media&name=a/b", b"content")
    assert _ask(f"{base}/{bucket}/o/a%2Fb?alt=media") == b"content"
    resumable = f"{plane.gcs_url}/upload/storage/v1/b/{bucket}/o?uploadType=resumable&name=large"
    with urllib.request.urlopen(urllib.request.Request(resumable, b"{}"), timeout=60) as answer:
        assert answer.headers["Location"].startswith(f"{plane.gcs_url}/")


def test_pods_find_the_same_store_by_its_name(plane: Plane, namespace: str) -> None:
    base = f"{plane.gcs_url}/storage/v1/b"
    _ask(base, b'{"name": "from-a-pod"}', "application/json")
    spec = pod_spec(image="python:3", restartPolicy="Never")
    spec["containers"][0]["command"] = ["python", "-c", _WRITES]
    plane.api.create(pods_path(namespace), pod("writes", spec))
    path = f"{pods_path(namespace)}/writes"
    wait_on(lambda: plane.api.get(path)["status"]["phase"] in {"Succeeded", "Failed"}, "the pod to end")
    assert plane.api.get(path)["status"]["phase"] == "Succeeded", plane.api.read(f"{path}/log").decode()
    assert _ask(f"{base}/from-a-pod/o/object?alt=media") == b"from a pod"


_WRITES = """
import os, urllib.request
url = os.environ["STORAGE_EMULATOR_HOST"] + "/upload/storage/v1/b/from-a-pod/o?uploadType=media&name=object"
urllib.request.urlopen(urllib.request.Request(url, b"from a pod"), timeout=60).read()
"""


def _ask(url: str, data: bytes | None = None, content_type: str = "application/octet-stream") -> bytes:
    request = urllib.request.Request(url, data, {"Content-Type": content_type})
    with urllib.request.urlopen(request, timeout=60) as answer:
        content: bytes = answer.read()
        return content


# What may happen to it.


def test_the_api_server_is_killed_and_all_goes_on(plane: Plane, kube: Cluster, namespace: str) -> None:
    kube.api.create(rayclusters_path(namespace), raycluster("before"))
    wait_ready(kube, namespace, "before")
    uid = kube.api.get(f"{rayclusters_path(namespace)}/before")["metadata"]["uid"]
    plane.control.stop("kube-apiserver")
    with pytest.raises(OSError, match=r".*"):
        kube.api.get("/readyz")
    plane.control.start("kube-apiserver")
    plane.wait_for(plane.is_ready, "the API server to be back")
    assert kube.api.get(f"{rayclusters_path(namespace)}/before")["metadata"]["uid"] == uid
    kube.api.create(rayclusters_path(namespace), raycluster("after", tpu_group()))
    wait_ready(kube, namespace, "after")
    plane.wait_for(plane.nodes_ready, "the nodes to be ready")


@pytest.mark.parametrize("component", ["operator", "kube-scheduler", "kube-controller-manager", "etcd"])
def test_a_component_is_killed_and_all_goes_on(component: str, plane: Plane, kube: Cluster, namespace: str) -> None:
    plane.restart(component)
    plane.wait_for(plane.is_ready, "the API server to be ready again")
    kube.api.create(rayclusters_path(namespace), raycluster("after"))
    wait_ready(kube, namespace, "after")


def test_a_pool_is_added_to_a_running_cluster(plane: Plane) -> None:
    pool = parse_slice("v5p:2x2x2:4", name="late")
    plane.add_pool(pool)
    try:
        plane.wait_for(plane.nodes_ready, "the new nodes to be ready")
        assert plane.api.exists("/api/v1/nodes/late-1")
    finally:
        for name in pool.node_names():
            plane.api.delete(f"/api/v1/nodes/{name}")

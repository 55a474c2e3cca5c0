"""Manifests on a real API server: taken, applied, reconciled by KubeRay, scheduled; pods run in name only."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster.sim import Api, ApiError
from kinetic_ray.backends.kuberay.apply import FIELD_OWNER, apply, path_of
from kinetic_ray.backends.kuberay.clusters import ClusterSpec
from kinetic_ray.backends.kuberay.manifests import labels
from kinetic_ray.backends.kuberay.manifests.access import head_account, host_account, job_account
from kinetic_ray.backends.kuberay.manifests.rayclusters import manifests, raycluster, surroundings
from kinetic_ray.backends.kuberay.manifests.rayjobs import JobCluster, rayjob
from kinetic_ray.backends.kuberay.pools import Pool, parse_pool
from kinetic_ray.errors import ConfigError
from tests.kube.conftest import Cluster
from tests.kube.objects import FAKE_IMAGE, has_condition, pods_path, rayclusters_path, wait_on, wait_ready

pytestmark = [pytest.mark.kube, pytest.mark.timeout(600)]
kubernetes = pytest.importorskip("kubernetes")

KINDS: dict[str, dict[str, Any]] = {
    "slice": {"accelerator": "tpu-v6e-16", "max_slices": 2},
    "two-hosts": {"accelerator": "tpu-v6e-8", "chips_per_host": 4},
    "single": {"accelerator": "tpu-v5e-4"},
    "cubes": {"accelerator": "tpu-v5p-64"},
    "gpu": {"accelerator": "gpu-l4", "secrets": ["hf", "wandb"], "fuse": True},
    "gang": {"accelerator": "gpu-l4x4", "hosts": 2, "tolerations": [{"key": "team", "effect": "NoExecute"}]},
    "cpu": {"accelerator": "cpu", "max_slices": 20, "node_selector": {"disk": "ssd"}},
}
CAPACITIES: dict[str, dict[str, Any]] = {
    "od": {},
    "spot": {"capacity": "spot"},
    "res": {"capacity": "reserved", "reservation": "ours"},
    "flex": {"capacity": "flex-start"},
}
JOB = "job-0000000000e008000000000000"
ROUNDS = 10
FILES = Path(__file__).parents[2] / "cluster/kuberay/base"


@pytest.fixture
def client(kube: Cluster) -> Iterator[Any]:
    """The client library, as an administrator."""
    made = kubernetes.config.new_client_from_config(str(kube.kubeconfig))
    yield made
    made.rest_client.pool_manager.clear()


def pool(kind: str, **fields: Any) -> Pool:
    return parse_pool({"name": kind, **KINDS[kind], **fields})


def cluster(namespace: str, *pools: Pool, **fields: Any) -> ClusterSpec:
    """A small head: the plane's node for heads is shared."""
    small = {"head_cpus": 1, "head_memory": "1Gi", "head_storage": "1Gi", **fields}
    return ClusterSpec("team", namespace, FAKE_IMAGE, "gs://bucket/prefix", pools, **small)


def hosts(kube: Cluster, namespace: str) -> list[dict[str, Any]]:
    pods = kube.api.items(pods_path(namespace))
    return [pod for pod in pods if pod["metadata"]["labels"].get(labels.ROLE) == "host"]


def set_replicas(kube: Cluster, namespace: str, count: int) -> None:
    change = [{"op": "replace", "path": "/spec/workerGroupSpecs/0/replicas", "value": count}]
    kube.api.patch(f"{rayclusters_path(namespace)}/team", change, "json")


# Taken by the API server.


@pytest.mark.parametrize("kind", KINDS)
def test_the_api_server_takes_every_kind_of_pool(kind: str, client: Any, namespace: str) -> None:
    pools = tuple(pool(kind, **{**fields, "name": f"{kind}-{name}"}) for name, fields in CAPACITIES.items())
    spec = cluster(namespace, *pools, queue="gold", priority_class="system-node-critical")
    jobs = [rayjob(JobCluster(f"{JOB}-{each.name}"[:47].rstrip("-"), spec, each, 2, 3600)) for each in pools]
    wanted = [*manifests(spec), *jobs]
    answers = apply(client, wanted, dry_run=True)
    for sent, answer in zip(wanted, answers, strict=True):
        assert _lost(sent, answer) == [], "the server dropped or changed what it was given"


def _lost(sent: Any, answer: Any, path: str = "") -> list[str]:
    """What was sent and isn't in the answer; the server may add defaults, and nothing else."""
    if isinstance(sent, dict):
        empty = [key for key in sent if key not in answer and sent[key] not in ({}, [])]
        found = [f"{path}.{key}" for key in empty]
        return found + [each for k in sent if k in answer for each in _lost(sent[k], answer[k], f"{path}.{k}")]
    if isinstance(sent, list):
        if len(sent) != len(answer):
            return [path]
        return [each for n, (a, b) in enumerate(zip(sent, answer, strict=True)) for each in _lost(a, b, f"{path}[{n}]")]
    return [] if sent == answer else [f"{path}: {sent!r} became {answer!r}"]


def test_nothing_is_changed_by_a_dry_run(kube: Cluster, client: Any, namespace: str) -> None:
    wanted = manifests(cluster(namespace, pool("slice")))
    apply(client, wanted, dry_run=True)
    assert [path_of(each) for each in wanted if kube.api.exists(path_of(each))] == []


@pytest.mark.parametrize("name", ["Team", "../team", "team/status", "a" * 254, "te am", "team\n"])
def test_one_hostile_name_keeps_everything_from_being_applied(
    name: str, kube: Cluster, client: Any, namespace: str
) -> None:
    """Specs refuse such names; whoever gets past them changes nothing either."""
    spec = cluster(namespace, pool("slice"))
    with pytest.raises(ConfigError):
        replace(spec, name=name)
    bad = raycluster(spec)
    bad["metadata"] = {**bad["metadata"], "name": name}
    with pytest.raises(ConfigError, match="Nothing was changed"):
        apply(client, [*surroundings(spec), bad])
    assert [path_of(each) for each in surroundings(spec) if kube.api.exists(path_of(each))] == []


# Applied.


def test_a_cluster_of_every_kind_becomes_ready(kube: Cluster, client: Any, namespace: str) -> None:
    spec = cluster(namespace, *(pool(kind) for kind in KINDS))
    apply(client, manifests(spec))
    wait_ready(kube, namespace, "team")
    assert hosts(kube, namespace) == []
    [head] = kube.api.items(pods_path(namespace))
    assert [container["name"] for container in head["spec"]["containers"]] == ["ray-head", "kinetic"]
    assert head["spec"]["serviceAccountName"] == head_account("team")
    managers = kube.api.get(f"{rayclusters_path(namespace)}/team")["metadata"]["managedFields"]
    assert FIELD_OWNER in {each["manager"] for each in managers if each["operation"] == "Apply"}


def test_applying_again_changes_nothing_and_keeps_slices(kube: Cluster, client: Any, namespace: str) -> None:
    wanted = manifests(cluster(namespace, pool("slice")))
    apply(client, wanted)
    set_replicas(kube, namespace, 1)
    wait_on(lambda: len(hosts(kube, namespace)) == 4, "four hosts")
    apply(client, wanted)
    before = kube.api.get(f"{rayclusters_path(namespace)}/team")["metadata"]["generation"]
    apply(client, wanted)
    live = kube.api.get(f"{rayclusters_path(namespace)}/team")
    assert live["metadata"]["generation"] == before
    assert live["spec"]["workerGroupSpecs"][0]["replicas"] == 1


def test_a_pool_that_is_added_leaves_the_others_slices_alone(kube: Cluster, client: Any, namespace: str) -> None:
    apply(client, manifests(cluster(namespace, pool("slice"))))
    set_replicas(kube, namespace, 1)
    wait_on(lambda: len(hosts(kube, namespace)) == 4, "four hosts")
    before = {pod["metadata"]["uid"] for pod in hosts(kube, namespace)}
    apply(client, manifests(cluster(namespace, pool("slice"), pool("cpu", min_slices=1, node_selector={}))))
    wait_on(lambda: len(hosts(kube, namespace)) == 5, "the host of the new pool")
    assert before <= {pod["metadata"]["uid"] for pod in hosts(kube, namespace)}


# Slices.


def test_a_slice_never_spans_two_node_pools(kube: Cluster, client: Any, namespace: str) -> None:
    apply(client, manifests(cluster(namespace, pool("slice"))))
    wait_ready(kube, namespace, "team")
    for turn in range(ROUNDS):
        replicas = 1 + turn % 2
        set_replicas(kube, namespace, replicas)
        wait_on(lambda count=4 * replicas: _placed(kube, namespace) == count, f"{replicas} slices, turn {turn}")
        slices = _node_pools_of_slices(kube, namespace)
        assert all(len(pools) == 1 for pools in slices.values()), slices
        assert len(set(slices.values())) == replicas
        set_replicas(kube, namespace, 0)
        wait_on(lambda: hosts(kube, namespace) == [], "the slices to go")


def test_hosts_are_told_their_slice_and_their_number(kube: Cluster, client: Any, namespace: str) -> None:
    apply(client, manifests(cluster(namespace, pool("slice"), pool("single", capacity="spot", min_slices=1))))
    set_replicas(kube, namespace, 1)
    wait_on(lambda: _placed(kube, namespace) == 5, "five hosts")
    for pod in hosts(kube, namespace):
        tags, env = pod["metadata"]["labels"], pod["spec"]["containers"][0]["env"]
        told = {each["name"]: each for each in env}
        if tags[labels.POOL] == "single":
            assert told["TPU_WORKER_ID"]["value"] == "0"
            assert told["RAY_NODE_MARKET_TYPE"]["value"] == "spot"
            assert len(pod["metadata"]["name"]) <= 63
        else:
            assert {labels.REPLICA, labels.HOST_INDEX} <= tags.keys()
    assert len({pod["metadata"]["labels"].get(labels.REPLICA) for pod in _of(kube, namespace, "slice")}) == 1


def _of(kube: Cluster, namespace: str, name: str) -> list[dict[str, Any]]:
    return [pod for pod in hosts(kube, namespace) if pod["metadata"]["labels"][labels.POOL] == name]


def _placed(kube: Cluster, namespace: str) -> int:
    alive = [pod for pod in hosts(kube, namespace) if not pod["metadata"].get("deletionTimestamp")]
    return sum(bool(pod["spec"].get("nodeName")) for pod in alive)


def _node_pools_of_slices(kube: Cluster, namespace: str) -> dict[str, frozenset[str]]:
    nodes = {node["metadata"]["name"]: node["metadata"]["labels"] for node in kube.api.items("/api/v1/nodes")}
    found: dict[str, frozenset[str]] = {}
    for pod in hosts(kube, namespace):
        name = pod["metadata"]["labels"][labels.REPLICA]
        node_pool = nodes[pod["spec"]["nodeName"]]["cloud.google.com/gke-nodepool"]
        found[name] = found.get(name, frozenset()) | {node_pool}
    return found


# Rights.


def _as(kube: Cluster, namespace: str, account: str) -> Api:
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
    answer = kube.api.create(path, {"spec": {"expirationSeconds": 3600}})
    return Api(kube.api.server, answer["status"]["token"], kube.api.tls)


def _denied(api: Api, method: str, path: str, body: object = None) -> bool:
    kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
    try:
        api.read(path, method, body, kind)
    except ApiError as error:
        return error.status == 403
    return False


def test_the_janitor_may_its_own_cluster_and_nothing_else(kube: Cluster, client: Any, namespace: str) -> None:
    apply(client, manifests(cluster(namespace, pool("slice"))))
    apply(client, [raycluster(replace(cluster(namespace), name="other"))])
    janitor = _as(kube, namespace, head_account("team"))
    own, other = f"{rayclusters_path(namespace)}/team", f"{rayclusters_path(namespace)}/other"
    wait_on(lambda: janitor.get(own), "the role to count")
    assert janitor.items(pods_path(namespace)) is not None
    assert janitor.items(f"/api/v1/namespaces/{namespace}/events") is not None
    assert janitor.patch(own, {"metadata": {"annotations": {"example.com/a": "b"}}})
    core, rbac = f"/api/v1/namespaces/{namespace}", f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}"
    denied = {
        ("GET", f"{core}/secrets"): None,
        ("GET", f"{core}/secrets/team"): None,
        ("GET", f"{core}/configmaps"): None,
        ("GET", "/api/v1/nodes"): None,
        ("GET", "/api/v1/namespaces/default/pods"): None,
        ("POST", pods_path(namespace)): {"metadata": {"name": "x"}, "spec": {"containers": []}},
        ("DELETE", f"{pods_path(namespace)}/x"): None,
        ("POST", f"{pods_path(namespace)}/x/exec?command=sh"): None,
        ("GET", rayclusters_path(namespace)): None,
        ("GET", other): None,
        ("PATCH", other): {"spec": {"suspend": True}},
        ("DELETE", other): None,
        ("DELETE", own): None,
        ("POST", rayclusters_path(namespace)): raycluster(replace(cluster(namespace), name="third")),
        ("PATCH", f"{rbac}/roles/{head_account('team')}"): {"rules": []},
        ("POST", f"{core}/serviceaccounts/{host_account('team')}/token"): {"spec": {}},
    }
    assert [place for place, body in denied.items() if not _denied(janitor, *place, body)] == []


@pytest.mark.parametrize("account", [host_account, job_account])
def test_hosts_may_nothing_and_heads_of_jobs_only_look(
    account: Any, kube: Cluster, client: Any, namespace: str
) -> None:
    apply(client, surroundings(cluster(namespace)))
    someone = _as(kube, namespace, account("team"))
    looks = account is job_account
    if looks:
        wait_on(lambda: someone.items(pods_path(namespace)) == [], "the role to count")
    else:
        assert _denied(someone, "GET", pods_path(namespace))
    secrets = f"/api/v1/namespaces/{namespace}/secrets"
    for method, path in (("GET", secrets), ("GET", rayclusters_path(namespace)), ("DELETE", f"{secrets}/team")):
        assert _denied(someone, method, path)


def test_users_submit_and_look_and_read_no_secret(kube: Cluster, client: Any, namespace: str) -> None:
    apply(client, manifests(cluster(namespace)))
    [role] = yaml.safe_load_all((FILES / "users.yaml").read_text(encoding="utf-8"))
    core, rbac = f"/api/v1/namespaces/{namespace}", f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}"
    kube.api.create(f"{rbac}/roles", role | {"metadata": {"name": "kinetic-user"}})
    kube.api.create(f"{core}/serviceaccounts", {"metadata": {"name": "ann"}})
    subject = {"kind": "ServiceAccount", "name": "ann", "namespace": namespace}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "kinetic-user"}
    binding = {"metadata": {"name": "ann"}, "subjects": [subject], "roleRef": reference}
    kube.api.create(f"{rbac}/rolebindings", binding)
    ann = _as(kube, namespace, "ann")
    wait_on(lambda: ann.items(rayclusters_path(namespace)), "the role to count")
    job = path_of(rayjob(JobCluster(JOB, cluster(namespace), pool("slice")))).rpartition("/")[0]
    assert ann.items(job) == []
    assert not _denied(ann, "GET", f"{pods_path(namespace)}/nobody/portforward?ports=1")
    for method, path in (
        ("GET", f"{core}/secrets"),
        ("GET", f"{core}/secrets/team"),
        ("POST", f"{pods_path(namespace)}/nobody/exec?command=sh"),
        ("DELETE", f"{rayclusters_path(namespace)}/team"),
        ("DELETE", f"{pods_path(namespace)}/nobody"),
    ):
        assert _denied(ann, method, path)


def test_pods_keep_the_rules_of_a_guarded_namespace(kube: Cluster, client: Any, namespace: str) -> None:
    """The namespace that administrators make enforces the baseline of Kubernetes' pod security standards."""
    guard = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "baseline"}}}
    kube.api.patch(f"/api/v1/namespaces/{namespace}", guard)
    apply(client, manifests(cluster(namespace, pool("slice", secrets=["hf"], fuse=False, min_slices=1))))
    wait_on(lambda: len(hosts(kube, namespace)) == 4, "four hosts")
    wait_on(lambda: len(kube.api.items(pods_path(namespace))) == 5, "the head")


# Jobs with clusters of their own.


def test_a_job_of_its_own_gets_its_slices_and_takes_them_along(kube: Cluster, client: Any, namespace: str) -> None:
    spec = cluster(namespace)
    job = rayjob(JobCluster(JOB, spec, pool("slice"), slices=2, timeout=3600))
    apply(client, [*manifests(spec), job])
    wait_on(lambda: _placed(kube, namespace) == 8, "two slices")
    assert {len(pools) for pools in _node_pools_of_slices(kube, namespace).values()} == {1}
    made = [each for each in kube.api.items(rayclusters_path(namespace)) if each["metadata"]["name"] != "team"]
    wait_on(
        lambda: has_condition(
            kube.api.get(f"{rayclusters_path(namespace)}/{made[0]['metadata']['name']}"), "HeadPodReady"
        ),
        "its head",
    )
    assert kube.api.get(path_of(job))["status"]["jobDeploymentStatus"] in ("Initializing", "Waiting")
    kube.api.delete(path_of(job))
    wait_on(lambda: hosts(kube, namespace) == [], "its hosts to go")
    assert kube.api.exists(f"{rayclusters_path(namespace)}/team")

"""Manifests: what every one of them must say, for every kind of pool; and their text."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from kinetic_ray.backends.kuberay.apply import path_of, with_live_scale
from kinetic_ray.backends.kuberay.clusters import ClusterSpec
from kinetic_ray.backends.kuberay.manifests import labels
from kinetic_ray.backends.kuberay.manifests.rayclusters import manifests, raycluster
from kinetic_ray.backends.kuberay.manifests.rayjobs import JobCluster, rayjob
from kinetic_ray.backends.kuberay.manifests.text import document, to_yaml
from kinetic_ray.backends.kuberay.manifests.workers import node_selector, tolerations, worker_group
from kinetic_ray.backends.kuberay.pools import Pool, parse_pool
from kinetic_ray.errors import ConfigError

CLUSTER = ClusterSpec("team", "ml", "registry.example.com/kinetic:1", "gs://bucket/prefix")
KINDS = {
    "slice": {"accelerator": "tpu-v6e-16", "max_slices": 2},
    "two-hosts": {"accelerator": "tpu-v6e-8", "chips_per_host": 4},
    "single": {"accelerator": "tpu-v5e-4"},
    "cubes": {"accelerator": "tpu-v5p-64"},
    "gpu": {"accelerator": "gpu-l4"},
    "gpu-gang": {"accelerator": "gpu-l4x4", "hosts": 2},
    "cpu": {"accelerator": "cpu", "max_slices": 20},
}
CAPACITIES: dict[str, dict[str, Any]] = {
    "on-demand": {},
    "spot": {"capacity": "spot"},
    "reserved": {"capacity": "reserved", "reservation": "ours"},
    "flex-start": {"capacity": "flex-start"},
}
JOB = "job-0000000000e008000000000000"


def make(kind: str, **fields: Any) -> Pool:
    return parse_pool({"name": kind, **KINDS[kind], **fields})


ALL = [make(kind, **capacity) for kind in KINDS for capacity in CAPACITIES.values()]
IDS = [f"{kind}-{capacity}" for kind in KINDS for capacity in CAPACITIES]


def pod_of(pool: Pool, spec: ClusterSpec = CLUSTER) -> dict[str, Any]:
    found: dict[str, Any] = worker_group(spec, pool)["template"]["spec"]
    return found


def env_of(container: dict[str, Any]) -> dict[str, Any]:
    return {each["name"]: each.get("value", each.get("valueFrom")) for each in container["env"]}


# What every worker group says.


@pytest.mark.parametrize("pool", ALL, ids=IDS)
def test_a_group_is_whole_slices_on_nodes_of_its_kind(pool: Pool) -> None:
    group = worker_group(CLUSTER, pool)
    assert (group["groupName"], group["numOfHosts"], group["replicas"]) == (pool.name, pool.accelerator.hosts, 0)
    assert (group["minReplicas"], group["maxReplicas"]) == (0, pool.max_slices)
    spec = group["template"]["spec"]
    assert pool.accelerator.gke_labels.items() <= spec["nodeSelector"].items()
    assert spec["restartPolicy"] == "Never"
    assert spec["automountServiceAccountToken"] is False
    [container] = spec["containers"]
    amounts = container["resources"]["limits"]
    assert amounts == container["resources"]["requests"]
    devices = {"google.com/tpu": "tpu", "nvidia.com/gpu": "gpu"}
    asked = {devices[name]: int(count) for name, count in amounts.items() if name in devices}
    kind = pool.accelerator.kind
    assert asked == ({} if kind == "cpu" else {kind: pool.accelerator.chips_per_host})
    assert {"cpu", "memory", "ephemeral-storage"} <= amounts.keys()
    assert {"readinessProbe", "livenessProbe"} <= container.keys()
    assert container["securityContext"]["allowPrivilegeEscalation"] is False


@pytest.mark.parametrize("pool", ALL, ids=IDS)
def test_only_slices_of_several_hosts_keep_to_one_node_pool(pool: Pool) -> None:
    affinity = pod_of(pool).get("affinity", {})
    assert ("podAffinity" in affinity) == ("podAntiAffinity" in affinity) == pool.is_slice
    assert ("nodeAffinity" in affinity) == (pool.capacity == "on-demand")
    if pool.is_slice:
        [own] = affinity["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        [others] = affinity["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        assert own["matchLabelKeys"] == others["mismatchLabelKeys"] == [labels.REPLICA]
        assert {own["topologyKey"], others["topologyKey"]} == {"cloud.google.com/gke-nodepool"}
        assert others["namespaceSelector"] == {}, "another namespace's slice is another slice"


@pytest.mark.parametrize("pool", ALL, ids=IDS)
def test_ranks_end_before_their_pod_does(pool: Pool) -> None:
    spec = pod_of(pool)
    drain = int(env_of(spec["containers"][0])["RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S"])
    assert 15 <= drain <= spec["terminationGracePeriodSeconds"] - 5
    assert pool.capacity != "spot" or spec["terminationGracePeriodSeconds"] <= 25


@pytest.mark.parametrize("pool", ALL, ids=IDS)
def test_hosts_of_tpus_know_their_slice_and_number(pool: Pool) -> None:
    env = env_of(pod_of(pool)["containers"][0])
    assert ("TPU_NAME" in env) == ("TPU_WORKER_ID" in env) == (pool.accelerator.kind == "tpu")
    if pool.is_slice:
        assert labels.REPLICA in env["TPU_NAME"]["fieldRef"]["fieldPath"]
        assert labels.HOST_INDEX in env["TPU_WORKER_ID"]["fieldRef"]["fieldPath"]
    assert env.get("RAY_NODE_MARKET_TYPE") == ("spot" if pool.capacity == "spot" else None)


@pytest.mark.parametrize("pool", [pool for pool in ALL if pool.accelerator.kind == "tpu"])
def test_where_gkes_webhook_is_it_alone_names_and_places_slices(pool: Pool) -> None:
    spec = pod_of(pool, replace(CLUSTER, tpu_webhook=True))
    assert not {"TPU_NAME", "TPU_WORKER_ID"} & env_of(spec["containers"][0]).keys()
    assert not {"podAffinity", "podAntiAffinity"} & spec.get("affinity", {}).keys()


@pytest.mark.parametrize(
    ("capacity", "label", "taint"),
    [
        ("on-demand", {}, None),
        ("spot", {"cloud.google.com/gke-spot": "true"}, "cloud.google.com/gke-spot"),
        ("reserved", {"cloud.google.com/reservation-name": "ours"}, None),
        ("flex-start", {"cloud.google.com/gke-flex-start": "true"}, "cloud.google.com/gke-flex-start"),
    ],
)
def test_capacity_is_a_label_of_nodes_and_sometimes_a_taint(
    capacity: str, label: dict[str, str], taint: str | None
) -> None:
    pool = make("slice", **CAPACITIES[capacity], tolerations=[{"key": "team"}], node_selector={"disk": "ssd"})
    assert node_selector(pool) == {**pool.accelerator.gke_labels, **label, "disk": "ssd"}
    assert [each["key"] for each in tolerations(pool)] == ["google.com/tpu", *([taint] if taint else []), "team"]
    assert tolerations(pool)[-1] == {"key": "team", "operator": "Exists"}


def test_secrets_and_buckets_are_files_that_cannot_be_written() -> None:
    pool = make("slice", secrets=["hf", "wandb"], fuse=True)
    template = worker_group(CLUSTER, pool)["template"]
    assert template["metadata"]["annotations"] == {"gke-gcsfuse/volumes": "true"}
    [container] = template["spec"]["containers"]
    assert all(mount["readOnly"] for mount in container["volumeMounts"])
    assert [mount["name"] for mount in container["volumeMounts"]] == [v["name"] for v in template["spec"]["volumes"]]
    assert [volume["secret"]["secretName"] for volume in template["spec"]["volumes"][:2]] == ["hf", "wandb"]
    assert not any("secretKeyRef" in str(each) for each in container["env"]), "a variable of a secret is seen by all"


# The head.


def head_pod() -> dict[str, Any]:
    found: dict[str, Any] = raycluster(CLUSTER)["spec"]["headGroupSpec"]["template"]["spec"]
    return found


def test_the_head_takes_no_tasks_and_has_the_janitor_beside_it() -> None:
    assert raycluster(CLUSTER)["spec"]["headGroupSpec"]["rayStartParams"]["num-cpus"] == "0"
    ray, janitor = head_pod()["containers"]
    assert janitor["command"] == ["python", "-m", "kinetic_ray.backends.kuberay.janitor"]
    assert env_of(ray)["KINETIC_SUPERVISOR"] == env_of(janitor)["KINETIC_SUPERVISOR"]
    assert ray["volumeMounts"][0] == janitor["volumeMounts"][0]
    assert env_of(janitor)["KINETIC_STORE"] == CLUSTER.store


def test_only_the_janitor_has_a_token_of_the_api_server() -> None:
    pod = head_pod()
    assert pod["automountServiceAccountToken"] is False
    ray, janitor = pod["containers"]
    assert "api-token" in {mount["name"] for mount in janitor["volumeMounts"]}
    assert "api-token" not in {mount["name"] for mount in ray["volumeMounts"]}


def test_drivers_have_their_time_to_stop() -> None:
    assert int(env_of(head_pod()["containers"][0])["RAY_JOB_STOP_WAIT_TIME_S"]) == 30
    assert head_pod()["terminationGracePeriodSeconds"] >= 45


def test_token_and_scaling_are_never_left_to_defaults() -> None:
    spec = raycluster(CLUSTER)["spec"]
    assert spec["authOptions"] == {"mode": "token"}
    assert spec["enableInTreeAutoscaling"] is False
    assert spec["rayVersion"].startswith("2.60.")


def test_queue_and_priority_go_where_they_count() -> None:
    made = raycluster(replace(CLUSTER, queue="gold", priority_class="high", pools=(make("slice"),)))
    assert made["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "gold"
    pods = [made["spec"]["headGroupSpec"], *made["spec"]["workerGroupSpecs"]]
    assert [pod["template"]["spec"]["priorityClassName"] for pod in pods] == ["high", "high"]


# Everything around.


def test_nobody_may_write_but_the_janitor_its_own_cluster() -> None:
    roles = [each for each in manifests(CLUSTER) if each["kind"] == "Role"]
    rules = [(role["metadata"]["name"], rule) for role in roles for rule in role["rules"]]
    writing = [(name, rule) for name, rule in rules if not {"get", "list", "watch"} >= set(rule["verbs"])]
    [(name, rule)] = writing
    assert name == "team-head"
    assert rule == {
        "apiGroups": ["ray.io"],
        "resources": ["rayclusters"],
        "verbs": ["get", "patch"],
        "resourceNames": ["team"],
    }
    assert not any("secrets" in rule["resources"] or "*" in str(rule) for _, rule in rules)
    bound = {subject["name"] for each in manifests(CLUSTER) for subject in each.get("subjects", ())}
    assert "team-host" not in bound


def test_the_network_is_open_to_the_clusters_own_pods_only() -> None:
    [policy] = [each for each in manifests(CLUSTER) if each["kind"] == "NetworkPolicy"]
    assert policy["spec"]["policyTypes"] == ["Ingress"]
    own, operator = policy["spec"]["ingress"]
    assert own["from"] == [{"podSelector": policy["spec"]["podSelector"]}]
    assert operator["ports"] == [{"protocol": "TCP", "port": 8265}]
    pods = [raycluster(CLUSTER)["spec"]["headGroupSpec"], worker_group(CLUSTER, make("cpu"))]
    for pod in pods:
        assert policy["spec"]["podSelector"]["matchLabels"].items() <= pod["template"]["metadata"]["labels"].items()
    ports = {port for each in own["ports"] for port in range(each["port"], each.get("endPort", each["port"]) + 1)}
    assert {6379, 8080, 8081, 8265, 8471, 8476, 10002, 52365} <= ports
    assert not {22, 10001} & ports, "nothing of ours uses Ray's client server"


def test_prometheus_sees_metrics_only_where_it_was_named() -> None:
    assert "PodMonitor" not in {each["kind"] for each in manifests(CLUSTER)}
    made = manifests(replace(CLUSTER, monitoring="monitoring"))
    assert "PodMonitor" in {each["kind"] for each in made}
    [policy] = [each for each in made if each["kind"] == "NetworkPolicy"]
    assert policy["spec"]["ingress"][-1]["ports"] == [{"protocol": "TCP", "port": 8080}]


def test_no_value_of_a_secret_is_in_any_manifest() -> None:
    spec = replace(CLUSTER, pools=tuple(make(kind, secrets=["hf"]) for kind in KINDS), monitoring="monitoring")
    objects = [*manifests(spec), rayjob(JobCluster(JOB, spec, spec.pools[0]))]
    assert "Secret" not in {each["kind"] for each in objects}
    texts = [value for each in objects for value in _texts(each)]
    assert not any("data" in key for key, _ in texts if isinstance(key, str) and key in ("data", "stringData"))
    tokens = [each for each in objects if "auth_token" in str(each)]
    assert {each["kind"] for each in tokens} == {"RayCluster", "RayJob"}


def _texts(value: Any, key: object = "") -> Iterator[tuple[object, str]]:
    if isinstance(value, dict):
        for name, item in value.items():
            yield from _texts(item, name)
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item, key)
    else:
        yield key, str(value)


# RayJobs.


@pytest.mark.parametrize("pool", ALL, ids=IDS)
def test_a_job_of_its_own_has_all_its_slices_and_goes_away(pool: Pool) -> None:
    spec = rayjob(JobCluster(JOB, CLUSTER, pool, slices=3))["spec"]
    assert spec["submissionMode"] == "InteractiveMode"
    assert spec["shutdownAfterJobFinishes"] is True
    [group] = spec["rayClusterSpec"]["workerGroupSpecs"]
    assert (group["replicas"], group["minReplicas"], group["maxReplicas"]) == (3, 3, 3)
    assert spec["rayClusterSpec"]["authOptions"] == {"mode": "token", "secretName": "team"}
    tags = group["template"]["metadata"]["labels"]
    assert (tags[labels.JOB], tags[labels.CLUSTER]) == (JOB, "team")


def test_deadlines_leave_the_driver_the_first_word() -> None:
    job = JobCluster(JOB, CLUSTER, make("slice"), timeout=3600.5, capacity_timeout=60)
    spec = rayjob(job)["spec"]
    assert spec["preRunningDeadlineSeconds"] > 60
    assert spec["activeDeadlineSeconds"] > spec["preRunningDeadlineSeconds"] + 3601
    assert "activeDeadlineSeconds" not in rayjob(replace(job, timeout=None))["spec"]
    assert rayjob(replace(job, capacity_timeout=None))["spec"]["preRunningDeadlineSeconds"] == 86_400


def test_a_job_of_its_own_may_wait_in_a_queue() -> None:
    job = JobCluster(JOB, replace(CLUSTER, queue="gold"), make("slice"))
    assert rayjob(job)["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "gold"


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"name": "../x"}, "job='../x'"),
        ({"name": "a" * 48}, "1 to 47"),
        ({"slices": 0}, "num_slices=0"),
        ({"ttl": -1}, "ttl=-1"),
        ({"timeout": 0}, "timeout=0"),
        ({"timeout": float("nan")}, "timeout=nan"),
        ({"capacity_timeout": 1e300}, "capacity_timeout"),
    ],
)
def test_jobs_that_cannot_be_are_refused(fields: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError) as refused:
        replace(JobCluster(JOB, CLUSTER, make("slice")), **fields)
    assert told in str(refused.value)


# Their text.

_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**9), 10**9) | st.text(max_size=30),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=12), inner, max_size=3),
    max_leaves=12,
)


@given(st.dictionaries(st.text(max_size=12), _JSON, min_size=1, max_size=4))
def test_text_says_exactly_the_values(value: dict[str, Any]) -> None:
    assert yaml.safe_load(document(value)) == value


@pytest.mark.parametrize(
    "word", ["yes", "no", "On", "NULL", "y", "1e3", "0x1", "12:30:00", "2026-12-01", "~", "", "-", "a: b", "a #b"]
)
def test_words_that_yaml_would_read_otherwise_are_quoted(word: str) -> None:
    assert yaml.safe_load(document({"a": word})) == {"a": word}


@pytest.mark.parametrize("pool", ALL, ids=IDS)
def test_manifests_come_back_from_their_text(pool: Pool) -> None:
    objects = manifests(replace(CLUSTER, pools=(pool,), monitoring="monitoring"))
    assert list(yaml.safe_load_all(to_yaml(objects))) == objects
    assert to_yaml(objects) == to_yaml(manifests(replace(CLUSTER, pools=(pool,), monitoring="monitoring")))


# What applying makes of them.


@pytest.mark.parametrize(("live", "kept"), [(0, 0), (1, 1), (2, 2), (9, 2)])
def test_slices_that_run_are_kept_when_a_cluster_is_applied_again(live: int, kept: int) -> None:
    wanted = raycluster(replace(CLUSTER, pools=(make("slice"), make("cpu"))))
    going = {"workersToDelete": ["team-slice-worker-a"]}
    there = {"groupName": "slice", "replicas": live, "scaleStrategy": going}
    now = {"metadata": {"resourceVersion": "7"}, "spec": {"workerGroupSpecs": [there, {"groupName": "gone"}]}}
    made = with_live_scale(wanted, now)
    assert made["metadata"]["resourceVersion"] == "7"
    first, second = made["spec"]["workerGroupSpecs"]
    assert (first["replicas"], first["scaleStrategy"]) == (kept, going)
    assert second == wanted["spec"]["workerGroupSpecs"][1]


def test_every_manifest_has_a_path() -> None:
    objects = [*manifests(replace(CLUSTER, monitoring="m")), rayjob(JobCluster(JOB, CLUSTER, make("cpu")))]
    paths = [path_of(each) for each in objects]
    assert len(set(paths)) == len(paths)
    assert "/apis/ray.io/v1/namespaces/ml/rayclusters/team" in paths

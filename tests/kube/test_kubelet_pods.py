"""Pods that really run: what they find, how they are reached, how they end."""

import json
import sys
import urllib.request
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cluster.sim import Image, Plane, PlaneSpec, parse_slice
from cluster.sim.api import ApiError
from cluster.sim.programs import Programs
from tests.kube.kubelets import IMAGE, PATIENCE, Pods
from tests.waiting import wait_until

pytestmark = [pytest.mark.kube, pytest.mark.timeout(600)]

SLICE = {"nodeSelector": {"cloud.google.com/gke-tpu-accelerator": "tpu-v6e-slice"}}
CHIPS = {"resources": {"limits": {"google.com/tpu": "4"}}}
FAULT = "sim.kinetic.dev/fault"


@pytest.fixture(scope="module")
def busy_plane(programs: Programs, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plane]:
    """A plane whose pods run."""
    spec = PlaneSpec(
        pools=(parse_slice("v6e:4x4:4"),),
        images=(Image("example/*", str(Path(sys.executable).parent)),),
        kuberay=False,
        memory_limits=True,
    )
    with Plane(spec, programs, tmp_path_factory.mktemp("planes")) as plane:
        yield plane


@pytest.fixture
def pods(busy_plane: Plane) -> Iterator[Pods]:
    """A namespace of the test's own."""
    name = f"pods-{uuid.uuid4().hex[:8]}"
    busy_plane.api.create("/api/v1/namespaces", {"metadata": {"name": name}})
    wait_until(
        lambda: busy_plane.api.exists(f"/api/v1/namespaces/{name}/serviceaccounts/default"), PATIENCE, "its account"
    )
    yield Pods(busy_plane, name)
    busy_plane.api.delete(f"/api/v1/namespaces/{name}")


def test_what_a_pod_finds(pods: Pods) -> None:
    api, ns = pods.plane.api, pods.namespace
    api.create(f"/api/v1/namespaces/{ns}/configmaps", {"metadata": {"name": "cm"}, "data": {"k": "from-map"}})
    api.create(f"/api/v1/namespaces/{ns}/secrets", {"metadata": {"name": "s"}, "stringData": {"pw": "from-secret"}})
    mounts = [{"name": name, "mountPath": f"/{name}"} for name in ("cm", "s", "scratch")]
    volumes: list[dict[str, Any]] = [
        {"name": "cm", "configMap": {"name": "cm"}},
        {"name": "s", "secret": {"secretName": "s"}},
        {"name": "scratch", "emptyDir": {"medium": "Memory", "sizeLimit": "8Mi"}},
    ]
    env = [
        {"name": "PW", "valueFrom": {"secretKeyRef": {"name": "s", "key": "pw"}}},
        {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        {"name": "BOTH", "value": "$(PW)@$(IP)"},
    ]
    first = {"name": "first", "image": IMAGE, "command": ["sh", "-c", "echo kept > /scratch/x"]}
    account = "/run/secrets/kubernetes.io/serviceaccount/namespace"
    pods.run(
        "finds",
        f"cat /cm/k /s/pw /scratch/x; echo; echo $BOTH; hostname; cat {account}",
        {"volumes": volumes, "initContainers": [{**first, "volumeMounts": mounts}]},
        env=env,
        volumeMounts=mounts,
    )
    address = pods.wait_phase("finds", "Succeeded")["status"]["podIP"]
    words = pods.log("finds").split()
    assert words == ["from-mapfrom-secretkept", f"from-secret@{address}", "finds", ns]
    assert {"Scheduled", "Pulled", "Created", "Started"} <= pods.reasons("finds")


def test_commands_inside_ports_and_services(pods: Pods) -> None:
    probe = {"httpGet": {"port": 8000, "path": "/"}, "periodSeconds": 1}
    service = {
        "metadata": {"name": "svc"},
        "spec": {"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": 8000}]},
    }
    pods.plane.api.create(f"/api/v1/namespaces/{pods.namespace}/services", service)
    pods.run("web", "mkdir /w; cd /w; echo hello > index.html; exec python3 -m http.server", readinessProbe=probe)
    pods.wait_ready("web")
    pods.plane.api.patch(f"{pods.path}/web", {"metadata": {"labels": {"app": "web"}}})
    code, out, wrong = pods.execute("web", "sh", "-c", "cat; hostname; echo oh >&2; exit 7", typed=b"typed ")
    assert (code, out, wrong) == (7, "typed web\n", "oh\n")
    assert pods.execute("web", "true")[0] == 0
    answer = pods.through_forward("web", 8000, b"GET / HTTP/1.0\r\n\r\n")
    assert answer.startswith(b"HTTP/1.0 200")
    assert answer.endswith(b"hello\n")
    ask = "import urllib.request as u; print(u.urlopen('http://svc').status)"

    def is_served() -> bool:
        return pods.execute("web", "python3", "-c", ask)[:2] == (0, "200\n")

    wait_until(is_served, PATIENCE, "the service to lead to the pod", 0.2)


@pytest.mark.parametrize(
    ("script", "code", "reason"),
    [("exit 3", 3, "Error"), ("exec tail /dev/zero", 137, "OOMKilled")],
)
def test_how_containers_end(pods: Pods, script: str, code: int, reason: str) -> None:
    pods.run("ends", script, resources={"limits": {"memory": "48Mi"}})
    pods.wait_phase("ends", "Failed")
    ended = pods.state("ends")["terminated"]
    assert (ended["exitCode"], ended["reason"]) == (code, reason)


def test_a_program_that_is_not_there(pods: Pods) -> None:
    pods.run("none", command=["no-such-program"])
    pods.wait_phase("none", "Failed")
    ended = pods.state("none")["terminated"]
    assert (ended["exitCode"], ended["reason"]) == (128, "StartError")
    assert "executable file not found" in ended["message"]


def test_images_and_secrets_that_are_missing_are_waited_for(pods: Pods) -> None:
    pods.run("pull", "true", image="nowhere/none:1")
    env = [{"name": "X", "valueFrom": {"secretKeyRef": {"name": "late", "key": "k"}}}]
    pods.run("config", "echo $X", env=env)

    def waits(name: str) -> str:
        return str((pods.state(name).get("waiting") or {}).get("reason", ""))

    wait_until(lambda: waits("pull") == "ImagePullBackOff", PATIENCE, "the pull to be given up", 0.1)
    wait_until(lambda: {"Failed", "BackOff", "Pulling"} <= pods.reasons("pull"), PATIENCE, "its events", 0.1)
    wait_until(lambda: waits("config") == "CreateContainerConfigError", PATIENCE, "the secret to be missed", 0.1)
    path = f"/api/v1/namespaces/{pods.namespace}/secrets"
    pods.plane.api.create(path, {"metadata": {"name": "late"}, "stringData": {"k": "came"}})
    pods.wait_phase("config", "Succeeded")
    assert pods.log("config") == "came\n"


def test_an_end_in_grace_with_its_hook_and_then_its_sidecar(pods: Pods) -> None:
    shared = {"volumeMounts": [{"name": "v", "mountPath": "/v"}]}
    loop = "trap 'echo {0} >> /v/order; exit 0' TERM; touch /v/{0}; while :; do sleep 0.05; done"
    side = {"name": "side", "image": IMAGE, "restartPolicy": "Always", "command": ["sh", "-c", loop.format("side")]}
    hook = {"preStop": {"exec": {"command": ["sh", "-c", "echo hook >> /v/order"]}}}
    folder = pods.plane.kubeconfig.parent / f"hooks-{uuid.uuid4().hex[:6]}"
    folder.mkdir()
    pods.run(
        "graceful",
        loop.format("main"),
        {
            "initContainers": [{**side, **shared}],
            "volumes": [{"name": "v", "hostPath": {"path": str(folder)}}],
            "terminationGracePeriodSeconds": 30,
        },
        lifecycle=hook,
        **shared,
    )
    wait_until(lambda: {"main", "side"} <= {one.name for one in folder.iterdir()}, PATIENCE, "both to run")
    pods.delete("graceful")
    pods.wait_gone("graceful")
    assert (folder / "order").read_text().split() == ["hook", "main", "side"]


def test_a_container_that_fails_its_liveness_probe_is_started_again(pods: Pods) -> None:
    probe = {"exec": {"command": ["test", "!", "-e", "/broken"]}, "periodSeconds": 1, "failureThreshold": 1}
    pods.run("unfit", "sleep 0.5; touch /broken; sleep 1000", {"restartPolicy": "Always"}, livenessProbe=probe)

    def restarts() -> int:
        return int((pods.get("unfit")["status"].get("containerStatuses") or [{"restartCount": 0}])[0]["restartCount"])

    wait_until(lambda: restarts() > 0, PATIENCE, "a restart", 0.1)
    assert {"Unhealthy", "Killing"} <= pods.reasons("unfit")
    pods.plane.api.delete(f"{pods.path}/unfit")
    pods.wait_gone("unfit")


def _annotate(pods: Pods, node: str, fault: str | None) -> None:
    pods.plane.api.patch(f"/api/v1/nodes/{node}", {"metadata": {"annotations": {FAULT: fault}}})


def _is_node_ready(pods: Pods, node: str) -> bool:
    stated = pods.plane.api.get(f"/api/v1/nodes/{node}")["status"]["conditions"]
    return any(one["type"] == "Ready" and one["status"] == "True" for one in stated)


def _taints(pods: Pods, node: str) -> set[str]:
    return {one["key"] for one in pods.plane.api.get(f"/api/v1/nodes/{node}")["spec"].get("taints") or []}


def test_a_host_that_is_preempted_with_notice_and_comes_back(pods: Pods) -> None:
    pods.run("host", "trap 'echo term' TERM; echo up; while :; do sleep 0.05; done", SLICE, **CHIPS)
    node = pods.wait_ready("host")["spec"]["nodeName"]
    pods.wait_log("host", "up")
    _annotate(pods, node, "preempt:60")
    wait_until(lambda: "cloud.google.com/impending-node-termination" in _taints(pods, node), PATIENCE, "notice", 0.1)
    status = pods.wait_phase("host", "Failed")["status"]
    assert (status["reason"], status["containerStatuses"][0]["state"]["terminated"]["exitCode"]) == ("Terminated", 137)
    disruption = [one for one in status["conditions"] if one["type"] == "DisruptionTarget"]
    assert [one["reason"] for one in disruption] == ["TerminationByKubelet"]
    assert not _is_node_ready(pods, node)
    _annotate(pods, node, None)
    wait_until(lambda: _is_node_ready(pods, node), PATIENCE, "the host to be back", 0.1)
    assert "cloud.google.com/impending-node-termination" not in _taints(pods, node)


def test_a_silent_host_finishes_what_it_missed_when_it_is_back(pods: Pods) -> None:
    pods.run("far", "echo up; while :; do sleep 0.05; done", SLICE, **CHIPS)
    pod = pods.wait_ready("far")
    node, address = pod["spec"]["nodeName"], pod["status"]["podIP"]
    pods.run("near", f"until ! timeout 1 bash -c '</dev/tcp/{address}/1' 2>&1 | grep refused; do sleep 0.1; done")
    _annotate(pods, node, "silent")
    pods.wait_phase(
        "near", "Succeeded"
    )  # where nobody listens, a host that is there refuses, and one that is cut off doesn't
    pods.delete("far")
    _annotate(pods, node, None)
    pods.wait_gone("far")


def test_a_host_without_power_loses_its_containers_and_says_so_later(pods: Pods) -> None:
    pods.run("dark", "echo up; while :; do sleep 0.05; done", SLICE, **CHIPS)
    node = pods.wait_ready("dark")["spec"]["nodeName"]
    _annotate(pods, node, "crash")
    _annotate(pods, node, None)
    pods.wait_phase("dark", "Failed")
    assert pods.state("dark")["terminated"]["exitCode"] == 137


def test_chips_come_with_what_the_device_plugin_tells(pods: Pods) -> None:
    pods.run("chips", "env", SLICE, **CHIPS)
    pods.wait_phase("chips", "Succeeded")
    env = dict(line.partition("=")[::2] for line in pods.log("chips").splitlines())
    assert (env["TPU_ACCELERATOR_TYPE"], env["TPU_TOPOLOGY"], env["TPU_SKIP_MDS_QUERY"]) == ("v6e-16", "4x4", "true")
    assert not {"TPU_WORKER_ID", "TPU_NAME", "TPU_WORKER_HOSTNAMES"} & set(env)


def test_a_killed_kubelet_takes_its_pods_along_and_runs_them_anew(pods: Pods) -> None:
    pods.run("again", "cat /proc/sys/kernel/random/uuid; sleep 1000", {"restartPolicy": "Always"})
    pods.run("once", "sleep 1000")
    pods.wait_ready("once")
    pods.wait_ready("again")
    first = pods.wait_log("again", "-")
    pods.plane.restart("kubelet")

    def is_new() -> bool:
        try:
            return pods.log("again") not in ("", first)
        except (OSError, ApiError):  # there is no kubelet yet
            return False

    wait_until(is_new, PATIENCE, "the pod to run anew", 0.2)
    pods.wait_phase("once", "Failed")
    assert pods.state("once")["terminated"]["reason"] == "ContainerStatusUnknown"


def test_a_bucket_is_a_volume_that_shows_its_objects(pods: Pods) -> None:
    bucket = pods.namespace
    store = pods.plane.gcs_url
    _post(f"{store}/storage/v1/b?project=p", json.dumps({"name": bucket}).encode(), "application/json")
    _post(f"{store}/upload/storage/v1/b/{bucket}/o?uploadType=media&name=in%2Fa", b"from-store", "text/plain")
    csi = {"driver": "gcsfuse.csi.storage.gke.io", "readOnly": True, "volumeAttributes": {"bucketName": bucket}}
    pods.run(
        "fuse",
        "cat /data/in/a; echo x > /data/out || echo refused",
        {"volumes": [{"name": "data", "csi": csi}]},
        volumeMounts=[{"name": "data", "mountPath": "/data"}],
    )
    pods.wait_phase("fuse", "Succeeded")
    log = pods.log("fuse")
    assert log.startswith("from-store")
    assert log.endswith("refused\n")


def _post(url: str, body: bytes, kind: str) -> None:
    request = urllib.request.Request(url, body, {"Content-Type": kind}, method="POST")
    with urllib.request.urlopen(request, timeout=20) as answer:
        answer.read()


def test_a_webhook_names_the_hosts_of_a_slice(programs: Programs, tmp_path: Path) -> None:
    spec = PlaneSpec(pools=(parse_slice("v6e:4x4:4"),), kuberay=False, tpu_webhook=True)
    with Plane(spec, programs, tmp_path) as plane:
        labels = {
            "app.kubernetes.io/name": "kuberay",
            "ray.io/cluster": "c",
            "ray.io/group": "g",
            "ray.io/replica-host-index": "2",
            "ray.io/worker-group-replica-index": "0",
            "ray.io/worker-group-replica-name": "g-x",
        }
        selector = {
            "cloud.google.com/gke-tpu-accelerator": "tpu-v6e-slice",
            "cloud.google.com/gke-tpu-topology": "4x4",
        }
        container = {"name": "ray", "image": "rayproject/ray:fake", **CHIPS}
        body = {
            "metadata": {"name": "p", "labels": labels},
            "spec": {"containers": [container], "nodeSelector": selector},
        }
        made = plane.api.create("/api/v1/namespaces/default/pods", body)["spec"]
        env = {one["name"]: one.get("value") for one in made["containers"][0]["env"]}
        assert (env["TPU_WORKER_ID"], env["TPU_NAME"]) == ("2", "g-0")
        assert made["affinity"]["podAffinity"]

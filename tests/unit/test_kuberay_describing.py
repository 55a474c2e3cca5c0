"""`f.manifest(kind)`: the YAML of what a cluster would be given for a function."""

from typing import Any

import pytest
import yaml

import kinetic_ray as kinetic
from kinetic_ray.backends.kuberay.describing import manifest_of
from kinetic_ray.errors import ConfigError, UsageError
from kinetic_ray.options import check_options

IMAGE = "registry.example.com/kinetic:1"
ENVIRON = {"KINETIC_HOME": "/nowhere", "KINETIC_STORE": "gs://bucket/prefix"}


def described(kind: str, name: str = "train", environ: dict[str, str] | None = None, **given: Any) -> list[Any]:
    options = check_options({"accelerator": "tpu-v6e-16", "image": IMAGE, **given})
    return list(yaml.safe_load_all(manifest_of(kind, name, options, ENVIRON | (environ or {}))))


def train() -> None:
    pass


def test_a_decorated_function_tells_its_manifest(kinetic_home: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KINETIC_STORE", "gs://bucket/prefix")
    function = kinetic.remote(accelerator="tpu-v6e-16", image=IMAGE, cluster="team", namespace="ml")(train)
    text = function.manifest("raycluster")
    assert text == function.manifest("raycluster") and text.endswith("\n")
    *_, cluster = yaml.safe_load_all(text)
    assert (cluster["kind"], cluster["metadata"]["name"], cluster["metadata"]["namespace"]) == (
        "RayCluster",
        "team",
        "ml",
    )
    assert yaml.safe_load(function.manifest("rayjob"))["metadata"]["name"].endswith("train")


def test_a_cluster_comes_with_what_it_needs_around_it() -> None:
    assert [each["kind"] for each in described("raycluster")] == [
        "ServiceAccount",
        "ServiceAccount",
        "ServiceAccount",
        "Role",
        "RoleBinding",
        "Role",
        "RoleBinding",
        "NetworkPolicy",
        "RayCluster",
    ]


def test_a_job_has_the_functions_options() -> None:
    [job] = described("rayjob", num_slices=3, timeout="1h", secrets=["hf", "wandb:WANDB_API_KEY", "hf:HF_TOKEN"])
    assert job["spec"]["activeDeadlineSeconds"] > 3600
    [group] = job["spec"]["rayClusterSpec"]["workerGroupSpecs"]
    assert (group["groupName"], group["numOfHosts"], group["replicas"]) == ("tpu-v6e-16", 4, 3)
    volumes = group["template"]["spec"]["volumes"]
    assert [each["secret"]["secretName"] for each in volumes] == ["hf", "wandb"]


@pytest.mark.parametrize("given", [{"spot": True}, {"capacity": "spot"}, {"accelerator": "tpu-v6e-16:spot"}])
def test_spot_is_spot_however_it_was_said(given: dict[str, Any]) -> None:
    [job] = described("rayjob", **given)
    [group] = job["spec"]["rayClusterSpec"]["workerGroupSpecs"]
    assert group["groupName"] == "tpu-v6e-16-spot"
    assert group["template"]["spec"]["nodeSelector"]["cloud.google.com/gke-spot"] == "true"


def test_a_cpu_gang_asks_for_what_its_hosts_need() -> None:
    resources = {"cpu": 2.5, "memory": "16GiB"}
    [job] = described("rayjob", accelerator="cpu", hosts=3, resources=resources)
    [group] = job["spec"]["rayClusterSpec"]["workerGroupSpecs"]
    limits = group["template"]["spec"]["containers"][0]["resources"]["limits"]
    assert (group["numOfHosts"], limits["cpu"], limits["memory"]) == (3, "3", str(2**34))


@pytest.mark.parametrize(
    ("name", "slug"),
    [
        ("train", "train"),
        ("Trainer.fit", "trainer-fit"),
        ("<lambda>", "lambda"),
        ("_x", "x"),
        ("7", "job-7"),
        ("é", "job"),
    ],
)
def test_jobs_are_called_after_functions(name: str, slug: str) -> None:
    [job] = described("rayjob", name)
    assert job["metadata"]["name"] == slug


def test_long_names_of_functions_are_cut() -> None:
    [job] = described("rayjob", "a" * 46 + "_b")
    assert job["metadata"]["name"] == "a" * 46


@pytest.mark.parametrize(
    ("kind", "told"),
    [("rayjobs", "did you mean 'rayjob'"), ("RayCluster", "did you mean 'raycluster'"), ("pod", "there are: rayjob")],
)
def test_other_kinds_are_refused_with_the_nearest(kind: str, told: str) -> None:
    with pytest.raises(UsageError) as refused:
        described(kind)
    assert told in str(refused.value)


@pytest.mark.parametrize(
    ("given", "environ", "told"),
    [
        ({"image": None}, {}, "image= is missing"),
        ({"image": "a b"}, {}, "image="),
        ({}, {"KINETIC_STORE": "/tmp/store"}, "pods can't reach it"),
        ({"cluster": "../x"}, {}, "cluster='../x'"),
        ({"namespace": "Kube"}, {}, "namespace='Kube'"),
        ({}, {"KINETIC_CLUSTER": "a" * 41}, "1 to 40"),
        ({"accelerator": "tpu-v2-16"}, {}, "GKE offers no nodes"),
    ],
)
def test_what_no_cluster_can_have_is_refused(given: dict[str, Any], environ: dict[str, str], told: str) -> None:
    with pytest.raises(ConfigError) as refused:
        described("rayjob", environ=environ, **given)
    assert told in str(refused.value)


def test_a_reservation_is_a_pools_to_name() -> None:
    with pytest.raises(UsageError, match="which reservation"):
        described("rayjob", capacity="reserved")

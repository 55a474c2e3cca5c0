"""What administrators apply by hand: the same accounts, rights and rules as the package's own manifests."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from kinetic_ray.backends.kuberay.clusters import RAY_VERSION, ClusterSpec
from kinetic_ray.backends.kuberay.manifests.rayclusters import surroundings
from kinetic_ray.backends.kuberay.manifests.text import to_yaml
from kinetic_ray.settings import SETTINGS

FOLDER = Path(__file__).parents[2] / "cluster"
KUBERAY = FOLDER / "kuberay"
_NETWORK = ("NetworkPolicy", "PodMonitor")


def cluster(monitoring: str = "") -> ClusterSpec:
    name = SETTINGS["cluster"].default
    assert name is not None
    return ClusterSpec(name, "kinetic", "image", "gs://bucket", monitoring=monitoring)


def documents(path: Path) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(path.read_text(encoding="utf-8")))


def test_accounts_and_rights_are_the_packages_own() -> None:
    wanted = [each for each in surroundings(cluster()) if each["kind"] not in _NETWORK]
    assert (KUBERAY / "base/access.yaml").read_text(encoding="utf-8") == to_yaml(wanted)


def test_the_rules_of_the_network_are_the_packages_own() -> None:
    wanted = [each for each in surroundings(cluster()) if each["kind"] == "NetworkPolicy"]
    assert (KUBERAY / "base/network.yaml").read_text(encoding="utf-8") == to_yaml(wanted)


def test_the_overlay_for_prometheus_says_what_the_package_says() -> None:
    made = surroundings(cluster("monitoring"))
    [policy] = [each for each in made if each["kind"] == "NetworkPolicy"]
    [patch] = documents(KUBERAY / "overlays/monitoring/network.yaml")[0]
    assert patch["value"] == policy["spec"]["ingress"][-1]
    monitors = [each for each in made if each["kind"] == "PodMonitor"]
    assert documents(KUBERAY / "overlays/monitoring/podmonitor.yaml") == monitors


@pytest.mark.parametrize("path", sorted(KUBERAY.rglob("kustomization.yaml")), ids=lambda path: path.parent.name)
def test_kustomizations_name_what_is_there(path: Path) -> None:
    [made] = documents(path)
    named = [*made["resources"], *(each["path"] for each in made.get("patches", ()) if "path" in each)]
    assert [name for name in named if not (path.parent / name).exists()] == []
    assert made["namespace"] == "kinetic"


def test_users_read_no_secrets_and_change_no_clusters() -> None:
    [role] = documents(KUBERAY / "base/users.yaml")
    resources = {name for rule in role["rules"] for name in rule["resources"]}
    assert not {"secrets", "pods/exec", "*"} & resources
    writing = {n for rule in role["rules"] if {"create", "patch"} & set(rule["verbs"]) for n in rule["resources"]}
    assert writing == {"pods/portforward", "rayjobs"}


def test_the_image_has_the_ray_that_manifests_name() -> None:
    recipe = (FOLDER / "images/Dockerfile").read_text(encoding="utf-8")
    assert re.findall(r"^ARG RAY=(.+)$", recipe, re.MULTILINE) == [RAY_VERSION]

"""Pools and clusters as users describe them: what can be one, and what is said of the rest."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinetic_ray.backends.kuberay.clusters import ClusterSpec
from kinetic_ray.backends.kuberay.names import (
    CLUSTER_LIMIT,
    JOB_LIMIT,
    check_image,
    check_label,
    check_name,
    check_quantity,
    check_subdomain,
)
from kinetic_ray.backends.kuberay.pools import Pool, Toleration, parse_pool
from kinetic_ray.core.accelerators import all_accelerators
from kinetic_ray.core.names import make_id
from kinetic_ray.errors import ConfigError

CLUSTER = ClusterSpec("team", "ml", "registry.example.com/kinetic:1", "gs://bucket/prefix")
HOSTILE = (
    "", "-", "a-", "-a", "A", "a_b", "a.b/../c", "../x", "a b", "a\n", "a\nkind: Secret", "a\0", "é", "a" * 64, "{}",
    "$(X)", "a;b", "'", '"', "a:b", "1a", None, 3, True, ["a"],
)  # fmt: skip


def pool(**fields: Any) -> Pool:
    return parse_pool({"name": "big", "accelerator": "tpu-v6e-16", **fields})


# Names.


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_are_refused(name: object) -> None:
    with pytest.raises(ConfigError, match="expected"):
        check_name(name, "pool")


@given(st.text(max_size=80))
def test_what_counts_as_a_name_is_one_to_kubernetes(text: str) -> None:
    try:
        name = check_name(text, "pool", 40)
    except ConfigError:
        return
    assert name == text
    assert len(name) <= 40
    assert name.replace("-", "a").isalnum() and name.isascii() and name == name.lower()
    assert name[0].isalpha() and name[-1] != "-"


def test_ids_of_jobs_are_names_of_rayjobs() -> None:
    assert check_name(make_id("job", 2**47, bytes(10)), "job", JOB_LIMIT)


@pytest.mark.parametrize(
    ("key", "value"), [("", "x"), ("a b", "x"), ("a/b/c", "x"), ("a", "x y"), ("a", "-"), ("a", "x" * 64)]
)
def test_labels_that_cannot_be_are_refused(key: str, value: str) -> None:
    with pytest.raises(ConfigError, match="node_selector"):
        check_label(key, value, "node_selector")


@pytest.mark.parametrize("text", ["", "A", "a..b", ".a", "a/b", "a\n", "x" * 254])
def test_dotted_names_that_cannot_be_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="queue"):
        check_subdomain(text, "queue")


@pytest.mark.parametrize(
    "image",
    ["ray", "rayproject/ray:2.60.0-py311", "localhost:5000/a/b", "eu-docker.pkg.dev/p/r/i@sha256:" + "0" * 64],
)
def test_images_are_taken(image: str) -> None:
    assert check_image(image, "image") == image


@pytest.mark.parametrize("image", ["", "a b", "A/b", "a:", "a@sha256:1", "a\n", "https://x/y", "-x", "a:b\nc"])
def test_what_is_no_image_is_refused(image: str) -> None:
    with pytest.raises(ConfigError, match="expected an image"):
        check_image(image, "image")


@pytest.mark.parametrize("amount", ["", "0", "16GiB", "1e3", "-1Gi", "1 Gi", "1.5Gi", 16])
def test_amounts_that_cannot_be_are_refused(amount: object) -> None:
    with pytest.raises(ConfigError, match="such as '16Gi'"):
        check_quantity(amount, "memory")


# Pools.


@pytest.mark.parametrize("accelerator", [row for row in all_accelerators() if row.gke_label or row.kind == "cpu"])
def test_every_accelerator_that_gke_offers_can_be_a_pool(accelerator: Any) -> None:
    made = Pool("p", accelerator, cpus=max(1, accelerator.cpus))
    assert made.hosts == accelerator.hosts
    assert made.is_slice == (accelerator.kind == "tpu" and accelerator.hosts > 1)


def test_a_pool_is_parsed_with_all_its_fields() -> None:
    made = pool(
        max_slices=4, capacity="reserved", reservation="r", cpus=8, memory="32Gi", secrets=["hf"], fuse=True,
        node_selector={"disk": "ssd"}, tolerations=[{"key": "team", "value": "ml", "effect": "NoSchedule"}],
    )  # fmt: skip
    assert made.tolerations == (Toleration("team", "ml", "NoSchedule"),)
    assert (made.secrets, dict(made.node_selector), made.max_slices) == (("hf",), {"disk": "ssd"}, 4)


def test_spot_can_be_said_with_the_accelerator() -> None:
    assert pool(accelerator="tpu-v6e-16:spot").capacity == "spot"


def test_hosts_of_a_gang_are_said_beside_it() -> None:
    assert pool(accelerator="gpu-l4", hosts=2).hosts == 2
    assert pool(accelerator="tpu-v6e-8", chips_per_host=4).hosts == 2


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"acelerator": "cpu"}, "unknown field 'acelerator'; did you mean 'accelerator'"),
        ({"accelerator": "tpu-v6e-15"}, "v6e has slices of"),
        ({"accelerator": "tpu-v2-16"}, "GKE offers no nodes"),
        ({"accelerator": "cpu-4"}, "cpu-4 has 4 CPUs a host"),
        ({"capacity": "spott"}, "did you mean 'spot'"),
        ({"capacity": "reserved"}, "go together"),
        ({"reservation": "r"}, "go together"),
        ({"accelerator": "cpu:spot", "capacity": "on-demand"}, "contradicts ':spot'"),
        ({"name": "Big"}, "pool='Big'"),
        ({"name": "a" * 31}, "1 to 30"),
        ({"max_slices": 0}, "max_slices=0"),
        ({"min_slices": 2}, "from 0 to 1"),
        ({"max_slices": True}, "max_slices=True"),
        ({"cpus": 0}, "cpus=0"),
        ({"memory": "16GB"}, "memory='16GB'"),
        ({"ephemeral_storage": 3}, "ephemeral_storage=3"),
        ({"secrets": "hf"}, "expected a list"),
        ({"secrets": ["../hf"]}, "secrets='../hf'"),
        ({"fuse": "no"}, "expected true or false"),
        ({"node_selector": ["a"]}, "expected a mapping"),
        ({"node_selector": {"cloud.google.com/gke-spot": "true"}}, "leave it out"),
        ({"tolerations": "x"}, "expected a list"),
        ({"tolerations": [{"keys": "x"}]}, "with 'key'"),
        ({"tolerations": [{"key": "x", "effect": "Never"}]}, "one of NoSchedule"),
    ],
)
def test_pools_that_cannot_be_are_refused_with_the_reason(fields: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError) as refused:
        pool(**fields)
    assert told in str(refused.value)


@pytest.mark.parametrize("missing", ["name", "accelerator"])
def test_a_pool_needs_a_name_and_an_accelerator(missing: str) -> None:
    given_fields = {"name": "big", "accelerator": "cpu"}
    del given_fields[missing]
    with pytest.raises(ConfigError, match=f"{missing} is missing"):
        parse_pool(given_fields)


# Clusters.


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"name": "a" * (CLUSTER_LIMIT + 1)}, "1 to 40"),
        ({"name": "team/x"}, "cluster='team/x'"),
        ({"namespace": "kube system"}, "namespace="),
        ({"image": "a b"}, "image="),
        ({"store": "/tmp/store"}, "pods can't reach it"),
        ({"store": "file:///tmp/store"}, "pods can't reach it"),
        ({"store": "gs://"}, "pods can't reach it"),
        ({"store": "gs://b/x y"}, "pods can't reach it"),
        ({"head_cpus": 0}, "head_cpus"),
        ({"head_memory": "much"}, "head_memory"),
        ({"head_storage": "much"}, "head_storage"),
        ({"queue": "a b"}, "queue"),
        ({"priority_class": "A"}, "priority_class"),
        ({"monitoring": "*"}, "monitoring"),
        ({"pools": (pool(), pool())}, "big: more than one"),
        ({"queue": "q", "pools": tuple(pool(name=f"p{n}") for n in range(8))}, "at most 7"),
    ],
)
def test_clusters_that_cannot_be_are_refused_with_the_reason(fields: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError) as refused:
        replace(CLUSTER, **fields)
    assert told in str(refused.value)


def test_a_password_in_a_store_is_never_shown() -> None:
    with pytest.raises(ConfigError) as refused:
        replace(CLUSTER, store="s3://ann:hush@bucket/x")
    assert "hush" not in str(refused.value)

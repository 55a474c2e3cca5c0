"""The test plane's pools: what is asked for, and the nodes that come of it."""

import pytest

from cluster.sim.network import node_address
from cluster.sim.nodes import is_usable, labels_of, nodes_of, taints_of
from cluster.sim.spec import GPUS, TPUS, NodePool, ShapeError, named_apart, parse_gpus, parse_slice
from kinetic_ray.core import accelerator_table
from kinetic_ray.core.accelerators import parse_accelerator


@pytest.mark.parametrize(
    ("text", "hosts", "chips", "machine"),
    [
        ("v6e:4x4:4", 4, 4, "ct6e-standard-4t"),
        ("v6e:4x4", 4, 4, "ct6e-standard-4t"),
        ("v6e:2x4:8", 1, 8, "ct6e-standard-8t"),
        ("v6e:2x4:4", 2, 4, "ct6e-standard-4t"),
        ("v6e:1x1", 1, 1, "ct6e-standard-1t"),
        ("v5e:2x2", 1, 4, "ct5lp-hightpu-4t"),
        ("v5p:2x2x4:4", 4, 4, "ct5p-hightpu-4t"),
        ("v4:2x2x2", 2, 4, "ct4p-hightpu-4t"),
        ("v7x:2x2x1:4", 1, 4, "tpu7x-standard-4t"),
    ],
)
def test_a_slice_has_the_hosts_of_its_topology(text: str, hosts: int, chips: int, machine: str) -> None:
    pool = parse_slice(text)
    assert (pool.hosts, pool.chips, pool.machine_type) == (hosts, chips, machine)
    assert len(pool.node_names()) == hosts
    assert pool.capacity == "on-demand"


@pytest.mark.parametrize(
    "text",
    ["", "v6e", "v9:4x4:4", "v6e:4y4:4", "v6e:4x4:3", "v6e:4x4:0", "v6e:4x4:four", "v6e:0x4", "v6e:4x4:4:cheap"],
)
def test_a_slice_that_cannot_be_is_refused_by_its_own_words(text: str) -> None:
    with pytest.raises(ShapeError, match=f"^'{text}"):
        parse_slice(text)


@pytest.mark.parametrize("text", ["l4", "l4:1", "b9:1:1", "l4:3:1", "l4:one:1", "l4:1:0", "l4:1:1:cheap", "l4:1:500"])
def test_gpus_that_cannot_be_are_refused(text: str) -> None:
    with pytest.raises(ShapeError):
        parse_gpus(text)


@pytest.mark.parametrize("name", ["", "A", "-a", "a-", "a_b", "a" * 41, "a/b"])
def test_names_that_no_pool_can_have_are_refused(name: str) -> None:
    with pytest.raises(ShapeError):
        NodePool(name, "cpu")


def test_pools_of_one_name_are_told_apart() -> None:
    pools = named_apart(tuple(map(parse_slice, ("v6e:4x4", "v5e:2x2", "v6e:4x4", "v6e:4x4"))))
    assert [pool.name for pool in pools] == ["v6e-4x4", "v5e-2x2", "v6e-4x4-b", "v6e-4x4-c"]


@pytest.mark.parametrize(
    ("capacity", "label"),
    [
        ("spot", "cloud.google.com/gke-spot"),
        ("reserved", "cloud.google.com/reservation-name"),
        ("flex-start", "cloud.google.com/gke-flex-start"),
    ],
)
def test_how_a_pool_is_paid_for_is_told_by_a_label(capacity: str, label: str) -> None:
    assert label in labels_of(parse_slice(f"v6e:4x4:4:{capacity}"))
    assert label in labels_of(parse_gpus(f"l4:1:2:{capacity}"))
    assert label not in labels_of(parse_slice("v6e:4x4:4"))


@pytest.mark.parametrize("family", sorted(TPUS))
def test_nodes_have_the_labels_that_the_package_looks_for(family: str) -> None:
    """Two tables, written apart: the plane's and the package's."""
    [known] = [row for row in accelerator_table.TPUS if row.name == family]
    for shape in known.shapes[:6]:
        accelerator = parse_accelerator(f"tpu-{family}-{shape}")
        pool = parse_slice(f"{family}:{shape}:{accelerator.chips_per_host}")
        assert pool.hosts == accelerator.hosts
        assert pool.machine_type == accelerator.machine_type
        assert accelerator.gke_labels.items() <= labels_of(pool).items()


@pytest.mark.parametrize(("model", "count"), [(model, count) for model in sorted(GPUS) for count in GPUS[model][1]])
def test_gpu_nodes_have_the_labels_that_the_package_looks_for(model: str, count: int) -> None:
    accelerator = parse_accelerator(f"gpu-{model}x{count}" if count > 1 else f"gpu-{model}")
    pool = parse_gpus(f"{model}:{count}:1")
    assert pool.machine_type == accelerator.machine_type
    assert accelerator.gke_labels.items() <= labels_of(pool).items()


def test_only_nodes_with_chips_are_tainted() -> None:
    assert taints_of(NodePool("cpus", "cpu")) == []
    assert [taint["key"] for taint in taints_of(parse_slice("v6e:4x4"))] == ["google.com/tpu"]
    assert [taint["key"] for taint in taints_of(parse_gpus("l4:1:2"))] == ["nvidia.com/gpu"]


def test_nodes_count_their_chips_and_have_addresses_of_their_own() -> None:
    nodes = list(nodes_of(parse_slice("v6e:4x4:4"), 3, "v1.36.3"))
    assert [node["metadata"]["name"] for node in nodes] == [f"v6e-4x4-{index}" for index in range(4)]
    assert {node["status"]["capacity"]["google.com/tpu"] for node in nodes} == {"4"}
    assert [node["status"]["addresses"][0]["address"] for node in nodes] == [node_address(n) for n in range(3, 7)]
    assert [node["spec"]["podCIDR"] for node in nodes] == [f"10.244.{number}.0/24" for number in range(3, 7)]
    assert len({node["metadata"]["labels"]["kubernetes.io/hostname"] for node in nodes}) == 4


@pytest.mark.parametrize("number", [0, 255, -1])
def test_there_are_no_more_nodes_than_addresses(number: int) -> None:
    with pytest.raises(ValueError, match="254"):
        node_address(number)


@pytest.mark.parametrize(
    ("status", "taint", "usable"),
    [
        ("True", "google.com/tpu", True),
        ("True", "node.kubernetes.io/not-ready", False),
        ("False", "google.com/tpu", False),
        ("Unknown", "node.kubernetes.io/unreachable", False),
    ],
)
def test_a_node_is_usable_when_it_is_ready_and_the_controllers_know(status: str, taint: str, usable: bool) -> None:
    node = {"spec": {"taints": [{"key": taint}]}, "status": {"conditions": [{"type": "Ready", "status": status}]}}
    assert is_usable(node) is usable
    assert not is_usable({"spec": {}, "status": {}})

"""The accelerator table and its grammar, against upstream's spellings, Ray's functions and arbitrary text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinetic_ray.core.accelerator_table import GPUS, TPUS
from kinetic_ray.core.accelerators import Accelerator, all_accelerators, parse_accelerator
from kinetic_ray.errors import UsageError

# name: chips, topology, hosts, chips per host, Ray's pod type, machine type, GCP's name where it counts cores
SLICES = {
    "tpu-v2-4": (4, "2x2", 1, 4, "v2-8", "", "v2-8"),
    "tpu-v2-256": (256, "16x16", 64, 4, "v2-512", "", "v2-512"),
    "tpu-v3-4": (4, "2x2", 1, 4, "v3-8", "ct3-hightpu-4t", "v3-8"),
    "tpu-v3-32": (32, "4x8", 8, 4, "v3-64", "ct3p-hightpu-4t", "v3-64"),
    "tpu-v3-1024": (1024, "32x32", 256, 4, "v3-2048", "ct3p-hightpu-4t", "v3-2048"),
    "tpu-v4-4": (4, "2x2x1", 1, 4, "v4-8", "ct4p-hightpu-4t", "v4-8"),
    "tpu-v4-8": (8, "2x2x2", 2, 4, "v4-16", "ct4p-hightpu-4t", "v4-16"),
    "tpu-v4-4096": (4096, "16x16x16", 1024, 4, "v4-8192", "ct4p-hightpu-4t", "v4-8192"),
    "tpu-v5e-1": (1, "1x1", 1, 1, "v5litepod-1", "ct5lp-hightpu-1t", ""),
    "tpu-v5e-4": (4, "2x2", 1, 4, "v5litepod-4", "ct5lp-hightpu-4t", ""),
    "tpu-v5e-8": (8, "2x4", 1, 8, "v5litepod-8", "ct5lp-hightpu-8t", ""),
    "tpu-v5e-256": (256, "16x16", 64, 4, "v5litepod-256", "ct5lp-hightpu-4t", ""),
    "tpu-v5p-4": (4, "2x2x1", 1, 4, "v5p-8", "ct5p-hightpu-4t", "v5p-8"),
    "tpu-v5p-16": (16, "2x2x4", 4, 4, "v5p-32", "ct5p-hightpu-4t", "v5p-32"),
    "tpu-v5p-192": (192, "4x4x12", 48, 4, "v5p-384", "ct5p-hightpu-4t", "v5p-384"),
    "tpu-v5p-4x4x16": (256, "4x4x16", 64, 4, "v5p-512", "ct5p-hightpu-4t", "v5p-512"),
    "tpu-v5p-8960": (8960, "16x20x28", 2240, 4, "v5p-17920", "ct5p-hightpu-4t", "v5p-17920"),
    "tpu-v6e-1": (1, "1x1", 1, 1, "v6e-1", "ct6e-standard-1t", ""),
    "tpu-v6e-8": (8, "2x4", 1, 8, "v6e-8", "ct6e-standard-8t", ""),
    "tpu-v6e-16": (16, "4x4", 4, 4, "v6e-16", "ct6e-standard-4t", ""),
    "tpu-v6e-256": (256, "16x16", 64, 4, "v6e-256", "ct6e-standard-4t", ""),
    "tpu-v7x-1": (1, "1x1x1", 1, 1, "v7x-2", "tpu7x-standard-1t", "tpu7x-2"),
    "tpu-v7x-8": (8, "2x2x2", 2, 4, "v7x-16", "tpu7x-standard-4t", "tpu7x-16"),
    "tpu-v7x-9216": (9216, "16x24x24", 2304, 4, "v7x-18432", "tpu7x-standard-4t", "tpu7x-18432"),
}

SPELLINGS = {
    # keras-team/kinetic's: defaults
    "cpu": "cpu",
    "gpu": "gpu-l4",
    "tpu": "tpu-v5e-4",
    "v5litepod": "tpu-v5e-4",
    "tpu-v6e": "tpu-v6e-8",
    "v5p": "tpu-v5p-8",
    "v4": "tpu-v4-4",
    "tpu:v3": "tpu-v3-4",
    # bare counts
    "1": "gpu-h100",
    "8": "gpu-h100x8",
    "16": "gpu-a100-80gbx16",
    "32": "tpu-v5p-32",
    "256": "tpu-v5e-256",
    "4096": "tpu-v4-4096",
    "gpu:4": "gpu-h100x4",
    "gpu-16": "gpu-a100-80gbx16",
    "tpu:1": "tpu-v5e-1",
    "tpu:4": "tpu-v5e-4",
    "tpu-8": "tpu-v6e-8",
    "tpu:16": "tpu-v6e-16",
    "tpu:64": "tpu-v5e-64",
    # GPUs
    "l4": "gpu-l4",
    "gpu:l4": "gpu-l4",
    "gpu-l4x4": "gpu-l4x4",
    "l4x1": "gpu-l4",
    "a100x4": "gpu-a100x4",
    "gpu:a100-80gb": "gpu-a100-80gb",
    "a100-80gbx8": "gpu-a100-80gbx8",
    "gpu:l4-2": "gpu-l4x2",
    "nvidia-l4": "gpu-l4",
    "gpu:nvidia-tesla-t4x2": "gpu-t4x2",
    "nvidia-h100-80gbx8": "gpu-h100x8",
    "v100x8": "gpu-v100x8",
    "p4": "gpu-p4",
    "p100x4": "gpu-p100x4",
    # TPUs
    "tpu-v5e-1": "tpu-v5e-1",
    "v5litepod-8": "tpu-v5e-8",
    "tpu:v5litepod-2x2": "tpu-v5e-4",
    "tpu-v4-2x2x2": "tpu-v4-8",
    "v3-4": "tpu-v3-4",
    "  A100X4  ": "gpu-a100x4",
    "TPU-V6E-16": "tpu-v6e-16",
    # Ours: further families, aliases and counts
    "tpu-v5p-2x2x4": "tpu-v5p-16",
    "tpu-v5p-4x8x8": "tpu-v5p-256",
    "tpu7x-8": "tpu-v7x-8",
    "tpu-ironwood-2x4x4": "tpu-v7x-32",
    "ironwood": "tpu-v7x-4",
    "trillium-4": "tpu-v6e-4",
    "v2-16": "tpu-v2-16",
    "h200x8": "gpu-h200x8",
    "b200-8": "gpu-b200x8",
    "gb200x4": "gpu-gb200x4",
    "h100-mega-8": "gpu-h100-megax8",
    "rtx-pro-6000": "gpu-rtx-pro-6000",
    "nvidia-rtx-pro-6000x2": "gpu-rtx-pro-6000x2",
    "cpu:1": "cpu",
    "cpu:8": "cpu-8",
    "CPU-8": "cpu-8",
}

# spelling: what the message must name
REFUSED = {
    "": "tpu-v6e-8",
    "unknown": "TPUs: v2, v3, v4, v5e, v5p, v6e, v7x",
    "tpu-v6-16": "'tpu-v6e-16'",
    "tpu_v6e_16": "'tpu-v6e-16'",
    "tpu-v6e-12": "'tpu-v6e-8' or 'tpu-v6e-16'",
    "tpu-v6e-0": "'tpu-v6e-1'",
    "v6e-2x8": "2x4, 4x4",
    "v5litepod-3x3": "1x1, 2x2, 2x4",
    "tpu-v6e-512": "'tpu-v6e-256'",
    "tpu-v3-8": "counts cores). Did you mean 'tpu-v3-4'",
    "v3-2048": "counts cores). Did you mean 'tpu-v3-1024'",
    "tpu-v5p-4x2x2": "'tpu-v5p-2x2x4'",
    "tpu-v5p-2x2x2x2": "no accelerator is called that",
    "tpu-v5p-4x4x260": "v5p has the topologies",
    "tpu-v5p-4288": "multiples of 64 up to 8960",  # 67 cubes in a row are longer than any ring
    "tpu-v4-4160": "up to 4096",
    "tpu-v7x-3": "'tpu-v7x-1' or 'tpu-v7x-4'",
    "l4x3": "1, 2, 4 or 8 GPUs",
    "h100x16": "'gpu-h100x8'",
    "h200": "'gpu-h200x8'",
    "gpu:3": "'gpu:2' or 'gpu:4'",
    "tpu:2": "'tpu:1' or 'tpu:4'",
    "9": "'8' or '16'",
    "cpu:0": "'cpu:4'",
    "cpu:x": "'cpu'",
    "tpu-l4": "'gpu-l4'",
    "gpu-v6e-8": "'tpu-v6e-8'",
    "tpu-": "'tpu-v6e-8'",
    "v6e-\u0661\u0666": "no accelerator is called that",  # digits, but not the ones that people type
    "9" * 5000: "...",
    "tpu-v6e-" + "1" * 5000: "...",
}

CORE_COUNTED = {"v2", "v3", "v4", "v5p", "v7x"}


@pytest.mark.parametrize("name", SLICES)
def test_slices(name: str) -> None:
    found = parse_accelerator(name)
    assert found.name == name
    assert found.kind == "tpu"
    assert SLICES[name] == (
        found.chips,
        found.topology,
        found.hosts,
        found.chips_per_host,
        found.pod_type,
        found.machine_type,
        found.gcp_name,
    )


@pytest.mark.parametrize(("spelling", "name"), SPELLINGS.items())
def test_spellings(spelling: str, name: str) -> None:
    found = parse_accelerator(spelling)
    assert found.name == name
    assert not found.spot
    with_suffix = parse_accelerator(f"{spelling.strip()}:Spot ")
    assert with_suffix.spot
    assert with_suffix == found  # spot is how it was asked for, not what it is


@pytest.mark.parametrize(("spelling", "hint"), REFUSED.items(), ids=[text[:20] for text in REFUSED])
def test_refused(spelling: str, hint: str) -> None:
    with pytest.raises(UsageError) as error:
        parse_accelerator(spelling)
    message = str(error.value)
    assert message.startswith("accelerator=")
    assert hint in message
    assert len(message) < 500


@pytest.mark.parametrize("text", [8, None, b"cpu", ["cpu"]])
def test_not_a_text(text: object) -> None:
    with pytest.raises(UsageError, match="accelerator="):
        parse_accelerator(text)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("spelling", "asked", "hosts", "chips_per_host", "chips"),
    [
        ("tpu-v6e-8", {"chips_per_host": 4}, 2, 4, 8),
        ("tpu-v6e-8", {"hosts": 2}, 2, 4, 8),
        ("tpu-v5e-8", {"chips_per_host": 4, "hosts": 2}, 2, 4, 8),
        ("tpu-v6e-8", {"chips_per_host": 8}, 1, 8, 8),
        ("tpu-v6e-16", {"hosts": 4, "chips_per_host": 4}, 4, 4, 16),
        ("gpu-l4x4", {"hosts": 3}, 3, 4, 12),
        ("gpu-l4x4", {"chips_per_host": 4}, 1, 4, 4),
        ("cpu", {"hosts": 5}, 5, 0, 0),
    ],
)
def test_hosts(spelling: str, asked: dict[str, int], hosts: int, chips_per_host: int, chips: int) -> None:
    found = parse_accelerator(spelling, **asked)
    assert (found.hosts, found.chips_per_host, found.chips) == (hosts, chips_per_host, chips)
    assert found.name == spelling


def test_four_chip_machines_for_eight_chips() -> None:
    assert parse_accelerator("v6e-8", chips_per_host=4).machine_type == "ct6e-standard-4t"
    assert parse_accelerator("v5e-8", chips_per_host=4).machine_type == "ct5lp-hightpu-4t"


@pytest.mark.parametrize(
    ("spelling", "asked", "hint"),
    [
        ("tpu-v6e-16", {"hosts": 3}, r"hosts=3 contradicts accelerator='tpu-v6e-16': it is 4 hosts x 4 chips"),
        ("tpu-v6e-16", {"chips_per_host": 8}, r"chips_per_host=8 contradicts"),
        ("tpu-v6e-8", {"chips_per_host": 2}, r"it is 1 host x 8 chips or 2 hosts x 4 chips"),
        ("tpu-v6e-8", {"chips_per_host": 4, "hosts": 1}, r"hosts=1, chips_per_host=4 contradicts"),
        ("tpu-v4-8", {"hosts": 1}, r"it is 2 hosts x 4 chips"),
        ("gpu-l4x4", {"chips_per_host": 2}, r"chips_per_host=2 contradicts accelerator='gpu-l4x4'"),
        ("cpu", {"chips_per_host": 4}, r"a host of it has no chips"),
        ("cpu", {"hosts": 0}, r"hosts=0: expected a whole number from 1"),
        ("cpu", {"hosts": True}, r"hosts=True: expected"),
        ("cpu", {"hosts": 2.0}, r"hosts=2.0: expected"),
        ("tpu-v6e-8", {"chips_per_host": -4}, r"chips_per_host=-4: expected"),
    ],
)
def test_contradictions(spelling: str, asked: dict[str, int], hint: str) -> None:
    with pytest.raises(UsageError, match=hint):
        parse_accelerator(spelling, **asked)


@pytest.mark.parametrize("row", all_accelerators(), ids=lambda row: row.name)
def test_rows(row: Accelerator) -> None:
    assert parse_accelerator(row.name) == row
    assert row.describe().startswith(f"{row.name}: ")
    assert "\n" not in row.describe()
    if row.kind == "tpu":
        assert bool(row.gcp_name) == (row.family in CORE_COUNTED)
        assert row.gcp_name in row.describe()
        assert parse_accelerator(f"{row.family}-{row.topology}") == row
        assert row.chips == _product(row.topology)
    if row.kind == "gpu":
        assert row.gke_labels == {"cloud.google.com/gke-accelerator": row.gke_label}
        assert parse_accelerator(f"{row.gke_label}x{row.chips}") == row


def test_gke_labels() -> None:
    assert parse_accelerator("tpu-v6e-16").gke_labels == {
        "cloud.google.com/gke-tpu-accelerator": "tpu-v6e-slice",
        "cloud.google.com/gke-tpu-topology": "4x4",
    }
    labels = {name: parse_accelerator(name).gke_label for name in ("v3-4", "v3-16", "v4-8", "v5e-8", "v5p-8", "v7x-8")}
    assert labels == {
        "v3-4": "tpu-v3-device",
        "v3-16": "tpu-v3-slice",
        "v4-8": "tpu-v4-podslice",
        "v5e-8": "tpu-v5-lite-podslice",
        "v5p-8": "tpu-v5p-slice",
        "v7x-8": "tpu7x",
    }
    assert parse_accelerator("v2-4").gke_labels == {}  # GKE has no v2
    assert parse_accelerator("cpu").gke_labels == {}


@pytest.mark.parametrize(
    ("spelling", "line"),
    [
        ("v4-8", "tpu-v4-8: 8 chips (2x2x2), 2 hosts x 4 chips, ct4p-hightpu-4t; GCP's name counts cores: v4-16"),
        ("v6e-1", "tpu-v6e-1: 1 chip (1x1), 1 host x 1 chip, ct6e-standard-1t"),
        ("gpu-l4x4", "gpu-l4x4: 1 host x 4 L4 GPUs, g2-standard-48"),
        ("cpu:4", "cpu-4: 1 host x 4 CPUs"),
    ],
)
def test_describe(spelling: str, line: str) -> None:
    assert parse_accelerator(spelling).describe() == line


def test_cpus_are_a_real_count() -> None:
    assert [parse_accelerator(text).cpus for text in ("cpu", "cpu:1", "cpu:96", "tpu", "gpu")] == [1, 1, 96, 0, 0]


def test_names_and_aliases_are_unique() -> None:
    rows = all_accelerators()
    assert len({row.name for row in rows}) == len(rows)
    words = [word for entry in (*TPUS, *GPUS) for word in (entry.name, *entry.aliases)]
    assert len(set(words)) == len(words)


WORDS = [word for entry in (*TPUS, *GPUS) for word in (entry.name, *entry.aliases)]
PIECES = st.sampled_from([*WORDS, "tpu", "gpu", "cpu", "-", ":", "x", "spot", "0", "1", "4", "8", "16", "64", " ", "é"])
TEXTS = st.one_of(
    st.text(), st.lists(PIECES, max_size=9).map("".join), st.from_regex(r"(?i)(tpu|gpu)?[-:]?v\d.-\d+(x\d+)*")
)


def _parse(text: str, **asked: int | None) -> Accelerator | UsageError:
    try:
        return parse_accelerator(text, **asked)
    except UsageError as error:
        return error


@given(TEXTS)
def test_any_text_parses_or_is_refused(text: str) -> None:
    found = _parse(text)
    if isinstance(found, Accelerator):
        assert parse_accelerator(found.name) == found
        assert found.hosts * found.chips_per_host == found.chips


CUBES = st.integers(1, 12).map(lambda n: 4 * n)


@given(st.sampled_from(["v4", "v5p", "v7x"]), st.lists(CUBES, min_size=3, max_size=3))
def test_cubes(family: str, axes: list[int]) -> None:
    topology = "x".join(map(str, axes))
    found = _parse(f"{family}-{topology}")
    most = {"v4": 64, "v5p": 140, "v7x": 144}[family]
    assert isinstance(found, Accelerator) == (axes == sorted(axes) and _product(topology) <= 64 * most)
    if isinstance(found, Accelerator):
        assert found.topology == topology
        assert parse_accelerator(found.name) == found
        by_count = parse_accelerator(f"{family}-{found.chips}")
        assert by_count.chips == found.chips
        assert max(map(int, by_count.topology.split("x"))) <= max(axes)  # a count means the most compact shape


@given(st.sampled_from(all_accelerators()), st.none() | st.integers(1, 9), st.none() | st.integers(1, 9))
def test_hosts_times_chips(row: Accelerator, chips_per_host: int | None, hosts: int | None) -> None:
    found = _parse(row.name, chips_per_host=chips_per_host, hosts=hosts)
    if isinstance(found, UsageError):
        assert str(found).startswith(("chips_per_host=", "hosts="))
        assert (chips_per_host, hosts) != (None, None)
        return
    assert found.hosts * found.chips_per_host == found.chips
    assert hosts in (None, found.hosts)
    assert chips_per_host in (None, found.chips_per_host)
    assert found.kind != "tpu" or found.chips == row.chips
    assert parse_accelerator(found.name, chips_per_host=found.chips_per_host or None, hosts=found.hosts) == found


# Against Ray's own tables. The exceptions are slices that GKE offers and Ray's list of topologies leaves out.
RAY_LACKS = {"tpu-v2-4", "tpu-v3-4", "tpu-v4-2048", "tpu-v4-4096", "tpu-v7x-1", "tpu-v7x-4096"}


@pytest.mark.parametrize("row", [row for row in all_accelerators() if row.kind == "tpu"], ids=lambda row: row.name)
def test_ray_agrees(row: Accelerator) -> None:
    from ray._private.accelerators import tpu
    from ray.util.tpu import get_tpu_version_from_type, get_tpu_worker_resources

    assert get_tpu_version_from_type(row.ray_type) == row.ray_version
    assert tpu.infer_tpu_pod_type_from_topology(row.topology, row.ray_version) == row.pod_type
    assert tpu.get_total_chips_from_accelerator_type(row.pod_type) == row.chips
    assert tpu.TPUAcceleratorManager.is_valid_tpu_accelerator_type(row.pod_type)
    assert tpu.TPUAcceleratorManager.validate_resource_request_quantity(row.chips_per_host)[0]
    known = tpu.TPUAcceleratorManager.is_valid_tpu_accelerator_topology(row.ray_version, row.topology)
    assert known == (row.name not in RAY_LACKS)
    given = row.chips_per_host if row.name == "tpu-v7x-1" else None  # Ray takes every v7x host for one with 4 chips
    hosts, resources = get_tpu_worker_resources(row.topology, row.ray_type, chips_per_vm=given)
    assert (hosts, resources["TPU"]) == (row.hosts, row.chips_per_host)


@pytest.mark.parametrize("spelling", ["tpu-v6e-8", "tpu-v5e-8"])
def test_ray_agrees_on_two_hosts(spelling: str) -> None:
    from ray.util.tpu import get_tpu_worker_resources

    found = parse_accelerator(spelling, chips_per_host=4)
    hosts, resources = get_tpu_worker_resources(found.topology, found.ray_type, chips_per_vm=4)
    assert (hosts, resources["TPU"]) == (found.hosts, found.chips_per_host) == (2, 4)


@pytest.mark.parametrize("name", ["v2", "v3", "v4", "v5litepod", "v5p", "v6e", "v7x"])
def test_every_generation_and_topology_of_ray_is_known(name: str) -> None:
    from ray._private.accelerators.tpu import VALID_TPU_TOPOLOGY, VALID_TPU_TYPES

    assert set(VALID_TPU_TYPES) == {family.ray_version for family in TPUS}
    for topology in VALID_TPU_TOPOLOGY[name]:
        axes = [int(axis) for axis in topology.split("x")]
        if topology == "2x8" or (topology != "2x2x1" and axes != sorted(axes)):
            continue  # not GKE's: no 2x8, and axes in rising order
        assert parse_accelerator(f"{name}-{topology}").topology == topology


def test_ray_knows_the_gpus() -> None:
    from ray.util.accelerators import accelerators

    known = {value for key, value in vars(accelerators).items() if key.startswith("NVIDIA")}
    assert {model.ray_type for model in GPUS} <= known


def _product(topology: str) -> int:
    product = 1
    for axis in topology.split("x"):
        product *= int(axis)
    return product

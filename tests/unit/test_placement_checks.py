"""Ranks of a lease, proof of a placement, and the variables of several slices."""

from typing import Any

import pytest

from kinetic_ray.runner.queue import Lease, Slice, Ticket
from kinetic_ray.runner.slices import Host, Misplaced, check_hosts, hosts_of, multislice_env

TWO = Lease(
    Ticket("job-a", 1, "tpu-v6e-8", chips_per_host=4, slices=2),
    (Slice("s-0", ("n0", "n1")), Slice("s-1", ("n2", "n3"))),
)


def described(**changes: dict[str, Any]) -> list[dict[str, Any]]:
    found = [
        {"node_id": "n0", "slice_name": "s-0", "worker_id": 0},
        {"node_id": "n1", "slice_name": "s-0", "worker_id": 1},
        {"node_id": "n2", "slice_name": "s-1", "worker_id": 0},
        {"node_id": "n3", "slice_name": "s-1", "worker_id": 1},
    ]
    for place, change in changes.items():
        found[int(place.removeprefix("rank"))].update(change)
    return found


def test_rank_is_slice_index_times_hosts_plus_worker_id() -> None:
    assert [(h.rank, h.slice_index, h.slice_name, h.worker_id, h.node_id) for h in hosts_of(TWO)] == [
        (0, 0, "s-0", 0, "n0"),
        (1, 0, "s-0", 1, "n1"),
        (2, 1, "s-1", 0, "n2"),
        (3, 1, "s-1", 1, "n3"),
    ]


def test_ranks_of_cpu_hosts() -> None:
    lease = Lease(Ticket("job-a", 1, "cpu", hosts=2, cpus=1.0))
    assert hosts_of(lease) == (Host(0, worker_id=0), Host(1, worker_id=1))


def test_a_true_placement_is_accepted() -> None:
    assert check_hosts(hosts_of(TWO), described()) == hosts_of(TWO)


def test_cpu_hosts_learn_their_nodes_and_may_share_one() -> None:
    lease = Lease(Ticket("job-a", 1, "cpu", hosts=2, cpus=1.0))
    found = [{"node_id": "head", "slice_name": "", "worker_id": 0}] * 2
    assert [host.node_id for host in check_hosts(hosts_of(lease), found)] == ["head", "head"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        pytest.param(
            {"rank1": {"slice_name": "s-1"}},
            "rank 1 belongs on host 1 of s-0, but runs on host 1 of s-1",
            id="slices mixed",
        ),
        pytest.param(
            {"rank2": {"worker_id": 1}}, "rank 2 belongs on host 0 of s-1, but runs on host 1 of s-1", id="order"
        ),
        pytest.param(
            {"rank0": {"slice_name": ""}}, "rank 0 belongs on host 0 of s-0, but runs on host 0 of no slice", id="none"
        ),
        pytest.param({"rank3": {"node_id": "n9"}}, "host 1 of s-1 is node n9 now, n3 was granted", id="another node"),
    ],
)
def test_anything_else_is_refused_loudly(changes: dict[str, dict[str, Any]], words: str) -> None:
    with pytest.raises(Misplaced) as caught:
        check_hosts(hosts_of(TWO), described(**changes))
    assert str(caught.value) == words


def test_two_ranks_may_not_share_a_host() -> None:
    hosts = tuple(Host(rank, 0, "s-0", rank) for rank in range(2))
    with pytest.raises(Misplaced, match="share a node"):
        check_hosts(hosts, [{"node_id": "n0", "slice_name": "s-0", "worker_id": rank} for rank in range(2)])


def test_megascale_only_for_several_slices() -> None:
    rank3 = hosts_of(TWO)[3]
    assert multislice_env(rank3, 1, "10.0.0.1:4000") == {}
    assert multislice_env(rank3, 2, "10.0.0.1:4000") == {
        "MEGASCALE_COORDINATOR_ADDRESS": "10.0.0.1",
        "MEGASCALE_PORT": "4000",
        "MEGASCALE_NUM_SLICES": "2",
        "MEGASCALE_SLICE_ID": "1",
    }

"""Gangs of 4 hosts with 4 devices each: real JAX, real collectives, no Ray."""

import threading
from collections.abc import Callable

import pytest

from kinetic_ray.core.outcome import Outcome
from kinetic_ray.journal import JobJournal
from kinetic_ray.runner.task import Limits
from kinetic_ray.store import Store
from tests.integration.host import programs
from tests.integration.host.gangs import JOB_ID, Gang, alive
from tests.waiting import wait_until

MakeGang = Callable[..., Gang]


def test_all_devices_sum_up_and_ten_gangs_in_a_row_end_well(gang_of: MakeGang) -> None:
    gang = gang_of(4, 4)
    ports = set()
    for _ in range(10):
        assert gang.run(programs.all_reduce) == [(16, 120.0)] * 4
        ports.add(gang.coordinator)
    assert len(ports) == 10


def test_initialize_and_shutdown_in_user_code_do_no_harm(gang_of: MakeGang) -> None:
    gang = gang_of(2, 4)
    assert gang.run(programs.users_own_initialize) == [(8, 28.0)] * 2
    assert "jax.distributed.initialize() changes nothing here" in gang.log(1)


def test_a_single_host_needs_no_coordinator(gang_of: MakeGang) -> None:
    gang = gang_of(1, 4)
    assert gang.run(programs.users_own_initialize) == [(4, 6.0)]


def test_followers_wait_for_a_late_coordinator(gang_of: MakeGang) -> None:
    gang = gang_of(3, 2)
    gang.start(programs.all_reduce, ranks=[2, 1])
    seen: list[str] = []
    wait_until(lambda: seen.extend(m["phase"] for m in gang.agents[2].next(1, 1)) or "init" in seen, what="rank 2")
    gang.start_ranks([0])
    assert [o.ok for o in gang.outcomes()] == [True] * 3


def test_a_follower_without_coordinator_gives_up_in_time(gang_of: MakeGang) -> None:
    gang = gang_of(2, 1)
    gang.start(programs.all_reduce, ranks=[1], limits=Limits(initialize=1))
    outcome = Outcome.from_dict(gang.messages(1)[-1]["outcome"])
    assert (outcome.ok, outcome.reason, outcome.phase) == (False, "SetupError", "init")
    assert "did not answer in 1 s" in outcome.message


def test_everything_listens_on_loopback_only(gang_of: MakeGang) -> None:
    gang = gang_of(2, 1)
    addresses = set().union(*gang.run(programs.listening_addresses))
    assert addresses
    assert {a.removeprefix("::ffff:") for a in addresses} <= {"127.0.0.1", "::1"}


def test_wrong_device_count_is_refused_before_the_call(gang_of: MakeGang) -> None:
    gang = gang_of(1, 4, env_vars={"JAX_NUM_CPU_DEVICES": "2"})
    gang.start(programs.all_reduce)
    outcome = gang.outcome()
    assert (outcome.reason, outcome.phase) == ("SetupError", "init")
    assert "JAX sees 2 cpu devices where the accelerator has 4 simulated devices" in outcome.message


@pytest.mark.parametrize("victim", [0, 2])
def test_a_killed_rank_is_named_and_its_peers_are_collateral(gang_of: MakeGang, victim: int) -> None:
    gang = gang_of(4, 2)
    gang.start(programs.die_on, victim)
    first = _first_to_end(gang)
    ended = Outcome.from_dict(gang.messages(victim)[-1]["outcome"])
    assert (ended.reason, ended.exit_code) == ("ProcessDied", -9)
    assert first.rank == victim or first.reason == "PeerLost"
    gang.fence()
    others = [o for o in gang.outcomes() if o.rank != victim]
    assert {o.reason for o in others} <= {"PeerLost", "Cancelled"}
    assert gang.run(programs.all_reduce) == [(8, 28.0)] * 4


def test_an_exception_on_one_rank_is_the_users_and_others_lose_a_peer(gang_of: MakeGang) -> None:
    gang = gang_of(4, 2)
    gang.start(programs.fail_on, 1)
    ended = Outcome.from_dict(gang.messages(1)[-1]["outcome"])
    assert (ended.reason, ended.phase) == ("UserError", "call")
    gang.fence()
    assert {o.reason for o in gang.outcomes() if o.rank != 1} <= {"PeerLost", "Cancelled"}


def test_a_lost_peer_is_told_apart_from_a_users_error(gang_of: MakeGang) -> None:
    gang = gang_of(2, 2)
    gang.start(programs.die_on, 1, limits=Limits(heartbeat=3))
    survivor = Outcome.from_dict(gang.messages(0)[-1]["outcome"])
    assert survivor.reason == "PeerLost", survivor


def test_a_rank_that_has_returned_is_no_success_while_a_peer_fails(gang_of: MakeGang, store: Store) -> None:
    gang = gang_of(2, 1)
    gang.start(programs.fail_late_on, 1, limits=Limits(heartbeat=3))
    early, late = gang.outcomes()
    assert (late.reason, late.phase) == ("UserError", "call")
    assert (early.ok, early.reason, early.phase) == (False, "PeerLost", "finish"), early
    published = JobJournal(store, JOB_ID).outcome(1, 1, 0)
    assert published is not None
    assert not published.ok


def _first_to_end(gang: Gang) -> Outcome:
    """The outcome that came first, as the driver's loop would see it."""
    arrived: list[Outcome] = []
    one = threading.Event()

    def follow(rank: int) -> None:
        arrived.append(Outcome.from_dict(gang.messages(rank)[-1]["outcome"]))
        one.set()

    for rank in range(len(gang.agents)):
        threading.Thread(target=follow, args=(rank,), daemon=True).start()
    assert one.wait(60)
    return arrived[0]


def test_fence_ends_all_ranks(gang_of: MakeGang) -> None:
    gang = gang_of(2, 1)
    pids = gang.start(programs.wait_forever)
    gang.fence()
    assert [alive(pid) for pid in pids] == [False, False]
    assert [(o.ok, o.reason) for o in gang.outcomes()] == [(False, "Cancelled")] * 2

"""Which rank's failure a call's caller is told of."""

import math
import signal

import pytest

from kinetic_ray.core.state import Reason
from kinetic_ray.runner.calls.failures import CallFailure
from kinetic_ray.runner.calls.verdict import COME_HOME, LOOK_AROUND, CallBook
from kinetic_ray.runner.inbox import HostLost
from kinetic_ray.runner.slices import Host

HOSTS = [Host(rank, 0, "tpu-v6e-16-0", rank, f"node-{rank}") for rank in range(4)]


def users(message: str = "ValueError: no", reason: Reason = Reason.USER_ERROR) -> CallFailure:
    return CallFailure(str(reason), message, traceback="Traceback ...", pickled=b"...")


def died(reason: Reason = Reason.PROCESS_DIED) -> CallFailure:
    return CallFailure(str(reason), "the process was killed by SIGKILL", exit_code=-9)


def stopped() -> CallFailure:
    return CallFailure(str(Reason.CANCELLED), "stopped with the others", exit_code=-9)


def lost(rank: int, reason: str = "NodeLost") -> HostLost:
    return HostLost(f"node-{rank}", "tpu-v6e-16-0", rank, reason)


def test_all_succeed() -> None:
    book = CallBook(HOSTS)
    for rank in range(4):
        assert not book.is_settled
        book.succeed(rank)
    assert book.is_settled and not book.has_failed and book.keeps_children


def test_a_users_error_gives_the_others_time_to_come_home() -> None:
    book = CallBook(HOSTS)
    book.fail(2, users())
    assert book.patience == COME_HOME and not book.is_settled
    for rank in (0, 1, 3):
        book.succeed(rank)
    assert book.is_settled and book.keeps_children
    verdict = book.verdict("train on tpu-v6e-16-0", "call-a")
    assert (verdict.rank, verdict.message, verdict.pickled) == (2, "ValueError: no", b"...")
    assert (verdict.where, verdict.gang) == ("train on tpu-v6e-16-0", "call-a")


def test_those_that_hang_are_named_as_stopped_and_are_not_kept() -> None:
    book = CallBook(HOSTS)
    book.fail(2, users())
    for rank in (0, 1, 3):
        book.fail(rank, stopped(), after_end=True)
    assert book.is_settled and not book.keeps_children
    assert book.verdict().message == "ValueError: no\n  stopped with it: ranks 0-1, 3"


def test_a_dead_process_ends_the_call_at_once() -> None:
    book = CallBook(HOSTS)
    book.fail(1, died())
    assert book.patience == 0.0 and not book.keeps_children
    assert book.verdict().rank == 1


@pytest.mark.parametrize("after", ["died", "host", "agent"])
def test_something_deeper_beats_a_lost_peer(after: str) -> None:
    book = CallBook(HOSTS)
    book.fail(0, users("connection closed by peer", Reason.PEER_LOST))
    assert book.patience == LOOK_AROUND
    match after:
        case "died":
            book.fail(3, died())
        case "host":
            book.lose_host(lost(3))
        case "agent":
            book.lose_agent(3, "it died")
    assert book.verdict().rank == 3
    assert not book.keeps_children


def test_a_gang_that_has_lost_a_peer_is_not_kept_even_if_all_came_home() -> None:
    book = CallBook(HOSTS)
    for rank in range(4):
        book.fail(rank, users("connection closed by peer", Reason.PEER_LOST))
    assert book.is_settled and not book.keeps_children


def test_a_lone_rank_has_no_peer_to_lose() -> None:
    book = CallBook(HOSTS[:1])
    book.fail(0, users("UNAVAILABLE: barrier", Reason.PEER_LOST))
    assert book.verdict().reason == Reason.USER_ERROR and book.keeps_children


@pytest.mark.parametrize(
    ("told", "reason"), [("Preempted", Reason.PREEMPTED), ("NodeLost", Reason.NODE_LOST), ("Silent", Reason.NODE_LOST)]
)
def test_a_lost_host_explains_its_lost_agent(told: str, reason: Reason) -> None:
    book = CallBook(HOSTS)
    book.lose_agent(2, "it died")
    assert book.unsure() == [HOSTS[2]] and book.patience == LOOK_AROUND
    book.lose_host(lost(2, told))
    assert not book.unsure() and book.lost == {2}
    assert (book.verdict().rank, book.verdict().reason) == (2, reason)


def test_a_lost_host_of_another_gang_is_no_concern() -> None:
    book = CallBook(HOSTS)
    book.lose_host(HostLost("node-9", "tpu-v6e-16-1", 1, "NodeLost"))
    assert not book.has_failed and len(book.running) == 4


def test_what_a_rank_says_after_its_end_changes_nothing() -> None:
    book = CallBook(HOSTS)
    book.fail(2, users())
    book.fail(2, died())
    book.lose_host(lost(2))
    assert book.verdict().message.startswith("ValueError: no")


@pytest.mark.parametrize("rank", [0, 2])
@pytest.mark.parametrize(
    "told", [users(), died(), died(Reason.SETUP_ERROR), users("connection closed by peer", Reason.PEER_LOST)]
)
def test_whatever_a_rank_fails_of_after_the_notice_is_the_preemption(told: CallFailure, rank: int) -> None:
    book = CallBook(HOSTS)
    book.expect_loss("node-2")
    book.fail(rank, told)
    verdict = book.verdict()
    assert (verdict.rank, verdict.reason, verdict.pickled) == (rank, Reason.PREEMPTED, None)
    whose = "its host" if rank == 2 else HOSTS[2].where
    assert verdict.message.startswith(f"{whose} was being preempted; {told.message}")
    assert not book.keeps_children


def test_what_a_rank_has_failed_of_before_the_notice_stays_the_cause() -> None:
    book = CallBook(HOSTS)
    book.fail(1, users())
    book.expect_loss("node-2")
    book.fail(2, died())
    assert (book.verdict().rank, book.verdict().reason) == (1, Reason.USER_ERROR)


@pytest.mark.parametrize("reason", [Reason.CANCELLED, Reason.DEADLINE_EXCEEDED, Reason.NODE_LOST])
def test_what_has_another_cause_for_sure_is_not_read_as_a_preemption(reason: Reason) -> None:
    book = CallBook(HOSTS)
    book.expect_loss("node-2")
    book.fail(2, died(reason))
    assert book.verdict().reason == reason


def test_after_the_notice_all_ranks_may_use_the_grace() -> None:
    book = CallBook(HOSTS)
    book.expect_loss("node-2")
    book.fail(0, users())
    assert book.patience == math.inf
    for rank in (1, 3):
        book.succeed(rank)
    book.lose_host(lost(2, "Preempted"))
    assert book.is_settled and book.patience < math.inf
    assert book.verdict().reason == Reason.PREEMPTED


def test_a_notice_that_kills_its_rank_leaves_nothing_to_be_patient_for() -> None:
    book = CallBook(HOSTS)
    book.expect_loss("node-2")
    book.fail(2, died().with_fields(exit_code=-signal.SIGTERM))
    assert book.patience == 0.0
    assert book.verdict().reason == Reason.PREEMPTED


def test_a_notice_for_another_host_is_no_concern() -> None:
    book = CallBook(HOSTS)
    book.expect_loss("node-9")
    book.fail(2, died())
    assert book.patience == 0.0 and book.verdict().reason == Reason.PROCESS_DIED


def test_an_agent_that_is_gone_after_the_notice_needs_no_look_around() -> None:
    book = CallBook(HOSTS)
    book.expect_loss("node-2")
    book.lose_agent(2, "it died")
    assert not book.unsure() and book.verdict().reason == Reason.PREEMPTED

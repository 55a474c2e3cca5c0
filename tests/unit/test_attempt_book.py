"""What the ranks of an attempt say becomes events, and one end."""

from collections.abc import Callable
from typing import Any

import pytest

from kinetic_ray.core.outcome import Blob, ErrorInfo, Outcome
from kinetic_ray.core.state import EventKind, Reason
from kinetic_ray.runner.book import AttemptBook
from kinetic_ray.runner.inbox import HostLost
from kinetic_ray.runner.slices import Host

HOSTS = tuple(Host(rank, 0, "tpu-v6e-16-0", rank, f"node-{rank}") for rank in range(4))
WELL = Outcome(0, True, value=Blob("ab", 2))


def ended(outcome: Outcome, *, fenced: bool = False) -> dict[str, Any]:
    return {"t": "ended", "ok": outcome.ok, "fenced": fenced, "outcome": outcome.to_dict()}


def ok(rank: int) -> dict[str, Any]:
    return ended(Outcome(rank, True, value=Blob("ab", 2), exit_code=0))


def raised(rank: int, message: str = "ValueError: bad batch") -> dict[str, Any]:
    error = ErrorInfo("ValueError", "builtins", message, "Traceback ...")
    return ended(Outcome(rank, False, "UserError", "call", message, error=error, exit_code=1))


def peer_lost(rank: int) -> dict[str, Any]:
    return ended(Outcome(rank, False, "PeerLost", "call", "JaxRuntimeError: Connection closed by peer", exit_code=1))


def died(rank: int) -> dict[str, Any]:
    return ended(Outcome(rank, False, "ProcessDied", "call", "the process was killed by SIGKILL", exit_code=-9))


def stopped(rank: int) -> dict[str, Any]:
    return ended(Outcome(rank, False, "Cancelled", "call", "stopped by the driver", exit_code=-9), fenced=True)


def lost(rank: int, reason: str = "NodeLost") -> HostLost:
    return HostLost(f"node-{rank}", "tpu-v6e-16-0", rank, reason)


@pytest.fixture
def book() -> AttemptBook:
    return AttemptBook(1, HOSTS)


def test_all_well(book: AttemptBook) -> None:
    for rank in range(4):
        assert not book.is_over
        assert book.hear(rank, ok(rank), 0.0) == [(EventKind.RANK_ENDED, {"rank": rank, "ok": True})]
    assert book.is_over
    assert book.end().ok


def test_the_first_failing_rank_ends_it_and_is_named(book: AttemptBook) -> None:
    book.hear(0, ok(0), 0.0)
    book.hear(2, {"t": "phase", "phase": "call", "at": 1.0}, 0.0)
    book.hear(2, raised(2), 0.0)
    assert book.is_over
    assert book.is_clear
    for rank in (1, 3):
        book.hear(rank, stopped(rank), 0.0)
    end = book.end()
    assert (end.ok, end.reason, end.rank) == (False, Reason.USER_ERROR, 2)
    assert end.message == ("rank 2 (host 2 of tpu-v6e-16-0): ValueError: bad batch\n  stopped with it: ranks 1, 3")


def test_under_a_lost_peer_the_rank_that_died_is_the_cause(book: AttemptBook) -> None:
    book.hear(0, peer_lost(0), 0.0)
    assert book.is_over
    assert not book.is_clear
    book.hear(2, died(2), 0.0)
    assert book.is_clear
    end = book.end()
    assert (end.reason, end.rank) == (Reason.PROCESS_DIED, 2)
    assert end.message.splitlines()[1].startswith("  after it: rank 0 (host 0 of tpu-v6e-16-0): JaxRuntimeError")


def test_only_lost_peers_is_clear_when_all_have_ended(book: AttemptBook) -> None:
    for rank in range(3):
        book.hear(rank, peer_lost(rank), 0.0)
        assert not book.is_clear
    book.hear(3, stopped(3), 0.0)
    assert book.is_clear
    assert (book.end().reason, book.end().rank) == (Reason.PEER_LOST, 0)


def test_a_lost_host_beats_its_agent_and_what_followed(book: AttemptBook) -> None:
    book.hear(1, peer_lost(1), 0.0)
    book.lose_agent(3, "it died")
    assert not book.is_clear
    assert [host.rank for host in book.unsure()] == [3]
    book.lose_host(lost(3))
    assert book.is_clear
    assert list(book.unsure()) == []
    end = book.end()
    assert (end.reason, end.rank) == (Reason.NODE_LOST, 3)
    assert end.message.startswith("rank 3 (host 3 of tpu-v6e-16-0): its host is gone\n")


def test_the_host_that_was_lost_first_is_named_before_the_rest_of_its_slice(book: AttemptBook) -> None:
    book.lose_agent(0, "it died")
    for rank, reason in ((2, "NodeLost"), (0, "SliceLost"), (1, "SliceLost")):
        book.lose_host(lost(rank, reason))
    lines = book.end().message.splitlines()
    assert lines[0] == "rank 2 (host 2 of tpu-v6e-16-0): its host is gone"
    assert lines[1].startswith("  after it: each of ranks 0-1: its host went with its slice")


def test_a_preempted_host_is_told_apart(book: AttemptBook) -> None:
    book.lose_host(lost(1, "Preempted"))
    assert book.end().reason is Reason.PREEMPTED


def test_what_happens_on_a_host_that_is_going_is_its_preemption(book: AttemptBook) -> None:
    [(kind, fields)] = book.expect_loss(2, 25.0)
    assert (kind, fields["message"]) == (
        EventKind.WARNED,
        "host 2 of tpu-v6e-16-0 is being preempted: its slice goes in 25 s",
    )
    book.hear(2, raised(2, "SystemExit: 143"), 0.0)
    book.hear(0, peer_lost(0), 0.0)
    assert not book.is_over  # the others may still save what they have
    book.lose_host(lost(2, "Preempted"))
    assert book.is_over
    end = book.end()
    assert (end.reason, end.rank) == (Reason.PREEMPTED, 2)
    host, broken = "host 2 of tpu-v6e-16-0", "JaxRuntimeError: Connection closed by peer"
    assert end.message.splitlines() == [
        f"rank 2 ({host}): its host was being preempted; SystemExit: 143",
        f"  after it: rank 0 (host 0 of tpu-v6e-16-0): {host} was being preempted; {broken}",
        "  stopped with it: ranks 1, 3",
    ]


def test_a_rank_that_the_notice_itself_ends_is_not_waited_for(book: AttemptBook) -> None:
    book.expect_loss(2, 25.0)
    outcome = Outcome(2, False, "ProcessDied", "call", "the process was killed by SIGTERM", exit_code=-15)
    book.hear(2, ended(outcome), 0.0)
    assert book.is_over
    assert (book.end().reason, book.end().rank) == (Reason.PREEMPTED, 2)


@pytest.mark.parametrize("ending", [raised, died, peer_lost])
def test_all_hosts_of_a_slice_are_going(book: AttemptBook, ending: Callable[[int], dict[str, Any]]) -> None:
    news = [note for rank in range(4) for note in book.expect_loss(rank, 5.0)]
    assert len(news) == 1  # a slice is one piece of news
    for rank in (3, 1, 0):
        book.hear(rank, ending(rank), 0.0)
        assert not book.is_over
    book.lose_host(lost(0, "Preempted"))  # has ended already, and still ends the grace of all
    assert book.is_over
    end = book.end()
    assert (end.reason, end.rank) == (Reason.PREEMPTED, 3)


def test_a_job_that_is_done_before_its_slice_goes_is_done(book: AttemptBook) -> None:
    for rank in range(4):
        book.expect_loss(rank, 5.0)
    for rank in range(4):
        book.hear(rank, ok(rank), 0.0)
    assert book.is_over
    assert book.end().ok


def test_ranks_that_leave_together_do_so_for_the_host_that_goes(book: AttemptBook) -> None:
    """Also the first to leave, which may be on another host: its exception is not the reason."""
    book.expect_loss(1, 5.0)
    for rank in (0, 3, 1, 2):
        assert not book.is_over
        book.hear(rank, raised(rank, "SystemExit: 143"), 0.0)
    assert book.is_over
    end = book.end()
    assert (end.reason, end.rank) == (Reason.PREEMPTED, 0)
    assert "rank 0 (host 0 of tpu-v6e-16-0): host 1 of tpu-v6e-16-0 was being preempted; SystemExit" in end.message


def test_the_loss_of_another_jobs_host_ends_nobodys_grace(book: AttemptBook) -> None:
    book.expect_loss(1, 5.0)
    book.hear(1, raised(1), 0.0)
    book.expect_loss(2, 5.0)
    book.lose_host(HostLost("node-9", "tpu-v6e-16-9", 0, "Preempted"))
    assert not book.is_over
    assert [book.rank_on(f"node-{number}") for number in (0, 3, 9)] == [0, 3, None]


def test_an_agent_that_is_gone_for_sure_needs_no_look(book: AttemptBook) -> None:
    book.lose_agent(1, "TypeError: no such method", unsure=False)
    assert book.is_clear
    assert book.end().message.startswith("rank 1 (host 1 of tpu-v6e-16-0): its host agent is gone: TypeError")


def test_another_slices_host_is_no_concern(book: AttemptBook) -> None:
    assert book.lose_host(HostLost("node-of-another", "other", 0, "gone")) == []
    assert not book.is_over


def test_a_host_lost_after_its_rank_succeeded_changes_nothing(book: AttemptBook) -> None:
    book.hear(1, ok(1), 0.0)
    assert book.lose_host(lost(1)) == []
    assert not book.is_over


def test_what_comes_after_a_ranks_end_is_ignored(book: AttemptBook) -> None:
    book.hear(1, ok(1), 0.0)
    assert book.hear(1, raised(1), 0.0) == []
    assert book.lose_agent(1, "it died") == []
    assert not book.failures


def test_a_user_error_told_before_the_fence_is_no_stop(book: AttemptBook) -> None:
    book.hear(0, peer_lost(0), 0.0)
    message = raised(2)
    message["fenced"] = True
    book.hear(2, message, 0.0)
    assert (book.end().reason, book.end().rank) == (Reason.USER_ERROR, 2)


def test_phases_and_progress_become_events(book: AttemptBook) -> None:
    assert book.hear(1, {"t": "phase", "phase": "init", "at": 1.0}, 0.0) == [
        (EventKind.RANK_PHASE, {"rank": 1, "phase": "init"})
    ]
    notes = [book.hear(rank, {"t": "report", "step": 5, "total": 9, "metrics": {"l": 1.0}}, 0.0) for rank in range(4)]
    assert notes == [[], [], [], [(EventKind.PROGRESSED, {"step": 5, "total": 9, "metrics": {"l": 1.0}})]]


@pytest.mark.parametrize(
    ("returned", "closing", "rank", "words"),
    [
        ((0, 1, 2), (), 3, "rank 3 was still running; ranks 0-2 had returned"),
        ((), (0, 1, 2), 3, "rank 3 was still running; ranks 0-2 had returned"),  # in a gang they wait for it
        ((2,), (0,), 1, "ranks 1, 3 were still running; ranks 0, 2 had returned"),
        ((), (), 0, "ranks 0-3 were still running"),
        ((0, 3), (1, 2), 1, "ranks 1-2 had returned, but their processes had not ended: an exit handler"),
        ((0, 1, 3), (2,), 2, "rank 2 had returned, but its process had not ended: an exit handler"),
    ],
)
def test_when_time_runs_out_the_ranks_that_took_it_are_named(
    book: AttemptBook, returned: tuple[int, ...], closing: tuple[int, ...], rank: int, words: str
) -> None:
    for each in range(4):
        book.hear(each, {"t": "phase", "phase": "finish" if each in closing else "call", "at": 1.0}, 0.0)
    for each in returned:
        book.hear(each, ok(each), 0.0)
    overdue = book.overdue()
    assert overdue.rank == rank
    assert str(overdue).startswith(words)


def test_nothing_is_clear_while_nothing_failed(book: AttemptBook) -> None:
    assert not book.is_clear
    assert not book.is_over

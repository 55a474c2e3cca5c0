"""Which of several failures is named, and how."""

import itertools

import pytest

from kinetic_ray.core.causes import Failure, aborted_for_peer, cause_of, explain, failure_of, is_peer_loss
from kinetic_ray.core.outcome import ErrorInfo, Outcome
from kinetic_ray.core.state import Reason

GLOO_CLOSED = "FAILED_PRECONDITION: Gloo all-reduce failed: [external/gloo/pair.cc:547] Connection closed by peer [::1]"


@pytest.mark.parametrize(
    ("type_name", "message", "told"),
    [
        ("JaxRuntimeError", GLOO_CLOSED, True),
        ("JaxRuntimeError", "Gloo AllGather failed: Read error [127.0.0.1]:5511: Connection reset by peer", True),
        ("XlaRuntimeError", "UNAVAILABLE: failed to connect to all addresses", True),
        ("JaxRuntimeError", "UNAVAILABLE: The following tasks are unhealthy (stopped sending heartbeats)", True),
        ("JaxRuntimeError", "DEADLINE_EXCEEDED: Barrier timed out. Id: shutdown", True),
        ("JaxRuntimeError", "ABORTED: the coordination service has stopped", True),
        ("RuntimeError", "[gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:5511", True),
        ("RuntimeError", "[gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 1800000ms for recv", True),
        (
            "ValueError",
            "UNKNOWN: Gloo all-reduce failed: [pair.cc:547] Connection closed by peer [::1]:9605",
            True,
        ),
        (
            "ValueError",
            "UNKNOWN: Gloo all-reduce failed: [tcp/pair.cc:538] Read error [127.0.0.1]:44203: Connection reset by peer",
            True,
        ),
        ("ValueError", "UNKNOWN: Gloo AllGather failed: [pair.cc:612] writev [::1]:9605: Broken pipe", True),
        ("RuntimeError", "Write error [127.0.0.1]:44203: Broken pipe", True),
        ("JaxRuntimeError", "INVALID_ARGUMENT: shapes differ", False),
        ("JaxRuntimeError", "RESOURCE_EXHAUSTED: out of memory", False),
        ("RuntimeError", "the loss is nan", False),
        ("RuntimeError", "connection closed", False),
        ("ConnectionResetError", "[Errno 104] Connection reset by peer", False),
        ("BrokenPipeError", "[Errno 32] Broken pipe", False),
        ("ValueError", "Gloo all-reduce failed", False),
    ],
)
def test_which_exceptions_tell_of_a_lost_peer(type_name: str, message: str, told: bool) -> None:
    assert is_peer_loss(type_name, message) is told


@pytest.mark.parametrize(
    ("log", "aborted"),
    [
        ("F1130 client.h:80] Terminating process because the JAX distributed service detected fatal errors.", True),
        ("E1130 agent.cc] the leader process has died", True),
        (GLOO_CLOSED, False),
        ("", False),
    ],
)
def test_whose_last_words_tell_of_a_lost_peer(log: str, aborted: bool) -> None:
    assert aborted_for_peer(log) is aborted


ERROR = ErrorInfo("JaxRuntimeError", "jax._src.lib", GLOO_CLOSED, "Traceback ...")


@pytest.mark.parametrize(
    ("reason", "phase", "error", "world", "read"),
    [
        ("UserError", "call", ERROR, 4, "UserError"),
        ("PeerLost", "call", ERROR, 4, "PeerLost"),
        ("PeerLost", "call", ERROR, 1, "UserError"),
        ("PeerLost", "init", ERROR, 1, "SetupError"),
        ("PeerLost", "call", None, 1, "ProcessDied"),
        ("OutOfMemory", "call", None, 1, "OutOfMemory"),
        ("", "call", None, 4, "ProcessDied"),
    ],
)
def test_reason_of_one_rank(reason: str, phase: str, error: ErrorInfo | None, world: int, read: str) -> None:
    outcome = Outcome(1, False, reason, phase, error=error)
    assert failure_of(outcome, "host 1 of s", world).reason == read


def test_a_failure_says_what_its_outcome_says() -> None:
    told = failure_of(Outcome(1, False, "UserError", "call", "ValueError: x", error=ERROR, log_tail="t"), "host 1", 2)
    assert told == Failure(1, Reason.USER_ERROR, "ValueError: x", "host 1", "call", log_tail="t")
    assert failure_of(Outcome(1, False, "PeerLost", error=ERROR), "", 2).message == GLOO_CLOSED
    assert failure_of(Outcome(1, False, "ProcessDied"), "", 2).message == "ProcessDied"


def failure(rank: int, reason: Reason, *, unsure: bool = False) -> Failure:
    return Failure(rank, reason, str(reason), unsure=unsure)


PEER = failure(0, Reason.PEER_LOST)
USER = failure(1, Reason.USER_ERROR)
DIED = failure(2, Reason.PROCESS_DIED)
NODE = failure(3, Reason.NODE_LOST)
AGENT = failure(4, Reason.PROCESS_DIED, unsure=True)


@pytest.mark.parametrize(
    ("arrived", "cause"),
    [
        ([PEER], PEER),
        ([PEER, DIED], DIED),
        ([PEER, USER], USER),
        ([PEER, USER, DIED], USER),
        ([PEER, DIED, NODE], NODE),
        ([PEER, AGENT, DIED], DIED),
        ([AGENT], AGENT),
        ([AGENT, NODE], NODE),
        ([AGENT, PEER], AGENT),
        ([USER, NODE], USER),
        ([DIED, USER], DIED),
        ([NODE, USER], NODE),
    ],
)
def test_the_cause(arrived: list[Failure], cause: Failure) -> None:
    assert cause_of(arrived) == cause


def test_under_a_lost_peer_the_order_of_what_follows_does_not_hide_a_lost_host() -> None:
    for rest in itertools.permutations([USER, DIED, NODE, AGENT]):
        assert cause_of([PEER, *rest]) == NODE


def test_only_an_open_failure_is_looked_into() -> None:
    assert [f.is_open for f in (PEER, AGENT, USER, DIED, NODE)] == [True, True, False, False, False]


def test_the_text_names_the_cause_first() -> None:
    cause = Failure(2, Reason.USER_ERROR, "ValueError: bad batch\nmore", "host 2 of tpu-v6e-16-0", "call")
    lost = Failure(0, Reason.PEER_LOST, "Connection closed by peer", "host 0 of tpu-v6e-16-0", "call")
    assert explain(cause, [lost, cause], stopped=[3, 1]) == (
        "rank 2 (host 2 of tpu-v6e-16-0): ValueError: bad batch\n"
        "  after it: rank 0 (host 0 of tpu-v6e-16-0): Connection closed by peer\n"
        "  stopped with it: ranks 1, 3"
    )


def test_ranks_that_have_the_same_to_say_share_a_line() -> None:
    cause = Failure(2, Reason.PREEMPTED, "its host was preempted", "host 2 of s", "call")
    gone = [Failure(rank, Reason.NODE_LOST, "its host went with its slice", f"host {rank} of s") for rank in (3, 0, 4)]
    raised = Failure(1, Reason.USER_ERROR, "OSError: disk full", "host 1 of s", "call")
    assert explain(cause, [cause, *gone, raised], stopped=[]).splitlines() == [
        "rank 2 (host 2 of s): its host was preempted",
        "  after it: each of ranks 0, 3-4: its host went with its slice",
        "  after it: rank 1 (host 1 of s): OSError: disk full",
    ]


def test_the_same_words_in_another_phase_have_a_line_of_their_own() -> None:
    early, late = (
        Failure(rank, Reason.USER_ERROR, "it broke", "", phase) for rank, phase in ((1, "load"), (2, "call"))
    )
    assert explain(NODE, [NODE, early, late], stopped=[]).splitlines()[1:] == [
        "  after it: rank 1 in phase load: it broke",
        "  after it: rank 2: it broke",
    ]


def test_the_text_names_the_phase_before_the_call() -> None:
    cause = Failure(0, Reason.SETUP_ERROR, "no module named 'tomli'", "host 0 of s", "load")
    assert explain(cause, [cause], stopped=[]) == "rank 0 (host 0 of s) in phase load: no module named 'tomli'"


def test_runs_of_ranks_are_joined() -> None:
    assert explain(USER, [USER], stopped=[2, 3, 4, 0]).endswith("stopped with it: ranks 0, 2-4")

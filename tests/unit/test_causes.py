"""Which of several failures is named, and how."""

import itertools

import pytest

from kinetic_ray.core.causes import Failure, cause_of, explain, failure_of
from kinetic_ray.core.outcome import ErrorInfo, Outcome
from kinetic_ray.core.state import Reason


def raised(type_name: str, message: str, module: str = "builtins") -> ErrorInfo:
    return ErrorInfo(type_name, module, message, "Traceback ...")


def outcome(reason: str, *, error: ErrorInfo | None = None, phase: str = "call", tail: str = "") -> Outcome:
    return Outcome(1, False, reason, phase, error.message if error else "died", error=error, log_tail=tail)


def jax_raised(message: str, type_name: str = "JaxRuntimeError") -> ErrorInfo:
    return raised(type_name, message, "jax._src.lib")


GLOO_CLOSED = "FAILED_PRECONDITION: Gloo all-reduce failed: [external/gloo/pair.cc:547] Connection closed by peer [::1]"
FATAL = (
    "F1130 client.h:80] Terminating process because the JAX distributed service detected fatal errors. "
    "This most likely indicates that another task died"
)


@pytest.mark.parametrize(
    ("ended", "world", "reason"),
    [
        pytest.param(outcome("UserError", error=raised("ValueError", "bad batch")), 4, "UserError", id="user's error"),
        pytest.param(outcome("UserError", error=jax_raised(GLOO_CLOSED)), 4, "PeerLost", id="gloo"),
        pytest.param(
            outcome("UserError", error=jax_raised("UNAVAILABLE: failed to connect", "XlaRuntimeError")),
            4,
            "PeerLost",
            id="unavailable",
        ),
        pytest.param(
            outcome("UserError", error=jax_raised("UNAVAILABLE: The following tasks are unhealthy")),
            4,
            "PeerLost",
            id="heartbeats",
        ),
        pytest.param(
            outcome("UserError", error=raised("RuntimeError", "[pair.cc:534] Connection closed by peer [127.0.0.1]")),
            4,
            "PeerLost",
            id="torch's gloo",
        ),
        pytest.param(
            outcome("SetupError", phase="init", error=jax_raised("DEADLINE_EXCEEDED: Barrier timed out")),
            4,
            "PeerLost",
            id="a peer never came to the start",
        ),
        pytest.param(
            outcome("SetupError", phase="fetch", error=raised("RuntimeError", "connection reset by peer")),
            4,
            "SetupError",
            id="the store's connection is no peer",
        ),
        pytest.param(
            outcome("UserError", error=jax_raised("INVALID_ARGUMENT: shapes differ")),
            4,
            "UserError",
            id="jax, but no peer",
        ),
        pytest.param(
            outcome("UserError", error=raised("ConnectionResetError", "[Errno 104] Connection reset by peer")),
            4,
            "UserError",
            id="the user's own socket",
        ),
        pytest.param(
            outcome("UserError", error=raised("RuntimeError", "Connection closed by peer", "__main__")),
            4,
            "UserError",
            id="the user's own class",
        ),
        pytest.param(outcome("UserError", error=jax_raised(GLOO_CLOSED)), 1, "UserError", id="no peers at all"),
        pytest.param(outcome("ProcessDied", tail=FATAL), 4, "PeerLost", id="jax ended the process"),
        pytest.param(outcome("ProcessDied", tail=GLOO_CLOSED), 4, "ProcessDied", id="killed after logging a lost peer"),
        pytest.param(outcome("OutOfMemory"), 4, "OutOfMemory", id="out of memory"),
        pytest.param(outcome("ResultError"), 4, "ResultError", id="value can't be stored"),
        pytest.param(outcome(""), 4, "ProcessDied", id="no reason given"),
    ],
)
def test_reason_of_one_rank(ended: Outcome, world: int, reason: str) -> None:
    assert failure_of(ended, "host 1 of s", world).reason == reason


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


def test_the_text_names_the_phase_before_the_call() -> None:
    cause = Failure(0, Reason.SETUP_ERROR, "no module named 'tomli'", "host 0 of s", "load")
    assert explain(cause, [cause], stopped=[]) == "rank 0 (host 0 of s) in phase load: no module named 'tomli'"


def test_runs_of_ranks_are_joined() -> None:
    assert explain(USER, [USER], stopped=[2, 3, 4, 0]).endswith("stopped with it: ranks 0, 2-4")

"""Failures of calls: as agents see them, and what becomes of them where users read them."""

import pickle
import unicodedata
from collections.abc import Iterator

import pytest

from kinetic_ray import errors
from kinetic_ray.core.state import Reason
from kinetic_ray.runner.calls import packing
from kinetic_ray.runner.calls.failures import CallFailure
from kinetic_ray.runner.capture import describe_error, dump_exception

GONE = CallFailure(
    str(Reason.PROCESS_DIED),
    "the process was killed by SIGKILL",
    2,
    "train on tpu-v6e-16-0",
    "last\nwords",
    gang="call-1",
)


class Odd(Exception):
    def __init__(self, *, code: int) -> None:
        super().__init__(f"code {code}")
        self.code = code


@pytest.fixture
def packed_here() -> Iterator[None]:
    packing.keep_packed()
    yield
    packing.keep_packed(False)


def raised(exc: BaseException, cause: BaseException | None = None) -> CallFailure:
    try:
        raise exc from cause
    except BaseException as caught:  # noqa: BLE001
        error = describe_error(caught)
        return CallFailure(
            str(Reason.USER_ERROR), f"{error.type_name}: {error.message}", 0, "train on cpu", "a line",
            traceback=error.traceback, pickled=dump_exception(caught), gang="call-1",
        )  # fmt: skip


def travelled(failure: CallFailure) -> BaseException:
    back: BaseException = pickle.loads(pickle.dumps(failure))
    return back


def test_agents_and_the_desk_see_all_of_it(packed_here: None) -> None:
    back = travelled(GONE)
    assert isinstance(back, CallFailure) and back.to_dict() == GONE.to_dict()
    assert back.with_fields(where="there").where == "there"


def test_users_get_their_own_exception_with_its_cause_and_the_remote_traceback() -> None:
    back = travelled(raised(Odd(code=7), KeyError("missing")))
    assert isinstance(back, Odd) and back.code == 7
    assert isinstance(back.__cause__, KeyError)
    [note] = back.__notes__
    assert "Raised in train on cpu: rank 0" in note and "test_call_failures.py" in note and "KeyError" in note


def test_what_cannot_be_rebuilt_is_told_in_words() -> None:
    failure = raised(ValueError("no")).with_fields(pickled=b"\x80\x05cnowhere\nNothing\n.")
    back = travelled(failure)
    assert isinstance(back, errors.JobFailed)
    assert (back.job_id, back.reason) == ("call-1", "UserError")
    assert "ValueError: no" in str(back) and "test_call_failures.py" in str(back)


@pytest.mark.parametrize("exc", [SystemExit(3), KeyboardInterrupt()])
def test_nothing_from_afar_ends_the_users_process(exc: BaseException) -> None:
    assert isinstance(travelled(raised(exc)), errors.JobFailed)


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        (Reason.PROCESS_DIED, errors.JobFailed),
        (Reason.CANCELLED, errors.JobCancelled),
        (Reason.DEADLINE_EXCEEDED, errors.JobTimeout),
        (Reason.SETUP_ERROR, errors.JobFailed),
    ],
)
def test_each_end_has_its_error(reason: Reason, kind: type[Exception]) -> None:
    back = travelled(GONE.with_fields(reason=str(reason)))
    assert type(back) is kind
    assert str(back) == (
        "train on tpu-v6e-16-0: rank 2: the process was killed by SIGKILL\nlast log lines of rank 2:\n  last\n  words"
    )


def test_a_lost_instance_is_rays_dead_actor() -> None:
    from ray.exceptions import ActorDiedError

    back = travelled(GONE.with_fields(actor="act-1"))
    assert isinstance(back, ActorDiedError)
    assert "killed by SIGKILL" in str(back)
    again: BaseException = pickle.loads(pickle.dumps(back))
    assert "killed by SIGKILL" in str(again)


def test_a_method_that_ran_too_long_is_a_timeout() -> None:
    late = GONE.with_fields(actor="act-1", reason=str(Reason.DEADLINE_EXCEEDED))
    assert isinstance(travelled(late), errors.JobTimeout)


def test_only_exceptions_of_user_code_leave_the_process_alive() -> None:
    assert raised(ValueError()).is_users
    assert not GONE.with_fields(exit_code=-9).is_users


EVIL = "\x1b]0;title\x07\x1b[2J50 %\r\x1b[31mred\x1b[0m\x85\x9b2J"


@pytest.mark.parametrize("actor", ["", "act-1"])
@pytest.mark.parametrize("trace", ["", f"Traceback:\n  {EVIL}\nValueError: {EVIL}\n"])
def test_words_hold_nothing_that_a_terminal_obeys(trace: str, actor: str) -> None:
    """Facts in attributes stay as they were printed."""
    failure = CallFailure(
        str(Reason.USER_ERROR),
        f"ValueError: {EVIL}",
        0,
        "f on cpu",
        f"one\n{EVIL}\n",
        trace,
        gang="call-1",
        actor=actor,
    )
    back = travelled(failure)
    for words in (str(back), str(failure)):
        assert {char for char in words if unicodedata.category(char) == "Cc"} == {"\n"}
        assert "ValueError: " not in words or "red" in words
    if isinstance(back, errors.JobFailed):
        assert EVIL in back.log_tail
        assert back.traceback == trace


def test_the_note_of_a_user_s_exception_holds_nothing_that_a_terminal_obeys() -> None:
    back = travelled(raised(ValueError(EVIL)))
    assert isinstance(back, ValueError)
    assert back.args == (EVIL,)
    [note] = back.__notes__
    assert {char for char in note if unicodedata.category(char) == "Cc"} == {"\n"}


def test_a_bar_is_one_of_the_last_lines_as_it_stood_at_the_end() -> None:
    failure = GONE.with_fields(log_tail="start\n10 %\r20 %\r30 %\n\x0cpage\u2028line\n")
    assert str(failure).split("\n")[-3:] == ["  start", "  30 %", "  page\u2028line"]


def test_ray_s_own_error_of_our_class_has_the_facts_too() -> None:
    """`ray.get` raises one that is of both classes."""
    from ray.exceptions import RayTaskError

    error = RayTaskError("f", "trace", travelled(GONE)).as_instanceof_cause()
    assert isinstance(error, errors.JobFailed) and isinstance(error, RayTaskError)
    assert (error.job_id, error.reason, error.rank, error.log_tail) == ("call-1", "ProcessDied", 2, "last\nwords")
    assert (error.exit_code, error.phase) == (None, "")

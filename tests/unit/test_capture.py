"""Values and exceptions on their way out of a rank."""

import pickle
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinetic_ray.core.outcome import ErrorInfo
from kinetic_ray.core.state import RankPhase, Reason
from kinetic_ray.runner import capture
from tests.unit.payloads.errors import sealed


class KeywordOnly(Exception):
    def __init__(self, *, code: int) -> None:
        super().__init__(f"code {code}")
        self.code = code


class TwoArguments(Exception):
    def __init__(self, left: int, right: int) -> None:
        super().__init__(f"{left} and {right}")
        self.right = right


class BrokenWords(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


class JaxRuntimeError(RuntimeError):
    """Named as JAX's own, which is how it is told."""


def _raised(error: BaseException, cause: BaseException | None = None) -> BaseException:
    try:
        raise error from cause
    except BaseException as caught:  # noqa: BLE001
        return caught


def _through(error: BaseException) -> BaseException:
    data = capture.dump_exception(error)
    assert data is not None
    found: BaseException = pickle.loads(data)
    return found


@pytest.mark.parametrize(
    "error",
    [
        ValueError("bad"),
        KeyError("k"),
        KeywordOnly(code=3),
        TwoArguments(1, 2),
        OSError(2, "no such", "x"),
        SystemExit(3),
    ],
)
def test_exceptions_travel_as_themselves(error: BaseException) -> None:
    back = _through(_raised(error))
    assert type(back) is type(error)
    assert str(back) == str(error)
    assert vars(back) == vars(error)


def test_causes_contexts_and_notes_travel() -> None:
    error = _raised(KeywordOnly(code=1), _raised(TwoArguments(1, 2), _raised(KeyError("root"))))
    error.add_note("seen at step 3")
    back = _through(error)
    assert back.__notes__ == ["seen at step 3"]
    assert isinstance(back.__cause__, TwoArguments)
    assert isinstance(back.__cause__.__cause__, KeyError)
    assert back.__suppress_context__


def test_what_cannot_travel_is_words_only() -> None:
    error = _raised(sealed())
    assert capture.dump_exception(error) is None
    assert capture.describe_error(error).type_name == "Sealed"


def test_groups_travel_with_their_members() -> None:
    inner = ExceptionGroup("inner", [KeywordOnly(code=2)])
    back = _through(_raised(ExceptionGroup("outer", [_raised(ValueError("v")), inner])))
    assert isinstance(back, ExceptionGroup)
    assert back.message == "outer"
    value, group = back.exceptions
    assert str(value) == "v"
    assert isinstance(group, ExceptionGroup)
    assert isinstance(group.exceptions[0], KeywordOnly)


def test_a_chain_that_bites_its_tail_ends() -> None:
    first, second = ValueError("first"), ValueError("second")
    first.__cause__, second.__cause__ = second, first
    assert str(_through(first)) == "first"
    assert capture.reason_of(first, RankPhase.CALL) is Reason.USER_ERROR


def test_classes_without_an_importable_home_travel() -> None:
    class Local(Exception):
        pass

    assert type(_through(_raised(Local("here")))) is Local


def test_words_hold_chain_notes_and_no_frames_of_ours() -> None:
    error = _raised(KeywordOnly(code=1), _raised(KeyError("root")))
    error.add_note("a note")
    info = capture.describe_error(error)
    assert (info.type_name, info.module, info.message) == ("KeywordOnly", __name__, "code 1")
    assert info.traceback.index("root") < info.traceback.index("direct cause") < info.traceback.index("a note")


def test_words_survive_an_exception_without_words() -> None:
    info = capture.describe_error(_raised(BrokenWords()))
    assert "can't be shown" in info.message
    assert "BrokenWords" in info.traceback


def _awkward(*names: str) -> type[Exception]:
    """A class that raises when any of these is looked at."""

    def refuse(self: Any, *_: Any) -> Any:
        raise RuntimeError("not for you")

    return type("Awkward", (Exception,), {n: property(refuse) if n in _PLAIN else refuse for n in names})


_PLAIN = (
    "args",
    "__notes__",
    "__dict__",
    "__cause__",
    "__context__",
    "__suppress_context__",
    "__traceback__",
    "__class__",
)
_WAYS = ("__getattr__", "__getattribute__", "__str__", "__repr__", "__eq__", "__reduce__", "__reduce_ex__", "__hash__")


@pytest.mark.parametrize("names", [(name,) for name in (*_PLAIN, *_WAYS)] + [_PLAIN, _WAYS, (*_PLAIN, *_WAYS)], ids=str)
@pytest.mark.parametrize("phase", [RankPhase.CALL, RankPhase.LOAD])
def test_an_exception_that_must_not_be_looked_at_is_told_by_its_class(names: tuple[str, ...], phase: RankPhase) -> None:
    error = _raised(_awkward(*names)("its words"))
    told = capture.describe_error(error)
    assert told.type_name == "Awkward"
    assert "__str__" in names or "__getattribute__" in names or told.message == "its words"
    assert "Awkward" in told.traceback and "in _raised" in told.traceback
    assert capture.reason_of(error, phase) is (Reason.USER_ERROR if phase is RankPhase.CALL else Reason.SETUP_ERROR)
    data = capture.dump_exception(error)
    assert data is None or isinstance(pickle.loads(data), BaseException)


@pytest.mark.parametrize(("name", "noted"), [("data/x.csv", True), ("/nowhere/x.csv", False)])
def test_a_file_that_was_perhaps_not_sent_is_noted(name: str, noted: bool) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        Path(name).read_text()
    error = _raised(ValueError("no data"), caught.value)
    for _ in range(2):
        assert capture.describe_error(error).traceback.count("kinetic ship --list") == noted
    assert ("isn't among the files" in str(getattr(_through(error).__cause__, "__notes__", ""))) is noted


def test_long_words_are_cut_in_the_middle() -> None:
    info = capture.describe_error(ValueError("a" * 50_000 + "z" * 50_000))
    assert len(info.message) == capture.REPR_LIMIT
    assert info.message.startswith("aaa")
    assert info.message.endswith("zzz")
    assert "characters left out" in info.message


@pytest.mark.parametrize(
    ("error", "phase", "reason"),
    [
        (ValueError("x"), RankPhase.CALL, Reason.USER_ERROR),
        (SystemExit(1), RankPhase.CALL, Reason.USER_ERROR),
        (KeyboardInterrupt(), RankPhase.CALL, Reason.USER_ERROR),
        (MemoryError(), RankPhase.CALL, Reason.OUT_OF_MEMORY),
        (ModuleNotFoundError("x"), RankPhase.LOAD, Reason.SETUP_ERROR),
        (MemoryError(), RankPhase.UNPACK, Reason.SETUP_ERROR),
        (OSError(28, "no space"), RankPhase.STORE, Reason.RESULT_ERROR),
        (RuntimeError("x"), RankPhase.FINISH, Reason.PROCESS_DIED),
        (
            JaxRuntimeError("UNKNOWN: Gloo all-reduce failed: Connection closed by peer"),
            RankPhase.CALL,
            Reason.PEER_LOST,
        ),
        (JaxRuntimeError("Gloo all-reduce failed: Read error: Connection reset"), RankPhase.INIT, Reason.PEER_LOST),
        (JaxRuntimeError("UNAVAILABLE: The following tasks are unhealthy"), RankPhase.FINISH, Reason.PEER_LOST),
        (JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 8 bytes"), RankPhase.CALL, Reason.OUT_OF_MEMORY),
        (JaxRuntimeError("INVALID_ARGUMENT: shapes"), RankPhase.CALL, Reason.USER_ERROR),
        (ConnectionResetError("Connection reset by peer"), RankPhase.CALL, Reason.USER_ERROR),
    ],
)
def test_reasons(error: BaseException, phase: RankPhase, reason: Reason) -> None:
    assert capture.reason_of(error, phase) is reason


def test_a_lost_peer_is_seen_through_what_wraps_it() -> None:
    lost = _raised(JaxRuntimeError("Gloo all-reduce failed: Connection closed by peer"))
    assert capture.reason_of(_raised(RuntimeError("step 5 failed"), lost), RankPhase.CALL) is Reason.PEER_LOST


def test_an_unpicklable_value_says_what_to_do() -> None:
    with pytest.raises(capture.ResultError, match="lock that can't be pickled") as caught:
        capture.dump_value(threading.Lock())
    assert "lock" in caught.value.value_repr
    told = capture.describe_error(caught.value)
    assert told.traceback == f"ResultError: {caught.value}\n"
    assert told.value_repr == caught.value.value_repr


def test_a_value_whose_repr_raises_is_still_described() -> None:
    class Shy:
        def __repr__(self) -> str:
            raise RuntimeError

        def __reduce__(self) -> Any:
            raise TypeError("not me")

    with pytest.raises(capture.ResultError) as caught:
        capture.dump_value(Shy())
    assert caught.value.value_repr == "<a Shy whose repr raises RuntimeError>"


@given(
    st.recursive(st.none() | st.integers() | st.text() | st.binary(), lambda inner: st.lists(inner) | st.tuples(inner))
)
def test_values_travel(value: Any) -> None:
    assert pickle.loads(b"".join(capture.dump_value(value).chunks())) == value


@given(st.text(), st.integers(min_value=60, max_value=200))
def test_cut_words_keep_to_their_limit(text: str, limit: int) -> None:
    cut = capture._shorten(text * 20, limit)
    assert len(cut) <= max(limit, 0)
    assert cut == text * 20 or "left out" in cut


def test_words_travel_through_json() -> None:
    info = capture.describe_error(_raised(KeywordOnly(code=1)))
    assert ErrorInfo.from_dict({**{name: getattr(info, name) for name in info.__dataclass_fields__}}) == info

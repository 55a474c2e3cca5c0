"""Exceptions on their way: they come back as themselves, with all that hangs on them."""

import io
import json
import pickle
import subprocess
import sys
import threading
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinetic_ray import errors as errors_of_ours
from kinetic_ray.errors import JobFailed, add_note, is_stand_in
from kinetic_ray.payload.pickling import ValuePickler
from kinetic_ray.payload.raised import MOST, pack_raised
from kinetic_ray.payload.rebuilding import LeftBehind
from tests.unit.payloads import errors
from tests.unit.payloads.errors import raised

GOLDEN = Path(__file__).parents[1] / "golden"
LIMIT = 1 << 20


def through(error: BaseException, limit: int = LIMIT) -> BaseException:
    data = pack_raised(error, limit)
    assert data is not None
    found: BaseException = pickle.loads(data)
    return found


def slotted() -> errors.Slotted:
    error = errors.Slotted(5)
    error.part = "left"
    return error


def unicode_error() -> UnicodeDecodeError:
    with pytest.raises(UnicodeDecodeError) as caught:
        b"\xff".decode()
    return caught.value


def json_error() -> json.JSONDecodeError:
    with pytest.raises(json.JSONDecodeError) as caught:
        json.loads("{")
    return caught.value


@pytest.mark.parametrize(
    "error",
    [
        ValueError("bad"),
        KeyError("k"),
        OSError(2, "no such", "x"),
        SystemExit(3),
        KeyboardInterrupt(),
        StopIteration(7),
        unicode_error(),
        json_error(),
        subprocess.CalledProcessError(3, ["make"], b"out", b"err"),
        ImportError("no", name="m", path="/m"),
        errors.KeywordOnly(code=3),
        errors.TwoArguments(1, 2),
        errors.Frozen(code=3, place="there"),
        errors.ForeignNew(3, detail="d"),
        errors.NoFile("data.txt"),
        errors.NotThere("torch"),
        errors.Interrupts("bad batch"),
        errors.Leaves("first"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_exceptions_come_back_as_themselves(error: BaseException) -> None:
    add_note(error, "seen at step 3")
    back = through(raised(error, raised(KeyError("root"))))
    assert (type(back), str(back), back.args, vars(back)) == (type(error), str(error), error.args, vars(error))
    for name in ("errno", "filename", "code", "value", "name", "path", "object", "start", "lineno", "returncode"):
        assert getattr(back, name, None) == getattr(error, name, None)
    assert repr(back.__cause__) == "KeyError('root')"


def test_what_lies_in_slots_comes_back() -> None:
    back = through(slotted())
    assert isinstance(back, errors.Slotted)
    assert (str(back), back.code, back.part) == ("s", 5, "left")
    frozen = through(errors.FrozenSlotted(7))
    assert isinstance(frozen, errors.FrozenSlotted)
    assert frozen.code == 7


def test_a_class_that_says_how_it_travels_is_obeyed() -> None:
    back = through(errors.SaysHow(3))
    assert isinstance(back, errors.SaysHow)
    assert back.cache == []


def test_what_can_not_travel_stays_behind_and_is_named() -> None:
    error = errors.HoldsLock(3)
    error.add_note("first")
    back = through(error)
    assert isinstance(back, errors.HoldsLock)
    assert (str(back), back.step) == ("locked at 3", 3)
    assert "lock" not in vars(back)
    assert back.__notes__ == ["first", "left on the host: lock (a lock)"]


@pytest.mark.parametrize(
    "make", [threading.Lock, lambda: (n for n in ()), lambda: io.BytesIO().getbuffer(), sys._getframe]
)
def test_whatever_hangs_on_an_error_it_keeps_its_class_and_message(make: Callable[[], Any]) -> None:
    error = errors.LockAsArgument("held", make())
    error.extra = make()  # type: ignore[attr-defined]
    back = through(error)
    assert type(back) is errors.LockAsArgument
    assert back.args[0] == "held"
    assert str(back).startswith("('held', <")
    stayed = {"args[1]": isinstance(back.args[1], LeftBehind), "extra": "extra" not in vars(back)}
    notes = "".join(getattr(back, "__notes__", []))
    assert {name: name in notes for name in stayed} == stayed


def test_large_attributes_stay_behind() -> None:
    error = ValueError("oops")
    error.batch = bytes(LIMIT)  # type: ignore[attr-defined]
    error.step = 3  # type: ignore[attr-defined]
    back = through(error)
    assert vars(back) == {"step": 3, "__notes__": ["left on the host: batch (a bytes)"]}


def test_no_large_pickle_is_made_of_what_stays_behind() -> None:
    """The host of an error may have no memory left for it."""
    error = ValueError("oops")
    error.batches = [bytearray(4 * LIMIT), [bytes(1000) for _ in range(40_000)]]  # type: ignore[attr-defined]
    tracemalloc.start()
    try:
        back = through(error)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert back.__notes__ == ["left on the host: batches (a list)"]
    assert peak < 4 * LIMIT


def test_errors_in_values_and_in_other_errors_come_back() -> None:
    """What `gather(return_exceptions=True)` gave, say."""
    frozen, keyword = errors.Frozen(code=1), errors.KeywordOnly(code=3)
    keyword.add_note("first try")
    round_about = errors.TwoArguments(1, 2)
    round_about.right = round_about  # type: ignore[assignment]
    value = [
        frozen,
        keyword,
        slotted(),
        errors.NoFile("x"),
        ValueError(keyword),
        errors.SaysHow(2),
        round_about,
        keyword,
    ]
    back = pickle.loads(ValuePickler().dumps(value))
    assert [type(each) for each in back] == [type(each) for each in value]
    assert [str(each) for each in back] == [str(each) for each in value]
    assert (back[0].code, back[1].code, back[1].__notes__, back[2].part) == (1, 3, ["first try"], "left")
    assert (back[3].filename, back[4].args[0], back[6].right) == ("x", back[1], back[6])
    assert back[7] is back[1]
    retry = ValueError("gave up")
    retry.last = keyword  # type: ignore[attr-defined]
    assert through(retry).last.code == 3  # type: ignore[attr-defined]


def test_groups_come_back_whole() -> None:
    inner = errors.Batch(7, [errors.HoldsLock(1), errors.KeywordOnly(code=2)])
    members = [raised(ValueError("v"), raised(KeyError("k"))), inner, errors.sealed()]
    back = through(raised(ExceptionGroup("outer", members)))  # type: ignore[type-var]
    assert isinstance(back, ExceptionGroup)
    value, batch, sealed = back.exceptions
    assert isinstance(batch, errors.Batch)
    assert (batch.step, batch.message) == (7, "step 7")
    assert [type(each) for each in batch.exceptions] == [errors.HoldsLock, errors.KeywordOnly]
    assert repr(value.__cause__) == "KeyError('k')"
    assert is_stand_in(sealed)
    assert isinstance(sealed, JobFailed)
    assert (str(sealed), sealed.error_type, sealed.error_message) == ("Sealed: sealed", "Sealed", "sealed")


def test_a_group_of_what_is_no_exception_comes_back() -> None:
    back = through(BaseExceptionGroup("all", [KeyboardInterrupt("k"), ValueError("v")]))
    assert type(back) is BaseExceptionGroup
    assert [type(each) for each in back.exceptions] == [KeyboardInterrupt, ValueError]


def test_what_can_not_travel_at_all_is_words() -> None:
    assert pack_raised(errors.sealed(), LIMIT) is None


def test_the_causes_of_what_can_not_travel_do() -> None:
    back = through(raised(errors.sealed(), raised(KeyError("root"))))
    assert is_stand_in(back)
    assert (str(back), repr(back.__cause__)) == ("Sealed: sealed", "KeyError('root')")


def test_a_cause_that_can_not_travel_is_stood_in_for() -> None:
    back = through(raised(ValueError("outer"), raised(errors.sealed(), raised(KeyError("root")))))
    assert type(back) is ValueError
    assert is_stand_in(back.__cause__)
    assert repr(back.__cause__.__cause__) == "KeyError('root')"  # type: ignore[union-attr]


class OnlyOnTheHost(Exception):
    def __reduce__(self) -> Any:
        return _only_on_the_host, ()


HERE = [True]


def _only_on_the_host() -> OnlyOnTheHost:
    if not HERE:
        raise SystemExit("no such module here")
    return OnlyOnTheHost("there")


def test_what_the_reader_can_not_rebuild_costs_only_itself() -> None:
    data = pack_raised(raised(ValueError("outer"), raised(OnlyOnTheHost("there"), raised(KeyError("k")))), LIMIT)
    alone = pack_raised(OnlyOnTheHost("there"), LIMIT)
    assert data is not None
    assert alone is not None
    HERE.clear()
    try:
        back = pickle.loads(data)
        with pytest.raises(SystemExit):
            pickle.loads(alone)
    finally:
        HERE.append(True)
    assert type(back) is ValueError
    assert str(back.__cause__) == "OnlyOnTheHost: there"
    assert repr(back.__cause__.__cause__) == "KeyError('k')"


def test_a_long_chain_comes_back_and_an_endless_one_says_where_it_is_cut() -> None:
    def chain(length: int) -> BaseException:
        error: BaseException = ValueError("0")
        for number in range(1, length):
            error = raised(errors.TwoArguments(number, number), error)
        return error

    def length(error: BaseException | None) -> int:
        count = 0
        while error is not None:
            count, error = count + 1, error.__cause__
        return count

    assert length(through(chain(MOST))) == MOST
    back: BaseException | None = through(chain(MOST + 5))
    assert length(back) == MOST
    while back is not None and back.__cause__ is not None:
        back = back.__cause__
    assert f"cut here: more than {MOST}" in str(back.__notes__)  # type: ignore[union-attr]


def test_causes_that_are_contexts_too_do_not_double_at_every_level() -> None:
    error: BaseException = ValueError("0")
    for number in range(60):
        try:
            try:
                raise error
            except Exception as caught:
                raise TypeError(number) from caught
        except Exception as caught:  # noqa: BLE001
            error = caught
    back = through(error)
    assert back.__cause__ is back.__context__ is not None


# Any tree.

makers = st.one_of(
    st.builds(ValueError, st.text(max_size=5)),
    st.builds(KeyError, st.integers()),
    st.builds(OSError, st.integers(1, 30), st.text(max_size=5)),
    st.builds(errors.KeywordOnly, code=st.integers()),
    st.builds(errors.TwoArguments, st.integers(), st.integers()),
    st.builds(errors.HoldsLock, st.integers()),
    st.builds(errors.Slotted, st.integers()),
    st.builds(errors.Frozen, code=st.integers()),
    st.builds(errors.NoFile, st.text(max_size=5)),
    st.builds(errors.SaysHow, st.integers()),
)


@st.composite
def trees(draw: st.DrawFn) -> BaseException:
    """Errors and groups of them, which share causes and may go round in circles."""
    found: list[Exception] = draw(st.lists(makers, min_size=1, max_size=6))
    for number in range(draw(st.integers(0, 3))):
        members = draw(st.lists(st.sampled_from(found), min_size=1, max_size=3))
        kind = draw(st.sampled_from([ExceptionGroup, errors.Batch]))
        found.append(kind(str(number) if kind is ExceptionGroup else number, members))
    for error in found:
        for name in ("__cause__", "__context__"):
            other = draw(st.none() | st.sampled_from(found))
            BaseException.__setattr__(error, name, other)
        BaseException.__setattr__(error, "__suppress_context__", draw(st.booleans()))
        if draw(st.booleans()):
            add_note(error, draw(st.text(max_size=5)))
    return found[-1]


def same(before: BaseException, after: BaseException) -> bool:
    """Whether two trees are alike, and hang together in the same way."""
    pairs: dict[int, BaseException] = {}
    waiting: list[tuple[BaseException | None, BaseException | None]] = [(before, after)]
    while waiting:
        one, other = waiting.pop()
        if one is None or other is None:
            if one is not other:
                return False
            continue
        if id(one) in pairs:
            if pairs[id(one)] is not other:
                return False
            continue
        pairs[id(one)] = other
        notes = [note for note in getattr(other, "__notes__", []) if not note.startswith("left on the host")]
        facts = (type(one), str(one), one.__suppress_context__, getattr(one, "__notes__", []))
        if facts != (type(other), str(other), other.__suppress_context__, notes):
            return False
        waiting += [(one.__cause__, other.__cause__), (one.__context__, other.__context__)]
        if isinstance(one, BaseExceptionGroup) and isinstance(other, BaseExceptionGroup):
            waiting += zip(one.exceptions, other.exceptions, strict=True)
    return len({id(each) for each in pairs.values()}) == len(pairs)


@given(trees())
def test_any_tree_comes_back(tree: BaseException) -> None:
    assert same(tree, through(tree))


# What was written before.


@pytest.mark.parametrize("version", [1, 2])
def test_stored_errors_stay_readable(version: int) -> None:
    group = pickle.loads((GOLDEN / f"error-v{version}.pickle").read_bytes())
    assert (type(group), group.message) == (ExceptionGroup, "some")
    odd, value = group.exceptions
    assert (type(odd).__name__, odd.code, odd.detail, odd.__notes__) == ("OddError", 3, "x", ["seen at step 3"])
    assert repr(odd.__cause__) == "KeyError('row 7')"
    assert repr(value) == "ValueError('v')"


def test_errors_of_ours_come_back_with_what_they_know() -> None:
    error = JobFailed("no", job_id="job-1", reason="ProcessDied", rank=2, exit_code=-9, log_tail="last words")
    back = pickle.loads(pickle.dumps(error))
    assert (vars(back), str(back)) == (vars(error), "no")
    assert JobFailed("no").rank is None
    before = errors_of_ours._rebuild(JobFailed, "no", "job-1", "ProcessDied")  # as it was stored at first
    assert (before.job_id, before.reason, before.log_tail) == ("job-1", "ProcessDied", "")
    with pytest.raises(TypeError, match="no such_fact"):
        JobFailed("no", such_fact=1)  # type: ignore[call-arg]

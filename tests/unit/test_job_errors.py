"""What a job's end says: to people in its message and notes, to programs in its attributes."""

import pickle
import uuid
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import pytest

import kinetic_ray as kinetic
from kinetic_ray.config import Target
from kinetic_ray.core.state import JobStatus, Reason
from kinetic_ray.errors import JobFailed
from kinetic_ray.jobs import JobHandle
from kinetic_ray.jobs.results import Ended
from kinetic_ray.journal import JobJournal
from kinetic_ray.payload.raised import pack_raised
from kinetic_ray.payload.versions import fingerprint
from kinetic_ray.runner.calls.failures import CallFailure
from kinetic_ray.store import Store, open_store
from tests.unit.cli_jobs import LiveBackend, Recorder
from tests.unit.payloads import errors


@pytest.fixture
def store() -> Store:
    return open_store(f"memory://{uuid.uuid4()}")


@pytest.fixture
def recorder(store: Store) -> Recorder:
    return Recorder(store)


def handle(journal: JobJournal) -> JobHandle[Any]:
    target = Target("unused", journal.store.url, Path("/unused"))
    return JobHandle(journal.job_id, target, store=journal.store, backend=LiveBackend(Path("/unused")))


def ended(journal: JobJournal) -> Ended:
    return Ended(journal, journal.spec(), journal.state())


COLLATERAL = """rank 2 (host 2): KeyError: 'row 7'
  of the user's
  after it: rank 1 (host 1): lost its peer
  stopped with it: rank 0"""


def test_the_users_exception_says_all_that_is_known_of_the_end(recorder: Recorder) -> None:
    journal = recorder.running(logs={2: b"row 5\nrow 6\nTraceback (remote)\nKeyError: 'row 7'\n"})
    journal = recorder.fail(journal, KeyError("row 7"), message=COLLATERAL)
    error = ended(journal).error()
    assert isinstance(error, KeyError)
    (note,) = error.__notes__
    told = [
        f"Raised in {journal.job_id}, rank 2 (tpu-v6e-16-0, worker 2), phase call (UserError):",
        "Traceback (remote)",
        "after it: rank 1 (host 1): lost its peer",
        "stopped with it: rank 0",
        "last log lines of rank 2:\n    row 5\n    row 6",
        f"full log: kinetic jobs logs {journal.job_id} --rank 2",
    ]
    assert [note.count(each) for each in told] == [1] * len(told)
    assert "of the user's" not in note
    assert [*map(note.index, told)] == sorted(map(note.index, told))
    (short,) = ended(journal).error(shown=2).__notes__
    assert "row 6" not in short
    assert "Traceback (remote)" in short


@dataclass(frozen=True)
class Frozen(Exception):
    code: int


@pytest.mark.parametrize("error", [Frozen(3), errors.Slotted(3)])
def test_exceptions_that_refuse_to_be_changed_are_raised_with_their_note(recorder: Recorder, error: Exception) -> None:
    with pytest.raises(type(error)) as caught:
        handle(recorder.failed(error=error, data=pack_raised(error, 1 << 20))).result()
    assert caught.value.code == 3  # type: ignore[attr-defined]
    assert "Raised in job-" in caught.value.__notes__[0]


def test_an_error_in_words_is_open_to_programs(recorder: Recorder) -> None:
    journal = recorder.failed(error=SystemExit(3), logs={2: b"last words\n"})  # type: ignore[arg-type]
    with pytest.raises(JobFailed) as caught:
        handle(journal).result()
    error = pickle.loads(pickle.dumps(caught.value))
    assert vars(error) == {
        "job_id": journal.job_id,
        "reason": "UserError",
        "rank": 2,
        "phase": "call",
        "exit_code": None,
        "error_type": "SystemExit",
        "error_message": "3",
        "traceback": "Traceback (remote)\nSystemExit: 3",
        "log_tail": "last words",
    }
    assert "last log lines of rank 2:\n    last words" in str(error)


def test_what_can_not_travel_has_the_cause_that_can(recorder: Recorder) -> None:
    data = pack_raised(errors.raised(errors.sealed(), errors.raised(KeyError("root"))), 1 << 20)
    with pytest.raises(JobFailed, match="failed: UserError") as caught:
        handle(recorder.failed(data=data)).result()
    assert repr(caught.value.__cause__) == "KeyError('root')"
    call = CallFailure("UserError", "no", rank=1, traceback="Traceback", pickled=data, exit_code=None, gang="grp-1")
    error = call.for_user()
    assert isinstance(error, JobFailed)
    assert (repr(error.__cause__), error.rank, error.traceback) == ("KeyError('root')", 1, "Traceback")


def test_what_must_not_be_raised_here_has_its_cause(recorder: Recorder) -> None:
    data = pack_raised(errors.raised(SystemExit(3), errors.raised(KeyError("root"))), 1 << 20)
    with pytest.raises(JobFailed) as caught:
        handle(recorder.failed(data=data)).result()
    assert repr(caught.value.__cause__) == "KeyError('root')"


class Marks:
    """Says that it was unpickled."""

    loaded: ClassVar[list[int]] = []

    def __reduce__(self) -> Any:
        return Marks.loaded.append, (1,)


@pytest.mark.parametrize("data", [pickle.dumps(Marks()), b"", None])
def test_a_pickled_error_that_is_altered_or_missing_leaves_the_words(
    recorder: Recorder, store: Store, data: bytes | None
) -> None:
    journal = recorder.failed(error=ValueError("bad batch"))
    key = journal.keys.error(1, 1, 2)
    if data is None:
        store.delete(key)
    else:
        store.put(key, data)
    with pytest.raises(JobFailed, match="ValueError: bad batch") as caught:
        handle(journal).result()
    assert "its pickled form can't be used" in str(caught.value)
    assert key in str(caught.value)
    assert caught.value.error_type == "ValueError"
    assert Marks.loaded == []


def test_an_error_that_this_process_can_not_rebuild_says_why(recorder: Recorder) -> None:
    class Torn(Exception):
        def __reduce__(self) -> Any:
            return __import__, ("module_that_is_only_on_the_host",)

    with pytest.raises(JobFailed, match="can't be rebuilt in this process: ModuleNotFoundError"):
        handle(recorder.failed(error=Torn("the tear"))).result()


def test_an_error_that_other_packages_are_to_blame_for_names_them(recorder: Recorder) -> None:
    class Torn(Exception):
        def __reduce__(self) -> Any:
            return __import__, ("module_that_is_only_on_the_host",)

    journal = recorder.failed(error=Torn("the tear"), client=replace(fingerprint(), packages={"kinetic_none": "1.0"}))
    with pytest.raises(JobFailed, match=r"made with kinetic_none 1\.0, and here is no kinetic_none"):
        handle(journal).result()


def test_a_missing_value_is_named_by_its_job(recorder: Recorder, store: Store) -> None:
    journal = recorder.succeeded()
    store.delete(journal.keys.value(1, 1, 0))
    with pytest.raises(kinetic.DataError, match=f"the value of {journal.job_id} is missing"):
        handle(journal).result()


def test_an_end_that_no_rank_caused_shows_what_the_program_had_said(recorder: Recorder) -> None:
    journal = recorder.ended(
        recorder.running(logs={0: b"step 1\nstep 2\n"}),
        JobStatus.FAILED,
        reason=str(Reason.DRIVER_LOST),
        message="its driver is gone",
    )
    with pytest.raises(JobFailed) as caught:
        handle(journal).result()
    assert "last log lines of rank 0:\n    step 1\n    step 2\n" in str(caught.value)
    assert (caught.value.rank, caught.value.log_tail) == (None, "step 1\nstep 2")
    assert "step 1" not in str(ended(journal).error(shown=0))

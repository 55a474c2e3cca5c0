"""Following a rank's log through attempts: every byte once, in order, whatever is seen when."""

import io
import uuid
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinetic_ray.backends.base import Backend
from kinetic_ray.config import Target
from kinetic_ray.core.state import JobState, JobStatus
from kinetic_ray.errors import JobCancelled, JobLost, StoreError
from kinetic_ray.jobs import JobHandle
from kinetic_ray.jobs.logs import LogPump, tail_start
from kinetic_ray.journal import JobJournal
from kinetic_ray.runner.deaths import last_lines
from kinetic_ray.store import Store, open_store
from tests.unit.cli_jobs import DownBackend, LiveBackend, Recorder


@pytest.fixture
def journal() -> JobJournal:
    return Recorder(open_store(f"memory://{uuid.uuid4()}")).running()


def running(attempt: int, epoch: int = 1) -> JobState:
    return JobState(status=JobStatus.RUNNING, epoch=epoch, attempt=attempt)


ENDED = JobState(status=JobStatus.FAILED, epoch=2, attempt=2)


def handle_of(journal: JobJournal, backend: Backend | None = None) -> JobHandle[Any]:
    target = Target("unused", journal.store.url, Path("/unused"))
    return JobHandle(journal.job_id, target, store=journal.store, backend=backend or LiveBackend(target.home))


def write(journal: JobJournal, text: bytes, attempt: int = 1, epoch: int = 1) -> None:
    key = journal.keys.log(epoch, attempt, 0)
    journal.store.put(key, (journal.store.find(key) or b"") + text)


def test_the_end_of_an_attempt_comes_before_the_next(journal: JobJournal) -> None:
    pump = LogPump(journal.store, journal.keys)
    write(journal, b"first\n")
    assert pump.read(running(1)) == b"first\n"
    write(journal, b"Traceback: what was unread\n")
    write(journal, b"second\n", attempt=2)
    assert pump.read(running(2)) == b"Traceback: what was unread\nsecond\n"
    assert pump.read(ENDED) == b""


def test_an_attempt_whose_log_comes_late_is_still_found(journal: JobJournal) -> None:
    pump = LogPump(journal.store, journal.keys)
    write(journal, b"first\n")
    assert pump.read(running(1)) == b"first\n"
    assert pump.read(running(2)) == b""  # the attempt is recorded, its log isn't there yet
    write(journal, b"second\n", attempt=2)
    assert pump.read(running(2)) == b"second\n"


def test_attempts_between_two_looks_are_not_left_out(journal: JobJournal) -> None:
    pump = LogPump(journal.store, journal.keys)
    write(journal, b"1")
    assert pump.read(running(1)) == b"1"
    for attempt in (2, 3, 4):
        write(journal, str(attempt).encode() + b"\n" * (attempt == 3), attempt)
    assert pump.read(running(4)) == b"\n2\n3\n4"  # what one attempt had not ended is no part of the next one's line


def test_a_new_drivers_attempt_of_the_same_number_comes_after(journal: JobJournal) -> None:
    pump = LogPump(journal.store, journal.keys)
    write(journal, b"old\n")
    assert pump.read(running(1)) == b"old\n"
    write(journal, b"new\n", epoch=2)
    assert pump.read(running(1, epoch=2)) == b"new\n"


def test_a_first_look_begins_with_the_newest(journal: JobJournal) -> None:
    write(journal, b"a\nb\n")
    write(journal, b"c\nd\n", attempt=2)
    assert LogPump(journal.store, journal.keys).read(running(2)) == b"c\nd\n"
    assert LogPump(journal.store, journal.keys, tail=1).read(running(2)) == b"d\n"


def test_a_large_rest_comes_in_pieces_and_whole_at_the_end(journal: JobJournal) -> None:
    pump = LogPump(journal.store, journal.keys)
    write(journal, b"x")
    assert pump.read(running(1)) == b"x"
    rest = bytes(range(256)) * 9000 + b"\n"  # more than two looks take
    write(journal, rest)
    write(journal, b"second", attempt=2)
    reads = []
    while not reads or pump.is_behind:
        reads.append(pump.read(ENDED))
    assert max(map(len, reads)) <= 1 << 20  # a log of any size is read in pieces
    assert b"".join(reads) == rest + b"second"
    assert pump.read(ENDED) == b""


@given(st.lists(st.tuples(st.integers(1, 4), st.binary(max_size=9), st.booleans()), max_size=12))
def test_every_byte_once_and_in_order(steps: list[tuple[int, bytes, bool]]) -> None:
    """Attempts write one after another; looks come whenever they like."""
    journal = Recorder(open_store(f"memory://{uuid.uuid4()}")).running()
    write(journal, b"^")
    pump = LogPump(journal.store, journal.keys)
    read, written, last = pump.read(running(1)), b"^", 1
    for attempt, data, look in sorted(steps, key=lambda step: step[0]):
        write(journal, data, attempt)
        if data and last != attempt and not written.endswith(b"\n"):
            written += b"\n"
        written, last = written + data, attempt if data else last
        if look:
            read += pump.read(running(attempt))
    assert read + pump.read(ENDED) == written


def test_a_store_that_is_away_loses_nothing(journal: JobJournal) -> None:
    class Blinking:
        """The store, away at reads of the first attempt's log while it is told so."""

        away = False
        list, exists, size = journal.store.list, journal.store.exists, journal.store.size

        def read_range(self, key: str, offset: int, limit: int | None = None) -> bytes:
            if self.away:
                raise StoreError("away")
            return journal.store.read_range(key, offset, limit)

    store = Blinking()
    pump = LogPump(store, journal.keys)  # type: ignore[arg-type]
    write(journal, b"1")
    assert pump.read(running(1)) == b"1"
    write(journal, b"rest")
    write(journal, b"2", attempt=2)
    store.away = True
    assert pump.read(running(2)) == b""
    with pytest.raises(StoreError, match="away"):
        pump.read(ENDED)  # no other look would come
    store.away = False
    assert pump.read(ENDED) == b"rest\n2"


LINES = st.lists(st.sampled_from(["\n", "\r", "\x0b", "\x0c", "\x1c", "\x85", "\u2028", "a", "\xfc"])).map("".join)


@given(LINES, st.integers(0, 9))
def test_the_tail_is_the_log_as_it_is(text: str, n: int) -> None:
    """Only a newline ends a line, for the handle as for the command."""
    journal = Recorder(open_store(f"memory://{uuid.uuid4()}")).running()
    write(journal, text.encode())
    key, job = journal.keys.log(1, 1, 0), handle_of(journal)
    last = text.removesuffix("\n").split("\n")[-n:] if n else []
    assert job.tail(n) == "\n".join(last)
    assert text.encode()[tail_start(journal.store, key, n) :].decode().removesuffix("\n") == "\n".join(last)
    assert last_lines(text) == "\n".join(text.removesuffix("\n").split("\n")[-20:])


def test_a_lost_jobs_log_is_shown_before_the_loss_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    journal = Recorder(open_store(f"memory://{uuid.uuid4()}")).running()
    text = b"".join(b"line %d\n" % n for n in range(200_000))  # of which a look takes a part
    write(journal, text + b"half")
    job = handle_of(journal, DownBackend(Path("/unused")))
    with pytest.raises(JobLost):
        job.logs(follow=True)
    assert capsys.readouterr().out.encode() == text + b"half"
    with pytest.raises(JobLost):
        job.result(stream_logs=True)
    assert capsys.readouterr().out.encode() == text + b"half"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_is_given_no_control_codes_and_bars_as_they_move(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    recorder = Recorder(open_store(f"memory://{uuid.uuid4()}"))
    journal = recorder.running()
    write(journal, b"\x1b]0;title\x07\x1b[2Jplain\n 10%\r 20%")
    out = Terminal()

    def end(status: JobStatus) -> None:
        if status is JobStatus.RUNNING:
            assert out.getvalue() == "plain\n 20%"
            recorder.ended(journal, JobStatus.STOPPED)

    with redirect_stdout(out), pytest.raises(JobCancelled):
        handle_of(journal).result(stream_logs=True, on_status_change=end)
    assert out.getvalue() == "plain\n 20%\r\x1b[J 20%\n"


@pytest.mark.parametrize(("attempt", "expected"), [(None, "second\n"), (1, "first\n"), (2, "second\n"), (3, "")])
def test_following_one_attempt(attempt: int | None, expected: str) -> None:
    store: Store = open_store(f"memory://{uuid.uuid4()}")
    recorder = Recorder(store)
    journal = recorder.running()
    write(journal, b"first\n")
    write(journal, b"second\n", attempt=2)
    recorder.ended(journal, JobStatus.FAILED, attempt=2)
    job = handle_of(journal)
    out = io.StringIO()
    with redirect_stdout(out):
        assert job.logs(follow=True, attempt=attempt) is None
    assert out.getvalue() == expected

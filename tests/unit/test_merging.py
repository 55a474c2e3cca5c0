"""Events in few objects: whatever is killed, and whoever reads meanwhile, every event is there once and in order."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kinetic_ray.config import Target
from kinetic_ray.core.names import make_id
from kinetic_ray.core.outcome import Blob
from kinetic_ray.core.spec import Fingerprint, JobSpec
from kinetic_ray.core.state import Event, EventKind, JobStatus
from kinetic_ray.errors import StoreError
from kinetic_ray.jobs import JobHandle
from kinetic_ray.journal import DriverLog, Fenced, JobJournal, Segments
from kinetic_ray.store import Store, open_store
from kinetic_ray.store.memory import open_memory
from kinetic_ray.store.place import Place
from tests.unit.cli_jobs import LiveBackend

JOB = make_id("job", 1, bytes(10))
SPEC = JobSpec(JOB, "f", 1.0, "cpu", Blob("ab" * 32, 3), Fingerprint("3.11", "2.60", "3", "0"))


class Medium:
    """A medium that does something before each use of it."""

    def __init__(self, place: Place, before: Callable[[str, str], None]) -> None:
        self._place, self._before = place, before

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._place, name)
        if name in ("url", "uri"):
            return method

        def use(*args: Any, **kwargs: Any) -> Any:
            self._before(name, str(args[0]) if args else "")
            return method(*args, **kwargs)

        return use


@pytest.fixture
def name() -> str:
    return str(uuid.uuid4())


@pytest.fixture
def journal(name: str) -> Iterator[JobJournal]:
    store = open_store(f"memory://{name}")
    journal = JobJournal(store, JOB)
    journal.create(SPEC, {})
    yield journal
    journal.erase()


def progress(step: int) -> Event:
    return Event(EventKind.PROGRESSED, float(step), {"step": step})


def steps(journal: JobJournal, seen: Segments | None = None) -> list[int]:
    return [event.fields["step"] for log in journal.epochs(seen) for event in log.events]


def append_many(log: DriverLog, first: int, count: int) -> None:
    for step in range(first, first + count):
        log.append(progress(step))


def test_a_long_job_has_few_objects(journal: JobJournal) -> None:
    log, seen = journal.claim({}), Segments()
    for step in range(3000):
        log.append(progress(step))
        log.merge()
        if step % 100 == 0:
            assert steps(journal, seen) == list(range(step + 1))
    assert steps(journal) == steps(journal, seen) == list(range(3000))
    sizes = [journal.store.size(key) for key in journal.store.list(journal.keys.events(1))]
    assert len(sizes) <= sum(sizes) / (256 << 10) + 130
    assert max(sizes) < 2 * (256 << 10)
    assert journal.state().progress == journal.state(seen).progress


def test_large_segments_are_merged_sooner_and_not_without_end(journal: JobJournal) -> None:
    log = journal.claim({})
    for step in range(20):
        log.append(Event(EventKind.WARNED, 1.0, {"step": step, "message": "x" * (100 << 10)}))
        log.merge()
    assert steps(journal) == list(range(20))
    sizes = [journal.store.size(key) for key in journal.store.list(journal.keys.events(1))]
    assert max(sizes) < 400 << 10


def test_few_segments_are_left_alone(journal: JobJournal) -> None:
    log = journal.claim({})
    append_many(log, 0, 63)
    log.merge()
    assert len(journal.store.list(journal.keys.events(1))) == 63


def test_what_was_merged_goes_at_the_next_merge(journal: JobJournal) -> None:
    """A listing is no picture of one moment: what began before the merged part was there must find the segments."""
    log = journal.claim({})
    append_many(log, 0, 64)
    log.merge()
    first = journal.store.list(journal.keys.events(1))
    assert first[0] == journal.keys.merged(1, 1, 64)
    assert len(first) == 65
    log.merge()
    assert journal.store.list(journal.keys.events(1)) == first
    append_many(log, 64, 64)
    log.merge()
    left = journal.store.list(journal.keys.events(1))
    assert left[:2] == [journal.keys.merged(1, 1, 64), journal.keys.merged(1, 1, 128)]
    assert len(left) == 2 + 64


def test_a_store_that_refuses_to_delete_gets_no_further_parts(name: str, journal: JobJournal) -> None:
    def refuse(use: str, _key: str) -> None:
        if use == "delete" and is_refused:
            raise StoreError("not now")

    is_refused = True
    log = JobJournal(Store(Medium(open_memory(name), refuse)), JOB).claim({})
    for first in range(0, 640, 64):
        append_many(log, first, 64)
        with suppress(StoreError):
            log.merge()
    keys = journal.store.list(journal.keys.events(1))
    assert [key for key in keys if "-" in key.rpartition("/")[2]] == [journal.keys.merged(1, 1, 64)]
    is_refused = False
    log.merge()
    append_many(log, 640, 64)
    log.merge()
    assert len(journal.store.list(journal.keys.events(1))) == 2 + 64
    assert steps(journal) == list(range(704))


@pytest.mark.parametrize("slow", ["between listing and reading", "while it lists"])
def test_a_reader_that_is_overtaken_by_merges_looks_again(name: str, journal: JobJournal, slow: str) -> None:
    log = journal.claim({})
    append_many(log, 0, 64)
    overtaken = []

    def overtake(use: str, key: str) -> None:
        if use == "read" and key.endswith("/0000000001.json") and not overtaken:
            overtaken.append(key)
            for first in (64, 128, 192):
                log.merge()
                append_many(log, first, 64)

    def hide(use: str, key: str) -> None:
        if use == "children" and key.endswith("/events") and not overtaken:
            overtaken.append(key)
            journal.store.delete(journal.keys.segment(1, 30))  # as if the listing had passed it by

        elif use == "children" and key.endswith("/events") and len(overtaken) == 1:
            overtaken.append(key)
            again = DriverLog(journal, 1)
            append_many(again, 0, 30)

    reader = Store(Medium(open_memory(name), overtake if slow.startswith("between") else hide))
    expected = 256 if slow.startswith("between") else 64
    assert steps(JobJournal(reader, JOB)) == list(range(expected))
    assert overtaken


class Killed(BaseException):
    """The driver is gone."""


@settings(max_examples=40, deadline=None)
@given(
    batches=st.lists(st.integers(1, 3), min_size=70, max_size=140),
    merge_at=st.sets(st.sampled_from(range(63, 140, 4)), min_size=2, max_size=5),
    fail_at=st.integers(0, 150),
    killed=st.booleans(),
)
def test_no_event_is_lost_or_doubled(batches: list[int], merge_at: set[int], fail_at: int, killed: bool) -> None:
    """A driver that is killed, or whose store fails it, at any use of the store while it merges."""
    name = str(uuid.uuid4())
    store = open_store(f"memory://{name}")
    plain = JobJournal(store, JOB)
    plain.create(SPEC, {})
    armed, uses = [False], [0]

    def before(_use: str, _key: str) -> None:
        uses[0] += armed[0]
        if armed[0] and uses[0] == fail_at:
            if killed:
                raise Killed
            raise OSError("away")

    log = JobJournal(Store(Medium(open_memory(name), before)), JOB).claim({})
    seen, written = Segments(), 0
    with suppress(Killed):
        for number, count in enumerate(batches):
            log.append(*(progress(written + step) for step in range(count)))
            written += count
            if number in merge_at:
                armed[0] = True
                with suppress(StoreError):
                    log.merge()
                armed[0] = False
                assert steps(plain, seen) == list(range(written))
    assert steps(plain) == steps(plain, seen) == list(range(written))
    plain.erase()


def test_nothing_is_merged_into_a_job_that_was_cleaned_up(journal: JobJournal) -> None:
    log = journal.claim({})
    append_many(log, 0, 64)
    journal.erase()
    with pytest.raises(Fenced, match="cleaned up"):
        log.merge()
    assert journal.store.walk("") == ["format.json"]


def test_a_handle_reads_and_folds_each_event_once(name: str, journal: JobJournal) -> None:
    log = journal.claim({})
    append_many(log, 0, 30)
    read: list[str] = []
    medium = Medium(open_memory(name), lambda use, key: read.append(key) if use == "read" else None)
    handle: JobHandle[None] = JobHandle(
        JOB,
        Target("unused", journal.store.url, Path("/unused")),
        store=Store(medium),
        backend=LiveBackend(Path("/unused")),
    )
    for steps_so_far in (30, 40, 50):
        for _ in range(3):
            assert handle.status() is JobStatus.PENDING
            progress_now = handle.progress()
            assert progress_now is not None
            assert progress_now.step == steps_so_far - 1
            assert len(handle.events()) == steps_so_far
        append_many(log, steps_so_far, 10)
    segments = [key for key in read if "/events/" in key]
    assert segments == [journal.keys.segment(1, 1 + number) for number in range(50)]


def test_many_threads_may_look_through_one_handle(journal: JobJournal) -> None:
    log, seen = journal.claim({}), Segments()

    def look() -> None:
        before = -1
        for _ in range(30):
            state = journal.state(seen)
            step = -1 if state.progress is None else state.progress.step
            assert len(state.warnings) == 1 + step  # each counted once
            assert step >= before
            before = step

    log.append(Event(EventKind.WARNED, 1.0, {"message": "0"}), progress(0))
    with ThreadPoolExecutor(8) as pool:
        looks = [pool.submit(look) for _ in range(8)]
        for step in range(1, 100):
            log.append(Event(EventKind.WARNED, 1.0, {"message": str(step)}), progress(step))
            log.merge()
        for done in looks:
            done.result()
    assert journal.state(seen) == journal.state()

"""The index is a hint: whatever becomes of it, every job is listed, no other is, and it can be made anew."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinetic_ray.core.names import make_id
from kinetic_ray.core.outcome import Blob
from kinetic_ray.core.spec import Fingerprint, JobSpec
from kinetic_ray.core.state import Event, EventKind, JobStatus, Reason
from kinetic_ray.jobs import list_jobs
from kinetic_ray.journal import INDEX_ORDER, JobJournal, list_entries, pending_jobs, rebuild_index
from kinetic_ray.store import Store, open_store
from kinetic_ray.store.memory import open_memory
from kinetic_ray.store.place import Place

DAY = 24 * 3600.0
JOB = make_id("job", 0, bytes(10))
SPEC = JobSpec(JOB, "train", 0.0, "cpu", Blob("ab" * 32, 3), Fingerprint("3.11", "2.60", "3", "0"), env_id="e1")


@pytest.fixture
def store() -> Iterator[Store]:
    store = open_store(f"memory://{uuid.uuid4()}")
    yield store
    for key in store.walk(""):
        store.delete(key)


def job(store: Store, number: int = 1, status: JobStatus = JobStatus.PENDING) -> JobJournal:
    journal = JobJournal(store, make_id("job", number, number.to_bytes(10, "big")))
    assert journal.create(replace(SPEC, job_id=journal.job_id), {})
    if status is JobStatus.RUNNING:
        journal.claim({}).append(Event(EventKind.ATTEMPT_STARTED, 1.0, {"attempt": 1}))
        journal.index(journal.spec(), status)
    elif status is not JobStatus.PENDING:
        journal.close(status, Reason.CANCELLED, "", 1.0)
    return journal


def listed(store: Store) -> dict[str, str]:
    return {entry.job_id: entry.state for entry in list_entries(store)}


class Killed(BaseException):
    """Nothing runs after it, as after SIGKILL."""


class Dying:
    """A medium at whose n-th publication the process dies, before it or after it."""

    def __init__(self, place: Place, number: int, *, after: bool) -> None:
        self._place, self._left, self._after = place, number, after

    def __getattr__(self, attribute: str) -> Any:
        return getattr(self._place, attribute)

    def stage(self) -> Any:
        return _Staged(self._place.stage(), self)

    def dies(self, *, after: bool) -> bool:
        self._left -= after
        return (self._left == 0) if after and self._after else (self._left == 1 and not after and not self._after)


class _Staged:
    def __init__(self, staged: Any, medium: Dying) -> None:
        self._staged, self._medium = staged, medium

    def __getattr__(self, attribute: str) -> Any:
        return getattr(self._staged, attribute)

    def publish(self, key: str, *, replace: bool, durable: bool) -> bool:
        if self._medium.dies(after=False):
            raise Killed
        done = bool(self._staged.publish(key, replace=replace, durable=durable))
        if self._medium.dies(after=True):
            raise Killed
        return done


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_client_killed_anywhere_leaves_a_listed_job_or_none(number: int, after: bool) -> None:
    name = str(uuid.uuid4())
    store = open_store(f"memory://{name}")
    with pytest.raises(Killed):
        JobJournal(Store(Dying(open_memory(name), number, after=after)), JOB).create(SPEC, {"A": "1"})
    journal = JobJournal(store, JOB)
    exists = (number, after) == (3, True)
    assert journal.exists() is exists
    assert list(listed(store)) == [pending.job_id for pending in pending_jobs(store)] == ([JOB] if exists else [])
    assert journal.create(SPEC, {"A": "1"}) is not exists  # safe to repeat
    assert listed(store) == {JOB: "PENDING"}


def test_a_hint_to_nothing_is_harmless(store: Store) -> None:
    good = job(store, 2)
    store.put(f"index/{JOB}~PENDING~train", b"")
    for wanted in ({}, {"state": "PENDING"}, {"name": "train"}):
        assert [found.job_id for found in list_jobs(store=store.url, **wanted)] == [good.job_id]  # type: ignore[arg-type]


# Making it anew.


@pytest.mark.parametrize("status", [s for s in JobStatus if s is not JobStatus.NOT_FOUND])
def test_a_lost_index_is_made_from_the_records(store: Store, status: JobStatus) -> None:
    journal = job(store, 1, status)
    before = store.list("index")
    for key in before:
        store.delete(key)
    assert listed(store) == {}
    found = rebuild_index(store, 0.0)
    assert (found.jobs, found.changed, found.removed, found.unreadable) == (1, (journal.job_id,), 0, ())
    assert store.list("index") == before
    assert rebuild_index(store, 0.0).changed == ()


@given(
    jobs=st.lists(st.sampled_from([JobStatus.PENDING, JobStatus.RUNNING, JobStatus.FAILED, JobStatus.SUCCEEDED])),
    lies=st.lists(st.tuples(st.integers(0, 9), st.sampled_from(INDEX_ORDER[:2]))),
    lost=st.sets(st.integers(0, 9)),
)
def test_whatever_the_index_says_afterwards_it_is_true(
    jobs: list[JobStatus], lies: list[tuple[int, str]], lost: set[int]
) -> None:
    store = open_store(f"memory://{uuid.uuid4()}")
    journals = [job(store, number, status) for number, status in enumerate(jobs[:10])]
    for number in lost:
        for key in store.list("index"):
            if number < len(journals) and journals[number].job_id in key:
                store.delete(key)
    for number, state in lies:
        if number < len(journals):
            store.put(f"index/{journals[number].job_id}~{state}~train", b"")
    rebuild_index(store, 0.0)
    expected = {journal.job_id: str(journal.state().status) for journal in journals}
    assert listed(store) == expected
    assert rebuild_index(store, 0.0).changed == ()


def test_entries_of_jobs_that_are_no_more_go_once_they_are_old(store: Store) -> None:
    store.put(f"index/{JOB}~SUCCEEDED~train", b"")  # a clean-up was killed before its last step
    store.put(f"index/{JOB}~PENDING~train", b"")
    assert rebuild_index(store, DAY - 1).removed == 0  # its spec may be on its way
    assert rebuild_index(store, DAY + 1).removed == 2
    assert store.list("index") == []


def test_what_a_killed_cleanup_has_left_goes_once_it_is_old(store: Store) -> None:
    half = job(store, 1, JobStatus.FAILED)
    store.delete(half.keys.spec)
    assert rebuild_index(store, DAY - 1).removed == 0
    assert store.walk(half.keys.root)
    assert rebuild_index(store, DAY + 1).jobs == 0
    assert store.walk("") == ["format.json"]


def test_what_cannot_be_read_is_told_and_left(store: Store) -> None:
    torn, good = job(store, 1), job(store, 2)
    store.put(torn.keys.spec, b"torn")
    store.put("jobs/notes.txt", b"")
    before = store.list("index")
    found = rebuild_index(store, 10 * DAY)
    assert (found.jobs, found.changed, found.removed) == (2, (), 0)
    assert [why.partition(":")[0] for why in found.unreadable] == [torn.job_id]
    assert store.list("index") == before
    assert good.job_id in listed(store)

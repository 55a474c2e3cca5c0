"""What grows reads the same in every store, whatever of it has been merged, and while it is."""

import itertools
import threading
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kinetic_ray.store import Growing, MissingKey, Store, open_store
from kinetic_ray.store.growing import Part

KEY = "jobs/a/logs/000001.0001/00000.log"


@pytest.fixture(params=["folder", "memory", "bucket"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param == "bucket":
        return open_store(request.getfixturevalue("bucket_url"))
    return open_store(tmp_path / "store" if request.param == "folder" else f"memory://{uuid.uuid4()}")


@pytest.fixture
def append(store: Store) -> Callable[[bytes], None]:
    """How a rank's words get there in this store."""
    path, size = store.append_path(KEY), 0

    def to_file(data: bytes) -> None:
        assert path is not None
        with path.open("ab") as file:
            file.write(data)

    def as_part(data: bytes) -> None:
        nonlocal size
        size = Growing(store, KEY).add(size, data).end

    return as_part if path is None else to_file


def test_what_was_appended_is_read_from_any_place(store: Store, append: Callable[[bytes], None]) -> None:
    whole = b""
    for data in (b"", b"one\n", b"two\n", b"x" * 1000, b"\xff\n"):
        append(data)
        whole += data
        log = Growing(store, KEY)
        assert (log.exists(), log.size(), log.read(0)) == (True, len(whole), whole)
        for offset in (0, 3, 4, 7, len(whole), len(whole) + 5):
            assert log.read(offset) == whole[offset:]
            assert log.read(offset, 2) == whole[offset : offset + 2]


def test_what_has_not_begun_is_missing(store: Store) -> None:
    log = Growing(store, KEY)
    assert not log.exists()
    for look in (log.size, lambda: log.read(0), lambda: log.read(5, 1)):
        with pytest.raises(MissingKey, match=KEY):
            look()


def test_all_of_it_is_removed(store: Store, append: Callable[[bytes], None]) -> None:
    for data in (b"one", b"two"):
        append(data)
    Growing(store, KEY).remove()
    assert store.walk("jobs") == []


def test_a_merge_is_not_seen_by_readers(store: Store) -> None:
    if store.append_path("probe") is not None:
        pytest.skip("in a folder it is one file, of which nothing is merged")
    log, whole = Growing(store, KEY), b"".join(f"line {number}\n".encode() for number in range(40))
    stop, wrong = threading.Event(), list[bytes]()

    def read() -> None:
        while not stop.is_set():
            offset = 7
            data = log.read(offset)
            if not whole[offset:].startswith(data):
                wrong.append(data)

    parts = [log.add(0, whole[:8])]
    reader = threading.Thread(target=read)
    reader.start()
    try:
        for start in range(8, len(whole), 8):
            parts.append(log.add(start, whole[start : start + 8]))
            if len(parts) == 5:
                log.merge(parts, whole[parts[0].start : parts[-1].end])
                parts = []
    finally:
        stop.set()
        reader.join()
    assert wrong == []
    assert log.read(0) == whole


@given(
    cuts=st.lists(st.integers(0, 60), max_size=8),
    merged=st.tuples(st.integers(0, 8), st.integers(0, 8)),
    data=st.data(),
)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_parts_that_overlap_read_as_one(cuts: list[int], merged: tuple[int, int], data: st.DataObject) -> None:
    """As a killed writer leaves them: repeated with more bytes, or merged and not yet removed."""
    whole = bytes(range(61))
    ends = sorted({0, *cuts, len(whole)})
    store = open_store(f"memory://{uuid.uuid4()}")
    log = Growing(store, KEY)
    for start, end in itertools.pairwise(ends):
        log.add(start, whole[start:end])
    first, last = sorted(min(one, len(ends) - 1) for one in merged)
    store.create(f"{KEY}/{Part(ends[first], ends[last]).name}", whole[ends[first] : ends[last]])
    offset = data.draw(st.integers(0, 62))
    limit = data.draw(st.none() | st.integers(0, 62))
    assert log.read(offset, limit) == whole[offset:][:limit]
    assert log.size() == len(whole)

"""What a rank leaves on its host comes to a store that is elsewhere."""

import os
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinetic_ray.core.names import JobKeys
from kinetic_ray.core.state import JobState
from kinetic_ray.jobs.logs import LogPump, find_log, read_log, read_tail
from kinetic_ray.runner.shipping import Courier, LogShipper, OutputMirror, append_to_log, fetch_outputs, fetched_note
from kinetic_ray.runner.task import RankTask, mirrored_folder
from kinetic_ray.store import Growing, Store, open_store
from tests.waiting import wait_until

KEY, OUTPUTS = "jobs/a/logs/0.log", "jobs/a/outputs"


@pytest.fixture
def store() -> Store:
    return open_store(f"memory://{uuid.uuid4()}")


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "rank.log"
    path.touch()
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "outputs").mkdir()
    return tmp_path / "outputs"


@pytest.fixture
def shipper(store: Store, log: Path) -> Iterator[LogShipper]:
    shipper = LogShipper(Growing(store, KEY), log)
    yield shipper
    shipper.close()


def add(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


# Logs.


def test_a_log_is_there_before_its_first_word(store: Store, shipper: LogShipper) -> None:
    assert shipper.ship() is False
    assert (Growing(store, KEY).exists(), Growing(store, KEY).read(0)) == (True, b"")


def test_a_log_that_grows_slowly_has_few_parts(store: Store, log: Path, shipper: LogShipper) -> None:
    whole = b""
    for number in range(200):
        whole += (line := f"line {number}\n".encode())
        add(log, line)
        shipper.ship()
        assert Growing(store, KEY).read(0) == whole
        assert len(store.walk(KEY)) <= 32 + number // 32
    shipper.ship()
    assert len(store.walk(KEY)) <= 32 + 200 // 32


def test_much_at_once_goes_in_pieces(store: Store, log: Path, shipper: LogShipper) -> None:
    whole = os.urandom(9 << 20)
    add(log, whole)
    calls = 1
    while shipper.ship():
        calls += 1
    assert (calls, Growing(store, KEY).read(0)) == (3, whole)


@given(st.lists(st.sampled_from([0, 1, 300, 256 << 10, 300 << 10]), max_size=40))
def test_whatever_the_pieces_all_arrives(tmp_path_factory: pytest.TempPathFactory, sizes: list[int]) -> None:
    store, path = open_store(f"memory://{uuid.uuid4()}"), tmp_path_factory.mktemp("log") / "rank.log"
    path.touch()
    shipper = LogShipper(Growing(store, KEY), path)
    for number, size in enumerate(sizes):
        add(path, bytes([number]) * size)
        shipper.ship()
    shipper.ship()
    shipper.close()
    assert Growing(store, KEY).read(0) == path.read_bytes()


def test_a_removed_file_is_shipped_to_its_end(store: Store, log: Path) -> None:
    courier = Courier(LogShipper(Growing(store, KEY), log))
    add(log, b"last words\n")
    log.unlink()
    courier.finish()
    assert Growing(store, KEY).read(0) == b"last words\n"


def test_a_log_is_shipped_while_it_grows(store: Store, log: Path) -> None:
    courier = Courier(LogShipper(Growing(store, KEY), log))
    try:
        add(log, b"first\n")
        wait_until(lambda: Growing(store, KEY).exists() and Growing(store, KEY).read(0) == b"first\n", 30, "the line")
    finally:
        courier.finish()


def test_who_follows_a_log_sees_each_byte_once_whatever_is_merged_meanwhile(store: Store, log: Path) -> None:
    keys = JobKeys("job-0000000000e008000000000000")
    state = replace(JobState(), epoch=1, attempt=1)
    shipper = LogShipper(Growing(store, keys.log(1, 1, 0)), log)
    pump, tailing, seen = LogPump(store, keys), None, b""
    for number in range(100):
        add(log, f"line {number}\n".encode())
        shipper.ship()
        if number % 3 == 0:
            seen += pump.read(state)
        if number == 50:
            tailing = LogPump(store, keys, tail=2)
            assert tailing.read(state) == b"line 49\nline 50\n"
    seen += pump.read(state)
    shipper.close()
    assert seen == log.read_bytes()
    assert tailing is not None
    assert tailing.read(state).startswith(b"line 51\n")
    key = find_log(store, keys, 0)
    assert key is not None
    assert (read_log(store, key), read_tail(store, key, 2)) == (log.read_text(), "line 98\nline 99")
    assert find_log(store, keys, 1) is None


def test_the_word_of_who_could_not_start_a_rank_follows_what_is_there(store: Store, tmp_path: Path) -> None:
    folder = open_store(tmp_path / "store")
    for place in (store, folder):
        append_to_log(place, KEY, "no room\n")
        append_to_log(place, KEY, "still\udcff none\n")
        assert Growing(place, KEY).read(0) == b"no room\nstill\xff none\n"


# Output files.


def names(store: Store) -> dict[str, bytes]:
    return {key.removeprefix(f"{OUTPUTS}/"): store.get(key) for key in store.walk(OUTPUTS)}


def test_files_that_rest_are_copied_and_those_that_change_wait(store: Store, folder: Path) -> None:
    mirror = OutputMirror(store, OUTPUTS, folder)
    (folder / "model").mkdir()
    (folder / "model" / "a").write_bytes(b"one")
    mirror.mirror(last=False)
    assert names(store) == {}
    mirror.mirror(last=False)
    assert names(store) == {"model/a": b"one"}
    (folder / "model" / "a").write_bytes(b"other")
    mirror.mirror(last=False)
    assert names(store) == {"model/a": b"one"}
    mirror.mirror(last=True)
    assert names(store) == {"model/a": b"other"}


def test_a_removed_file_goes_and_others_stay(store: Store, folder: Path) -> None:
    store.put(f"{OUTPUTS}/of-rank-1", b"x")
    mirror = OutputMirror(store, OUTPUTS, folder)
    for number in range(3):
        (folder / f"checkpoint-{number}").write_bytes(b"x")
        mirror.mirror(last=True)
        (folder / f"checkpoint-{number}").unlink()
    mirror.mirror(last=True)
    assert names(store) == {"of-rank-1": b"x"}


def test_odd_files_hold_nothing_up(store: Store, folder: Path) -> None:
    (folder / "link").symlink_to("/etc/passwd")
    os.mkfifo(folder / "pipe")
    (folder / "new\nline").write_bytes(b"x")
    (folder / ".kinetic-0123456789abcdef.part").write_bytes(b"half")
    (folder / "good").write_bytes(b"x")
    mirror = OutputMirror(store, OUTPUTS, folder)
    mirror.mirror(last=True)
    (folder / "new\nline").unlink()
    mirror.mirror(last=True)
    assert names(store) == {"good": b"x"}


def test_the_next_attempt_finds_the_files_and_sends_none_of_them_again(store: Store, folder: Path) -> None:
    for name, data in {"a": b"one", "deep/b": b"two", "old": b"three"}.items():
        store.put(f"{OUTPUTS}/{name}", data)
    fetch_outputs(store, OUTPUTS, folder)
    assert ((folder / "a").read_bytes(), (folder / "deep" / "b").read_bytes()) == (b"one", b"two")
    (folder / "a").write_bytes(b"changed")
    (folder / "old").unlink()
    store.delete(f"{OUTPUTS}/deep/b")  # to see whether it is sent
    mirror = OutputMirror(store, OUTPUTS, folder)
    mirror.mirror(last=True)
    assert names(store) == {"a": b"changed"}
    assert not fetched_note(folder).exists()


def test_only_the_jobs_own_place_is_mirrored() -> None:
    job_id, other_job = (f"job-0000000000e00800000000000{number}" for number in range(2))

    def task(output_dir: str) -> RankTask:
        return RankTask("gs://b/p", job_id, 1, 1, 0, 1, None, output_dir=output_dir, work_dir="/w")

    assert mirrored_folder(task(f"gs://b/p/jobs/{job_id}/outputs")) == Path("/w/outputs")
    for other in ("", "/data/out", f"gs://b/p/jobs/{other_job}/outputs", "gs://other/x"):
        assert mirrored_folder(task(other)) is None

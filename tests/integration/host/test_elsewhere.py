"""Ranks whose store is no folder: their words and files get there, whatever ends them; later attempts find them."""

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import kinetic_ray as kinetic
from kinetic_ray.core.names import JobKeys
from kinetic_ray.core.outcome import Outcome
from kinetic_ray.store import Growing, Store, open_store
from kinetic_ray.testing.fake_gcs import fake_gcs, find_server
from tests.integration.host.gangs import JOB_ID, Gang
from tests.waiting import wait_until

MakeGang = Callable[..., Gang]

KEYS = JobKeys(JOB_ID)
pytestmark = pytest.mark.timeout(240)


@pytest.fixture
def store() -> Iterator[Store]:
    if find_server() is None:
        pytest.skip("fake-gcs-server is not installed: the extra 'dev' brings it")
    with fake_gcs() as server, server.active():
        server.make_bucket("kinetic-ranks")
        yield open_store("gs://kinetic-ranks/here")


@pytest.fixture
def gang(store: Store, gang_of: MakeGang) -> Gang:
    return gang_of()


def words(store: Store, attempt: int) -> str:
    return Growing(store, KEYS.log(1, attempt, 0)).read(0).decode()


def files(store: Store) -> dict[str, bytes]:
    return {key.removeprefix(f"{KEYS.outputs}/"): store.get(key) for key in store.walk(KEYS.outputs)}


def go_on(end: str) -> list[str]:
    """Adds a checkpoint to those that are there, drops all but two, and ends as it is told."""
    folder, attempt = kinetic.context().output_dir, kinetic.context().attempt
    found = sorted(path.name for path in (folder / "ckpt").iterdir()) if (folder / "ckpt").exists() else []
    (folder / "ckpt").mkdir(exist_ok=True)
    (folder / "ckpt" / str(attempt)).write_bytes(b"%d" % attempt * 1000)
    for name in [*found, str(attempt)][:-2]:
        (folder / "ckpt" / name).unlink()
    sys.stdout.write(f"attempt {attempt} found {found}\n")
    sys.stdout.flush()
    if end == "raise":
        raise ValueError("told to")
    if end == "die":
        os._exit(9)
    return found


def test_files_outlive_what_ends_a_rank_and_are_there_for_the_next(gang: Gang, store: Store) -> None:
    place = store.uri(KEYS.outputs)
    for end in ("die", "raise"):
        gang.start(go_on, end, output_dir=place)
        assert not gang.outcome().ok
    assert gang.run(go_on, "return", output_dir=place) == [["1", "2"]]
    assert files(store) == {"ckpt/2": b"2" * 1000, "ckpt/3": b"3" * 1000}
    assert [words(store, attempt).splitlines()[0] for attempt in (1, 2, 3)] == [
        "attempt 1 found []",
        "attempt 2 found ['1']",
        "attempt 3 found ['1', '2']",
    ]
    assert "ValueError: told to" in words(store, 2)


def linger(gate: str) -> str:
    sys.stdout.write("waiting\n")
    while not Path(gate).exists():
        pass
    return os.environ["KINETIC_OUTPUT_DIR"]


def test_words_are_there_while_a_rank_runs_and_complete_at_its_end(gang: Gang, store: Store, tmp_path: Path) -> None:
    place = store.uri(KEYS.outputs)
    gang.start(linger, str(tmp_path / "gate"), output_dir=place)
    log = Growing(store, KEYS.log(1, 1, 0))
    wait_until(lambda: log.exists() and log.read(0) == b"waiting\n", 60, "the rank's words")
    (tmp_path / "gate").touch()
    assert gang.outcome().ok
    assert gang.value(0) == place


def test_a_fenced_rank_leaves_its_words(gang: Gang, store: Store, tmp_path: Path) -> None:
    gang.start(linger, str(tmp_path / "gate"))
    log = Growing(store, KEYS.log(1, 1, 0))
    wait_until(lambda: log.exists() and log.read(0), 60, "the rank's words")
    gang.fence()
    assert Outcome.from_dict(gang.messages(0)[-1]["outcome"]).reason == "Cancelled"
    assert log.read(0) == b"waiting\n"


def test_what_a_cleaned_up_jobs_rank_leaves_is_taken_back(gang: Gang, store: Store, tmp_path: Path) -> None:
    gang.start(linger, str(tmp_path / "gate"), output_dir=store.uri(KEYS.outputs))
    wait_until(lambda: store.walk(KEYS.logs), 60, "the rank's log")
    store.delete(KEYS.spec)
    store.delete_tree(KEYS.root)
    (tmp_path / "gate").touch()
    gang.messages(0)
    assert store.walk(KEYS.root) == []

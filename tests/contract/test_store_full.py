"""On a full disk the store says so in time, leaves nothing half-written, and goes on once there is room."""

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kinetic_ray.errors import StoreError
from kinetic_ray.store import Store, open_store

DATA = os.urandom(1 << 20)
ROOM = 300_000

WRITES: dict[str, Callable[[Store, Path], object]] = {
    "create": lambda store, _: store.create("new/folder/object", DATA),
    "put": lambda store, _: store.put("new/folder/object", DATA),
    "put over another": lambda store, _: store.put("old", DATA),
    "put_blob": lambda store, _: store.put_blob(DATA),
    "put_blob of a file": lambda store, source: store.put_blob(source),
    "write_object": lambda store, _: store.write_object("object", [DATA[:1000], DATA[1000:]]),
}


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 4 MB."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount the small disk that this test fills")
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4m", "kinetic-test", str(place)],
        capture_output=True,
        text=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip(f"this machine does not let root mount a small disk: {mounted.stderr.strip()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


@pytest.fixture
def store(disk: Path) -> Store:
    store = open_store(disk / "store")
    store.put("old", b"as before")
    return store


def fill(disk: Path, leave: int) -> Path:
    """Takes all but so many bytes; removing what is returned gives them back."""
    free = os.statvfs(disk)
    ballast = disk / "ballast"
    ballast.write_bytes(bytes(free.f_bavail * free.f_bsize - leave))
    return ballast


@pytest.mark.parametrize("name", WRITES)
def test_a_write_that_does_not_fit_leaves_nothing(store: Store, disk: Path, tmp_path: Path, name: str) -> None:
    source = tmp_path / "source"
    source.write_bytes(DATA)
    ballast = fill(disk, ROOM)
    before = os.statvfs(disk).f_bavail
    with pytest.raises(StoreError, match=rf"no space left in the store {disk}/store: {len(DATA)} bytes are needed for"):
        WRITES[name](store, source)
    assert (store.walk(""), store.get("old")) == (["format.json", "old"], b"as before")
    assert list((disk / "store" / ".tmp").iterdir()) == []
    assert os.statvfs(disk).f_bavail == before
    ballast.unlink()
    WRITES[name](store, source)
    assert any(store.get(key) == DATA for key in store.walk(""))


def test_fetching_to_a_full_disk_names_its_folder(disk: Path, tmp_path: Path) -> None:
    store = open_store(tmp_path / "elsewhere")
    blob = store.put_blob(DATA)
    ballast = fill(disk, ROOM)
    with pytest.raises(StoreError, match=rf"no space left in the folder {disk}/cache: {len(DATA)} bytes"):
        store.fetch_blob(blob, disk / "cache" / "target")
    assert list((disk / "cache").iterdir()) == []
    ballast.unlink()
    store.fetch_blob(blob, disk / "cache" / "target")


def test_a_store_on_a_full_disk_can_be_read_and_cleaned_up(store: Store, disk: Path) -> None:
    store.put("jobs/a/spec", DATA)
    fill(disk, 0)
    with pytest.raises(StoreError, match="3 bytes are needed for new"):
        store.create("new", b"abc")
    again = open_store(disk / "store")
    assert again.get("old") == b"as before"
    again.delete_tree("jobs/a")
    assert again.create("new", b"abc") is True


def test_a_store_that_could_not_be_made_is_made_later(disk: Path) -> None:
    ballast = fill(disk, 0)
    with pytest.raises(StoreError, match=rf"no space left in the store {disk}/late"):
        open_store(disk / "late")
    ballast.unlink()
    assert open_store(disk / "late").create("a", b"x") is True

"""The folder store keeps the contract, and what only a folder can break."""

import hashlib
import os
import shutil
import stat
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from kinetic_ray.errors import ConfigError, StoreError
from kinetic_ray.store import Blob, Store, open_store
from kinetic_ray.testing.store_contract import StoreContract
from kinetic_ray.testing.store_names import blob_key

NOBODY = 65534
GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "store-v1"


class TestFolderStore(StoreContract):
    @pytest.fixture
    def store_url(self, tmp_path_factory: pytest.TempPathFactory) -> str:
        return str(tmp_path_factory.mktemp("folder") / "new" / "store")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(tmp_path / "store")


@pytest.fixture
def root(store: Store) -> Path:
    return Path(store.uri(""))


# Modes and syncing.


def test_only_the_owner_gets_in(store: Store, root: Path) -> None:
    mask = os.umask(0)
    try:
        store.create("a/created", b"x")
        store.put("a/put", b"x")
        store.put_blob(b"x")
        store.write_object("a/streamed", [b"x"])
        store.append_path("a/log")
        store.fetch_blob(store.put_blob(b"x"), root.parent / "fetched")
    finally:
        os.umask(mask)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in [root, *root.rglob("*")]}
    folders = {path.name for path in [root, *root.rglob("*")] if path.is_dir()}
    assert {modes[name] for name in folders} == {0o700}
    assert {mode for name, mode in modes.items() if name not in folders} == {0o600}
    assert stat.S_IMODE((root.parent / "fetched").stat().st_mode) == 0o600


def test_an_empty_folder_is_taken_over_privately(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir(mode=0o755)
    open_store(tmp_path / "mine")
    assert stat.S_IMODE((tmp_path / "mine").stat().st_mode) == 0o700


def test_bytes_reach_the_disk_before_the_object_appears_and_its_name_before_it_is_acknowledged(store: Store) -> None:
    durable = {
        "create": lambda: store.create("a", b"x"),
        "write_object": lambda: store.write_object("b", [b"x"]),
        "put_blob": lambda: store.put_blob(b"x"),
    }
    for name, act in durable.items():
        with system_calls() as calls:
            act()
        appears = calls.index("link" if "link" in calls else "replace")
        syncs = [place for place, call in enumerate(calls) if call == "fsync"]
        assert len(syncs) == 2, name
        assert syncs[0] < appears < syncs[1], name
    with system_calls() as calls:
        store.put("c", b"x")
        store.create("a", b"late")
        store.put_blob(b"x")
    assert "fsync" not in calls


@contextmanager
def system_calls() -> Iterator[list[str]]:
    """Notes the names of the builtin functions that are called, the operating system's among them."""
    names: list[str] = []

    def note(frame: object, event: str, function: object) -> None:
        if event == "c_call":
            names.append(getattr(function, "__name__", ""))

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        yield names
    finally:
        sys.setprofile(before)


def test_a_blob_that_is_there_is_not_written_again(store: Store, root: Path, tmp_path: Path) -> None:
    (tmp_path / "source").write_bytes(b"payload")
    place = root / blob_key(store.put_blob(b"payload"))
    before = place.stat()
    store.put_blob(b"payload")
    store.put_blob(tmp_path / "source")
    after = place.stat()
    assert (after.st_ino, after.st_mtime_ns, after.st_ctime_ns) == (
        before.st_ino,
        before.st_mtime_ns,
        before.st_ctime_ns,
    )


# Symbolic links.


@pytest.fixture
def outside(tmp_path: Path, root: Path) -> Path:
    """A folder outside the store, with links to it inside."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_bytes(b"precious")
    (root / "folder").symlink_to(outside)
    (root / "file").symlink_to(outside / "file")
    return outside


def test_no_write_follows_a_link_out_of_the_store(store: Store, root: Path, outside: Path) -> None:
    refused = [
        lambda: store.create("folder/new", b"x"),
        lambda: store.put("folder/file", b"x"),
        lambda: store.write_object("folder/new", [b"x"]),
        lambda: store.append_path("folder/file"),
        lambda: store.append_path("file"),
        lambda: store.delete("folder/file"),
        lambda: store.delete_tree("folder/sub"),
        lambda: store.get("file"),
    ]
    for act in refused:
        with pytest.raises(StoreError, match="symbolic link"):
            act()
    assert store.create("file", b"x") is False
    store.delete_tree("folder")
    assert (store.exists("file"), store.walk("")) == (False, ["format.json"])
    store.put("file", b"mine")
    assert not (root / "file").is_symlink()
    assert [(path.name, path.read_bytes()) for path in outside.iterdir()] == [("file", b"precious")]


def test_temporary_files_do_not_follow_a_link_either(store: Store, root: Path, outside: Path) -> None:
    (root / ".tmp").rmdir()
    (root / ".tmp").symlink_to(outside)
    with pytest.raises(StoreError, match=r"symbolic link.*\.tmp"):
        store.create("a", b"x")
    assert [path.name for path in outside.iterdir()] == ["file"]


def test_a_store_behind_a_link_has_one_address(store: Store, root: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(root)
    assert open_store(tmp_path / "link").url == store.url


# What is no object.


def test_a_folder_and_an_object_never_share_a_name(store: Store) -> None:
    store.create("a/b", b"")
    for act in (store.create, store.put):
        with pytest.raises(StoreError, match="a"):
            act("a", b"x")
        with pytest.raises(StoreError, match="a/b"):
            act("a/b/c", b"x")
    store.delete("a")
    assert store.walk("a") == ["a/b"]


def test_pipes_do_not_hold_a_reader_up(store: Store, root: Path) -> None:
    os.mkfifo(root / "pipe")
    assert store.find("pipe") is None
    assert not store.exists("pipe")


# What killed processes leave.


def test_stale_temporary_files_are_swept_and_fresh_ones_stay(store: Store, root: Path) -> None:
    stale, fresh, tree = root / ".tmp" / "1-stale", root / ".tmp" / "2-fresh", root / ".tmp" / "tree"
    stale.write_bytes(b"x")
    fresh.write_bytes(b"x")
    (tree / "deep").mkdir(parents=True)
    (tree / "deep" / "x").write_bytes(b"x")
    two_hours_ago = time.time() - 7200
    os.utime(stale, (two_hours_ago, two_hours_ago))
    open_store(store.url)
    assert list((root / ".tmp").iterdir()) == [fresh]
    assert store.walk("") == ["format.json"]


def test_a_temporary_file_that_was_swept_too_early_is_an_error(store: Store, root: Path) -> None:
    def chunks() -> Iterator[bytes]:
        yield b"x"
        for path in (root / ".tmp").iterdir():
            path.unlink()

    with pytest.raises(StoreError, match="removed meanwhile"):
        store.write_object("a", chunks())
    assert not store.exists("a")


# Opening.


def test_a_store_of_format_1_is_read_and_written_as_ever(store: Store, root: Path, tmp_path: Path) -> None:
    golden = tmp_path / "golden"
    shutil.copytree(GOLDEN, golden)
    old = open_store(golden)
    assert old.get_blob(Blob(hashlib.sha256(b"payload\n").hexdigest(), 8)) == b"payload\n"
    store.create("jobs/some/record.json", old.get("jobs/some/record.json"))
    store.put_blob(b"payload\n")
    assert {key: store.get(key) for key in store.walk("")} == {key: old.get(key) for key in old.walk("")}
    assert sorted(path.name for path in root.iterdir()) == [".tmp", "blobs", "format.json", "jobs"]


def test_racing_openers_make_one_store(tmp_path: Path) -> None:
    for number in range(20):
        path, together = tmp_path / str(number), threading.Barrier(8)

        def use(who: int, path: Path = path, together: threading.Barrier = together) -> bool:
            together.wait(30)
            return open_store(path).create(f"jobs/{who}", b"")

        with ThreadPoolExecutor(8) as threads:
            assert all(threads.map(use, range(8)))
        assert open_store(path).walk("") == ["format.json", *(f"jobs/{who}" for who in range(8))]


@pytest.mark.parametrize("name", ["plain", "with space", "ünï%41#?", "a:b"])
def test_addresses_are_urls_of_absolute_paths(tmp_path: Path, name: str) -> None:
    store = open_store(tmp_path / name)
    assert store.url.startswith("file:///")
    assert store.uri("a/b") == str(tmp_path / name / "a" / "b")
    assert open_store(store.url).url == store.url == open_store(str(tmp_path / name)).url
    assert store.url.isascii()
    assert " " not in store.url


def test_relative_and_home_paths_become_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert open_store("here").uri("") == str(tmp_path / "here")
    assert open_store("~/there").uri("") == str(tmp_path / "home" / "there")


@pytest.mark.parametrize("url", ["file://host/path", "file://relative", "a\0b"])
def test_addresses_of_no_folder_are_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="can't be a store"):
        open_store(url)


def test_a_file_is_no_store(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(ConfigError, match="file"):
            open_store(path)


def test_a_missing_folder_is_not_made_unasked(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no folder"):
        open_store(tmp_path / "none", create=False)
    assert not (tmp_path / "none").exists()


def test_what_a_new_disk_has_does_not_matter(tmp_path: Path) -> None:
    (tmp_path / "disk" / "lost+found").mkdir(parents=True)
    store = open_store(tmp_path / "disk")
    assert store.list("") == ["format.json"]


@contextmanager
def as_somebody() -> Iterator[None]:
    """Runs the block without root's right to pass all permissions."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def theirs() -> Iterator[Path]:
    """A store of the user that :func:`as_somebody` becomes, where that user can get at it."""
    above = Path(tempfile.mkdtemp(prefix="krt"))
    above.chmod(0o711)
    path = above / "theirs"
    path.mkdir()
    if os.geteuid() == 0:
        os.chown(path, NOBODY, NOBODY)
    try:
        with as_somebody():
            open_store(path).create("a", b"data")
        yield path
    finally:
        path.chmod(0o700)
        shutil.rmtree(above)


@pytest.mark.parametrize(
    ("mode", "create", "message"),
    [
        (0o000, True, "can't be read"),
        (0o000, False, "can't be read"),
        (0o300, True, "can't be read"),
        (0o500, True, "can't be written"),
    ],
)
def test_a_store_without_permission_is_refused(theirs: Path, mode: int, create: bool, message: str) -> None:
    theirs.chmod(mode)
    with as_somebody(), pytest.raises(ConfigError, match=message):
        open_store(theirs, create=create)


def test_a_store_that_can_only_be_read_serves_readers(theirs: Path) -> None:
    theirs.chmod(0o500)
    with as_somebody():
        store = open_store(theirs, create=False)
        assert store.get("a") == b"data"
        (theirs / ".tmp").chmod(0o500)
        with pytest.raises(StoreError, match=r"refused b: Permission denied"):
            store.create("b", b"x")
        (theirs / ".tmp").chmod(0o700)


def test_an_unreadable_object_is_named(theirs: Path) -> None:
    with as_somebody():
        store = open_store(theirs)
        (theirs / "a").chmod(0)
        with pytest.raises(StoreError, match=r"refused a: Permission denied"):
            store.get("a")
        (theirs / "format.json").chmod(0)
        with pytest.raises(ConfigError, match=r"format\.json"):
            open_store(theirs)

"""The contract of a store, as a test class: every implementation subclasses it and passes."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import ClassVar

import pytest

from kinetic_ray.errors import ConfigError, DataError, StoreError, UsageError
from kinetic_ray.store import FORMAT_VERSION, Blob, MissingKey, Store, open_store
from kinetic_ray.testing.racer import content, race_in_processes, race_in_threads
from kinetic_ray.testing.store_names import BY_KEY, HOSTILE_KEYS, ODD_KEYS, blob_key

WRITERS = 8


class StoreContract:
    """What every kind of store does; the fixture `store_url` is all that a subclass adds.

    Example:
        A new kind of store is held to the contract by a test module of this form::

            from kinetic_ray.testing.store_contract import StoreContract


            class TestBucketStore(StoreContract):
                @pytest.fixture
                def store_url(self, bucket):  # a new, empty place for each test
                    return f"gs://{bucket}/{uuid.uuid4()}"

        pytest shows the values behind a failed assertion after
        `pytest.register_assert_rewrite("kinetic_ray.testing.store_contract")` in a conftest.py.

    Attributes:
        across_processes: Whether other processes reach the store by its address; writers then race as processes.
    """

    across_processes: ClassVar[bool] = True

    @pytest.fixture
    def store_url(self) -> str:
        """The address of a place that has never been used."""
        raise NotImplementedError(f"{type(self).__name__} has to define the fixture store_url")

    @pytest.fixture
    def store(self, store_url: str) -> Store:
        """The store in that place."""
        return open_store(store_url)

    # Small objects.

    @pytest.mark.parametrize("data", [b"", b"x", bytes(range(256)) * 5000], ids=["empty", "small", "large"])
    def test_what_was_created_is_there(self, store: Store, data: bytes) -> None:
        assert store.create("a/b", data) is True
        assert (store.get("a/b"), store.find("a/b"), store.size("a/b")) == (data, data, len(data))
        assert store.exists("a/b")
        store.require()

    def test_create_never_overwrites(self, store: Store) -> None:
        store.create("a", b"first")
        assert store.create("a", b"second") is False
        assert store.get("a") == b"first"

    def test_put_replaces(self, store: Store) -> None:
        for data in (b"first", b"", b"third"):
            store.put("a/b", data)
            assert store.get("a/b") == data

    def test_a_missing_object_is_named(self, store: Store) -> None:
        store.create("a/b/c", b"")
        for key in ("nothing", "a/b", "a/b/c2"):
            for read in (store.get, store.size, lambda key: store.read_range(key, 0)):
                with pytest.raises(MissingKey, match=key) as caught:
                    read(key)
                assert isinstance(caught.value, KeyError)
                assert isinstance(caught.value, StoreError)
            assert store.find(key) is None
            assert not store.exists(key)

    def test_one_of_racing_writers_wins_each_key(self, store: Store) -> None:
        keys = [f"race/{number:02d}/claim" for number in range(25)]
        if self.across_processes:
            won = race_in_processes(store.url, keys, WRITERS)
        else:
            won = race_in_threads(store, keys, WRITERS)
        for key in keys:
            winners = [number for number in range(WRITERS) if key in won[number]]
            assert len(winners) == 1, f"{key}: {winners}"
            assert store.get(key) == content(key, winners[0])

    def test_readers_see_an_object_whole_or_not_at_all(self, store: Store) -> None:
        whole = {letter * 300_000 for letter in (b"a", b"b", b"c")}
        stop = threading.Event()

        def write() -> None:
            while not stop.is_set():
                for data in whole:
                    store.put("x/replaced", data)
                    store.create("x/created", data)
                    store.delete("x/created")

        writer = threading.Thread(target=write)
        writer.start()
        try:
            seen = {store.find(key) for _ in range(300) for key in ("x/replaced", "x/created")}
        finally:
            stop.set()
            writer.join()
        assert seen <= {None, *whole}

    def test_writing_beside_deletions_never_fails(self, store: Store) -> None:
        def churn(number: int) -> int:
            key = f"shared/folder/{number}"
            done = 0
            for _ in range(100):
                done += store.create(key, b"x")
                store.put(key, b"y")
                store.delete(key)
            return done

        with ThreadPoolExecutor(WRITERS) as threads:
            assert list(threads.map(churn, range(WRITERS))) == [100] * WRITERS
        assert store.walk("shared") == []

    def test_a_range_of_an_object(self, store: Store) -> None:
        store.create("a", b"0123456789")
        cases = [((0,), b"0123456789"), ((3,), b"3456789"), ((3, 4), b"3456"), ((8, 100), b"89")]
        cases += [((10,), b""), ((99,), b""), ((99, 5), b""), ((3, 0), b"")]
        assert [store.read_range("a", *given) for given, _ in cases] == [expected for _, expected in cases]
        for given in [(-1,), (0, -1)]:
            with pytest.raises(UsageError, match="from 0 up"):
                store.read_range("a", *given)

    # Looking and removing.

    @pytest.fixture
    def tree(self, store: Store) -> Store:
        for key in ("a/b/2", "a/b/1", "a/b/sub/x", "a/b/sub/deep/y", "a/bc", "a/b-c/1", "z"):
            store.put(key, key.encode())
        return store

    @pytest.mark.parametrize(
        ("prefix", "expected"),
        [
            ("", ["a/", "format.json", "z"]),
            ("a", ["a/b-c/", "a/b/", "a/bc"]),
            ("a/b", ["a/b/1", "a/b/2", "a/b/sub/"]),
            ("a/b/", ["a/b/1", "a/b/2", "a/b/sub/"]),
            ("a/b/sub/deep", ["a/b/sub/deep/y"]),
            ("z", []),
            ("none/at/all", []),
            ("z/below", []),
        ],
    )
    def test_list_shows_direct_children_sorted(self, tree: Store, prefix: str, expected: list[str]) -> None:
        assert tree.list(prefix) == expected

    def test_walk_shows_all_objects_below_sorted(self, tree: Store) -> None:
        below = ["a/b/1", "a/b/2", "a/b/sub/deep/y", "a/b/sub/x"]
        assert tree.walk("a/b") == tree.walk("a/b/") == below
        assert tree.walk("") == sorted([*below, "a/b-c/1", "a/bc", "format.json", "z"])
        assert tree.walk("z") == tree.walk("none") == []

    def test_deleting_is_exact_and_idempotent(self, tree: Store) -> None:
        for _ in range(2):
            tree.delete("a/b/1")
            tree.delete("a/b")
            tree.delete("none/at/all")
        assert tree.walk("a") == ["a/b-c/1", "a/b/2", "a/b/sub/deep/y", "a/b/sub/x", "a/bc"]

    def test_a_deleted_tree_is_gone_and_its_neighbours_stay(self, tree: Store) -> None:
        for prefix in ("a/b", "a/b/", "none/at/all", "z"):
            tree.delete_tree(prefix)
        assert tree.walk("") == ["a/b-c/1", "a/bc", "format.json", "z"]
        assert tree.create("a/b/1", b"anew") is True

    def test_folders_go_with_their_last_object(self, tree: Store) -> None:
        tree.delete("a/b/sub/deep/y")
        tree.delete_tree("a/b-c")
        assert tree.list("a/b") == ["a/b/1", "a/b/2", "a/b/sub/"]
        assert tree.list("a/b/sub") == ["a/b/sub/x"]
        assert tree.list("a") == ["a/b/", "a/bc"]

    # Blobs and large objects.

    @pytest.fixture(params=[0, 1, 5_000_001], ids=["empty", "one byte", "5 MB"])
    def data(self, request: pytest.FixtureRequest) -> bytes:
        size: int = request.param
        return hashlib.shake_256(b"contract").digest(size)

    def test_a_blob_comes_back_by_its_digest(self, store: Store, data: bytes, tmp_path: Path) -> None:
        source, target = tmp_path / "source", tmp_path / "new" / "folder" / "target"
        source.write_bytes(data)
        blob = store.put_blob(data)
        assert blob == store.put_blob(source) == Blob(hashlib.sha256(data).hexdigest(), len(data))
        assert store.get_blob(blob) == data
        store.fetch_blob(blob, target)
        assert target.read_bytes() == data
        assert store.walk("blobs") == [blob_key(blob)]

    def test_fetching_replaces_the_target_and_leaves_nothing_beside_it(self, store: Store, tmp_path: Path) -> None:
        target = tmp_path / "target"
        target.write_bytes(b"old and longer")
        store.fetch_blob(store.put_blob(b"new"), target)
        assert target.read_bytes() == b"new"
        assert list(tmp_path.iterdir()) == [target]

    @pytest.mark.parametrize("damage", [b"", b"payloa", b"payload and more", b"PAYLOAD", None])
    def test_a_damaged_blob_is_named_and_never_used(self, store: Store, damage: bytes | None, tmp_path: Path) -> None:
        blob = store.put_blob(b"payload")
        if damage is None:
            store.delete(blob_key(blob))
        else:
            store.put(blob_key(blob), damage)
        for read in (store.get_blob, lambda blob: store.fetch_blob(blob, tmp_path / "target")):
            with pytest.raises(DataError, match=blob_key(blob)):
                read(blob)
        assert list(tmp_path.iterdir()) == []

    def test_a_truncated_blob_is_stored_anew(self, store: Store, tmp_path: Path) -> None:
        source = tmp_path / "source"
        source.write_bytes(b"payload")
        for again in (b"payload", source):
            blob = store.put_blob(b"payload")
            store.put(blob_key(blob), b"payl")
            store.put_blob(again)
            assert store.get_blob(blob) == b"payload"

    def test_a_digest_that_is_none_builds_no_key(self, store: Store) -> None:
        for digest in ("../../format.json", "A" * 64, ""):
            with pytest.raises(DataError, match="not a SHA-256 digest"):
                store.get_blob(Blob(digest, 3))

    def test_an_unreadable_source_is_named(self, store: Store, tmp_path: Path) -> None:
        for source in (tmp_path / "missing", tmp_path):
            with pytest.raises(DataError, match=str(source)):
                store.put_blob(source)
        assert store.walk("blobs") == []

    def test_a_streamed_object_has_its_digest(self, store: Store, data: bytes) -> None:
        chunks = (data[start : start + 700_000] for start in range(0, len(data), 700_000))
        blob = store.write_object("a/value", chunks)
        assert blob == Blob(hashlib.sha256(data).hexdigest(), len(data))
        assert store.get("a/value") == data
        assert store.verify_object("a/value", blob)

    def test_streaming_never_overwrites_and_may_be_repeated(self, store: Store) -> None:
        blob = store.write_object("a", [b"one", b"two"])
        assert store.write_object("a", [b"onetwo"]) == blob
        with pytest.raises(StoreError, match=r"a is in the store .* with other content"):
            store.write_object("a", [b"three"])
        assert store.get("a") == b"onetwo"

    def test_a_stream_that_breaks_off_leaves_nothing(self, store: Store) -> None:
        def chunks() -> Iterator[bytes]:
            yield b"x" * 100_000
            raise FileNotFoundError("the source's own error")

        with pytest.raises(FileNotFoundError, match="the source's own error"):
            store.write_object("a/value", chunks())
        assert store.walk("a") == []
        assert store.create("a/value", b"") is True

    def test_verifying_reads_the_bytes(self, store: Store) -> None:
        blob = store.write_object("a", [b"value"])
        for altered in (b"valu", b"valuE", b""):
            store.put("a", altered)
            assert not store.verify_object("a", blob)
        assert not store.verify_object("missing", blob)

    def test_an_appended_file_can_be_followed(self, store: Store) -> None:
        path = store.append_path("logs/0.log")
        if path is None:
            pytest.skip("this store has no local files to append to")
        assert store.read_range("logs/0.log", 0) == b""
        seen = b""
        for line in (b"one\n", b"two\n"):
            with path.open("ab") as file:
                file.write(line)
            seen += store.read_range("logs/0.log", len(seen))
        assert seen == b"one\ntwo\n"
        assert store.append_path("logs/0.log") == path
        assert store.get("logs/0.log") == seen

    # Names.

    @pytest.mark.parametrize("key", HOSTILE_KEYS, ids=repr)
    def test_hostile_keys_are_refused_everywhere(self, store: Store, key: str) -> None:
        for call in BY_KEY.values():
            with pytest.raises(UsageError, match="can't be a key"):
                call(store, key)
        if key not in {"", "/"}:  # the whole store can be listed, but not deleted
            for look in (store.list, store.walk, store.uri):
                with pytest.raises(UsageError, match="can't be a key"):
                    look(key)
        assert store.walk("") == ["format.json"]

    @pytest.mark.parametrize("key", ODD_KEYS, ids=repr)
    def test_odd_keys_work(self, store: Store, key: str) -> None:
        assert store.create(f"at/{key}", b"data") is True
        assert store.get(f"at/{key}") == b"data"
        assert store.walk("at") == [f"at/{key}"]
        first, *rest = key.split("/")
        assert store.list("at") == [f"at/{first}/" if rest else f"at/{first}"]
        assert key in store.uri(f"at/{key}")
        store.delete(f"at/{key}")
        assert store.list("at") == []

    # Opening.

    def test_a_store_is_found_again_by_its_url(self, store: Store, store_url: str) -> None:
        store.create("a", b"data")
        for address in (store.url, store_url):
            again = open_store(address, create=False)
            assert (again.url, again.get("a")) == (store.url, b"data")

    def test_the_format_is_written_once(self, store: Store, store_url: str) -> None:
        assert store.get("format.json") == b'{"format":"kinetic-store","version":1}\n'
        store.put("format.json", b'{"version": 1, "format": "kinetic-store", "added": "later"}')
        open_store(store_url)
        assert b"later" in store.get("format.json")

    def test_a_missing_store_is_not_made_unasked(self, store_url: str) -> None:
        with pytest.raises(ConfigError, match="nothing was ever run with"):
            open_store(store_url, create=False)

    def test_a_newer_store_names_both_versions_and_the_way_out(self, store: Store, store_url: str) -> None:
        newer = FORMAT_VERSION + 1
        store.put("format.json", f'{{"format":"kinetic-store","version":{newer}}}'.encode())
        with pytest.raises(ConfigError, match=rf"version {newer}, .* up to {FORMAT_VERSION}: upgrade .*KINETIC_STORE"):
            open_store(store_url)

    @pytest.mark.parametrize("raw", [b"", b"{", b"[]", b'{"version":1}', b'{"format":"kinetic-store","version":"1"}'])
    def test_a_damaged_format_is_refused(self, store: Store, store_url: str, raw: bytes) -> None:
        store.put("format.json", raw)
        with pytest.raises(ConfigError, match=r"format\.json"):
            open_store(store_url)

    def test_a_place_with_other_things_in_it_is_refused(self, store: Store, store_url: str) -> None:
        store.put("thesis/chapter-1.tex", b"precious")
        store.delete("format.json")
        with pytest.raises(ConfigError, match=r"neither empty nor a kinetic store .*thesis/"):
            open_store(store_url)
        assert store.walk("") == ["thesis/chapter-1.tex"]

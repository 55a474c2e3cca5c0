"""Whatever the order of calls, a store behaves as a dictionary with a few rules; shown by Hypothesis."""

import hashlib
import shutil
import tempfile
import uuid
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from kinetic_ray.errors import StoreError
from kinetic_ray.store import MissingKey, open_store
from kinetic_ray.testing.store_names import blob_key
from tests.contract.conftest import BUCKET

FORMAT = b'{"format":"kinetic-store","version":1}\n'

folders = st.lists(st.sampled_from(["a", "b", "a b", "a-b", "é"]), min_size=1, max_size=3).map("/".join)
# A leaf is never a folder's name: no key is another one's prefix.
keys = st.tuples(folders, st.sampled_from(["1.x", "2.x", "~.x"])).map("/".join)
contents = st.binary(max_size=20)


class StoreModel(RuleBasedStateMachine):
    """Compares a store with `expected`, a dictionary, after every step."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self.store = open_store(url)
        self.expected = {"format.json": FORMAT}

    @rule(key=keys, data=contents)
    def create(self, key: str, data: bytes) -> None:
        assert self.store.create(key, data) is (key not in self.expected)
        self.expected.setdefault(key, data)

    @rule(key=keys, data=contents)
    def put(self, key: str, data: bytes) -> None:
        self.store.put(key, data)
        self.expected[key] = data

    @rule(key=keys, chunks=st.lists(contents, max_size=3))
    def write_object(self, key: str, chunks: list[bytes]) -> None:
        data = b"".join(chunks)
        if self.expected.setdefault(key, data) == data:
            blob = self.store.write_object(key, chunks)
            assert (blob.size, self.store.verify_object(key, blob)) == (len(data), True)
        else:
            with pytest.raises(StoreError):
                self.store.write_object(key, chunks)

    @rule(data=contents, damaged=st.booleans())
    def put_blob(self, data: bytes, damaged: bool) -> None:
        blob = self.store.put_blob(data)
        assert blob.sha256 == hashlib.sha256(data).hexdigest()
        if damaged:
            self.store.put(blob_key(blob), data + b"!")
            assert self.store.put_blob(data) == blob
        assert self.store.get_blob(blob) == data
        self.expected[blob_key(blob)] = data

    @rule(key=keys)
    def delete(self, key: str) -> None:
        self.store.delete(key)
        self.expected.pop(key, None)

    @rule(prefix=folders)
    def delete_tree(self, prefix: str) -> None:
        self.store.delete_tree(prefix)
        self.expected = {key: data for key, data in self.expected.items() if not key.startswith(f"{prefix}/")}

    @rule()
    def reopen(self) -> None:
        self.store = open_store(self.store.url, create=False)

    @rule(key=keys, offset=st.integers(0, 25), limit=st.none() | st.integers(0, 25))
    def read(self, key: str, offset: int, limit: int | None) -> None:
        data = self.expected.get(key)
        assert (self.store.find(key), self.store.exists(key)) == (data, data is not None)
        if data is None:
            with pytest.raises(MissingKey):
                self.store.read_range(key, offset, limit)
        else:
            assert self.store.size(key) == len(data)
            assert self.store.read_range(key, offset, limit) == data[offset:][:limit]

    @rule(prefix=folders)
    def look(self, prefix: str) -> None:
        below = [key.removeprefix(f"{prefix}/") for key in self.expected if key.startswith(f"{prefix}/")]
        children = {name.split("/")[0] + ("/" if "/" in name else "") for name in below}
        assert self.store.list(prefix) == sorted(f"{prefix}/{name}" for name in children)
        assert self.store.walk(prefix) == sorted(f"{prefix}/{name}" for name in below)

    @invariant()
    def same_objects(self) -> None:
        found = self.store.walk("")
        assert found == sorted(self.expected)
        assert [self.store.get(key) for key in found] == [self.expected[key] for key in found]


class FolderModel(StoreModel):
    def __init__(self) -> None:
        self.above = Path(tempfile.mkdtemp(prefix="krt"))
        super().__init__(str(self.above / "store"))

    def teardown(self) -> None:
        left = list((self.above / "store" / ".tmp").iterdir())
        shutil.rmtree(self.above)
        assert left == []


class MemoryModel(StoreModel):
    def __init__(self) -> None:
        super().__init__(f"memory://{uuid.uuid4()}")


class BucketModel(StoreModel):
    def __init__(self) -> None:
        super().__init__(f"gs://{BUCKET}/{uuid.uuid4()}")


some = settings(max_examples=40, stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
FolderModel.TestCase.settings = some
MemoryModel.TestCase.settings = some
BucketModel.TestCase.settings = settings(some, max_examples=10)  # a request takes about a millisecond
TestFolderModel = FolderModel.TestCase
TestMemoryModel = MemoryModel.TestCase
TestBucketModel = pytest.mark.usefixtures("storage")(BucketModel.TestCase)

"""The bucket store keeps the contract against a real server; what is a bucket's own: addresses, refusals."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from kinetic_ray.store import open_store
from kinetic_ray.testing.store_contract import StoreContract


class TestBucketStore(StoreContract):
    @pytest.fixture
    def store_url(self, bucket_url: str) -> str:
        return bucket_url


def test_more_names_than_one_answer_has(bucket_url: str) -> None:
    store = open_store(bucket_url)
    keys = [f"many/{number % 1100:04d}/{number}" for number in range(1250)]
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda key: store.put(key, b""), keys))
    assert store.walk("many") == sorted(keys)
    assert store.list("many") == sorted({f"many/{number:04d}/" for number in range(1100)})
    store.delete_tree("many")
    assert store.walk("") == ["format.json"]

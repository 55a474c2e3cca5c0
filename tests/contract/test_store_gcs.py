"""The bucket store keeps the contract against a real server; what is a bucket's own: addresses, refusals."""

import pytest

from kinetic_ray.testing.store_contract import StoreContract


class TestBucketStore(StoreContract):
    @pytest.fixture
    def store_url(self, bucket_url: str) -> str:
        return bucket_url

"""A server that stands in for Google's storage, for the tests of buckets."""

import uuid
from collections.abc import Iterator

import pytest

from kinetic_ray.testing.fake_gcs import FakeGcs, fake_gcs, find_server

BUCKET = "kinetic-tests"


@pytest.fixture(scope="session")
def _storage() -> Iterator[FakeGcs]:
    if find_server() is None:
        pytest.skip("fake-gcs-server is not installed: the extra 'dev' brings it")
    with fake_gcs() as server:
        server.make_bucket(BUCKET)
        yield server


@pytest.fixture
def storage(_storage: FakeGcs) -> Iterator[FakeGcs]:
    """The server, as the storage of this process and of those that it starts."""
    with _storage.active():
        yield _storage


@pytest.fixture
def bucket_url(storage: FakeGcs) -> str:
    """A place in a bucket that has never been used."""
    return f"gs://{BUCKET}/{uuid.uuid4()}"

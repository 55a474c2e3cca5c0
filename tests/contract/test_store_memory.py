"""The memory store keeps the contract; its writers race as threads, since no other process sees it."""

import uuid

import pytest

from kinetic_ray.errors import ConfigError
from kinetic_ray.store import open_store
from kinetic_ray.testing.store_contract import StoreContract


class TestMemoryStore(StoreContract):
    across_processes = False

    @pytest.fixture
    def store_url(self) -> str:
        return f"memory://{uuid.uuid4()}"


@pytest.mark.parametrize("url", ["memory://", "memory:///", "memory://a/b", "memory://.."])
def test_a_memory_store_has_a_plain_name(url: str) -> None:
    with pytest.raises(ConfigError, match="memory://NAME"):
        open_store(url)


@pytest.mark.parametrize("url", ["hf://bucket/x", "s3://user:secret@host", "://x", "http://127.0.0.1"])
def test_unknown_kinds_are_named_without_what_follows(url: str) -> None:
    with pytest.raises(ConfigError, match="unknown to this kinetic_ray") as caught:
        open_store(url)
    assert "secret" not in str(caught.value)
    assert url.split("://", maxsplit=1)[0] + "://" in str(caught.value)

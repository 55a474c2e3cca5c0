from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kinetic_ray.store import Store, open_store
from tests.integration.host.gangs import Gang
from tests.integration.host.hosts import Hosts


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(tmp_path / "store")


@pytest.fixture
def gang_of(store: Store) -> Iterator[Callable[..., Gang]]:
    """Makes gangs that end with the test."""
    made: list[Gang] = []

    def make(hosts: int = 1, chips: int = 0, **plan: Any) -> Gang:
        made.append(Gang(store, hosts, chips, **plan))
        return made[-1]

    yield make
    for gang in made:
        gang.stop()


@pytest.fixture
def host() -> Iterator[Hosts]:
    """One host that is open for calls."""
    hosts = Hosts()
    hosts.open()
    yield hosts
    hosts.stop()

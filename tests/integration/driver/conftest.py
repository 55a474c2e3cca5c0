"""One cluster for all of the driver's tests: a head, and one slice of four hosts, started when first asked for."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from kinetic_ray.backends.local import backend as local
from kinetic_ray.store import open_store
from tests.integration.driver.clusters import V6E, Cluster


@pytest.fixture(scope="package")
def cluster(test_homes: Path) -> Iterator[Cluster]:
    with pytest.MonkeyPatch.context() as patch:
        home = test_homes / "drv"
        home.mkdir()
        patch.setenv("KINETIC_HOME", str(home))
        patch.setenv("KINETIC_LOCAL_SLICES", json.dumps({V6E: 1}))
        local.start(home)
        try:
            yield Cluster(home, open_store(home / "store"))
        finally:
            local.stop(home, force=True)


@pytest.fixture(autouse=True)
def nothing_left(cluster: Cluster) -> Iterator[None]:
    """After each test no driver runs any more."""
    yield
    for job_id in cluster.backend.list():
        cluster.backend.cancel(cluster.store.url, job_id)

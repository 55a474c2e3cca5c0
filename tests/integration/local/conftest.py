"""Clusters for the tests of the embedded backend."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from kinetic_ray.backends.local import backend
from tests.integration.local import clusters


@pytest.fixture
def own_cluster(kinetic_home: Path) -> Iterator[Path]:
    """The home of a cluster of the test's own, which the test starts; whatever it does to it, it is stopped here."""
    yield kinetic_home
    backend.stop(kinetic_home, force=True)


@pytest.fixture
def second_home(test_homes: Path) -> Iterator[Path]:
    """Another home, with another cluster."""
    home = Path(tempfile.mkdtemp(prefix="krt", dir=test_homes))
    yield home
    backend.stop(home, force=True)


@pytest.fixture(scope="module")
def standing(test_homes: Path) -> Iterator[Path]:
    """The home of a cluster that the tests of a module look at and leave as it is: a head and a slice of 4 hosts."""
    with pytest.MonkeyPatch.context() as patch:
        home = Path(tempfile.mkdtemp(prefix="krt", dir=test_homes))
        patch.setenv("KINETIC_HOME", str(home))
        runtime = clusters.start(home)
        assert len(clusters.slices(runtime, "tpu-v6e-16")["slices"]) == 1
        yield home
        backend.stop(home, force=True)

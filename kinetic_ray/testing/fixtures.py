"""Fixtures for tests of programs that use kinetic: embedded clusters of a test's, or a test session's, own.

A pytest plugin, switched on by a line of the outermost conftest.py:

    pytest_plugins = ["kinetic_ray.testing.fixtures"]

It brings `kinetic_cluster`, `kinetic_session_cluster`, the mark `kinetic_slices`, and two fixtures to override,
`kinetic_slices` and `kinetic_session_slices`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from kinetic_ray.testing.clusters import LocalCluster, local_cluster

_MARK = "kinetic_slices(slices): the pool of the test's own embedded cluster, such as {'tpu-v6e-16': 2}"


def pytest_configure(config: pytest.Config) -> None:
    """Makes the mark known."""
    config.addinivalue_line("markers", _MARK)


@pytest.fixture
def kinetic_slices(request: pytest.FixtureRequest) -> Mapping[str, int] | None:
    """The pool of `kinetic_cluster`, to override at will: what the mark gives, else any shape on demand."""
    mark = request.node.get_closest_marker("kinetic_slices")
    return None if mark is None else dict(*mark.args, **mark.kwargs)


@pytest.fixture
def kinetic_cluster(kinetic_slices: Mapping[str, int] | None, tmp_path: Path) -> Iterator[LocalCluster]:
    """An embedded cluster of the test's own, to which its calls go; it ends with the test."""
    with local_cluster(kinetic_slices, home=tmp_path / "kinetic") as cluster:
        yield cluster


@pytest.fixture(scope="session")
def kinetic_session_slices() -> Mapping[str, int] | None:
    """The pool of `kinetic_session_cluster`, to override at will: any shape on demand."""
    return None


@pytest.fixture(scope="session")
def _kinetic_session(
    kinetic_session_slices: Mapping[str, int] | None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LocalCluster]:
    cluster = LocalCluster(tmp_path_factory.mktemp("kinetic"), kinetic_session_slices)
    try:
        yield cluster
    finally:
        cluster.stop()


@pytest.fixture
def kinetic_session_cluster(_kinetic_session: LocalCluster) -> Iterator[LocalCluster]:
    """One embedded cluster for all tests that ask for it: warm after the first of them. Their calls go to it."""
    with _kinetic_session.active() as cluster:
        cluster.start()
        yield cluster

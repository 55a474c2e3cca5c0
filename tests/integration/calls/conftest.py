"""One cluster for all scenes, and processes that play them."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path

import pytest

from kinetic_ray.backends.local import backend
from kinetic_ray.testing.clusters import LocalCluster
from tests.integration.calls.calling import SLICE, SMALL

Play = Callable[..., None]
Scene = Callable[..., AbstractContextManager["subprocess.Popen[str]"]]
Actors = Scene


@pytest.fixture(scope="package")
def cluster(test_homes: Path) -> Iterator[LocalCluster]:
    cluster = LocalCluster(test_homes / "calls", {SLICE.accelerator: 1, SMALL.accelerator: 2})
    with cluster.active():
        cluster.start()
        try:
            yield cluster
        finally:
            cluster.stop()


@pytest.fixture
def actors() -> Actors:
    """Starts a scene on a cluster in a process of its own, which doesn't outlive the block."""

    @contextmanager
    def begin(cluster: LocalCluster, name: str, *words: object) -> Iterator["subprocess.Popen[str]"]:
        found, ray = backend.status(cluster.home), backend.environment(cluster.home)
        assert found is not None
        assert ray is not None
        env = {**os.environ, **ray, "KINETIC_SUPERVISOR": found["socket"]}
        command = [sys.executable, "-m", "tests.integration.calls.scenes", name, *map(str, words)]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        with subprocess.Popen(command, env=env, text=True, **pipes) as process:
            try:
                yield process
            finally:
                process.kill()

    return begin


@pytest.fixture
def scene(cluster: LocalCluster, actors: Actors) -> Scene:
    """Starts a scene on the cluster of all of them."""
    return partial(actors, cluster)


@pytest.fixture
def play(scene: Scene) -> Play:
    """Plays a scene to its end."""

    def begin(name: str, *words: object) -> None:
        with scene(name, *words) as process:
            output, _ = process.communicate(timeout=170)
            assert process.returncode == 0, output

    return begin

"""Hosts that nobody needs are not started: calls take what others are about to give back."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kinetic_ray.testing.clusters import LocalCluster
from tests.integration.calls.test_api_calls import Folder

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(400)]

EDITED = """
import kinetic_ray as kinetic
import helper

@kinetic.remote(accelerator="tpu-v6e-16", runtime="plain")
def version():
    return helper.VERSION

if __name__ == "__main__":
    print("version", kinetic.get(version.remote(), timeout=200))
"""
INSTANCES = """
import kinetic_ray as kinetic

@kinetic.remote(accelerator="tpu-v6e-16", runtime="plain")
class Counter:
    def add(self):
        return 1

if __name__ == "__main__":
    for _ in range(4):
        counter = Counter.remote()
        assert kinetic.get(counter.add.remote(), timeout=200) == 1
        kinetic.kill(counter)
    print("fine")
"""
CALLS = 12
QUEUE = f"""
import time
import kinetic_ray as kinetic

@kinetic.remote(accelerator="tpu-v6e-4", runtime="plain")
def short(number):
    time.sleep(0.3)
    return number

if __name__ == "__main__":
    assert kinetic.get([short.remote(number) for number in range({CALLS})], timeout=200) == list(range({CALLS}))
    print("fine")
"""


@pytest.fixture(scope="module")
def on_demand(test_homes: Path) -> Iterator[LocalCluster]:
    """A cluster that starts whatever it is asked for."""
    cluster = LocalCluster(test_homes / "sparing")
    with cluster.active():
        cluster.start()
        try:
            yield cluster
        finally:
            cluster.stop()


def slices(cluster: LocalCluster, accelerator: str) -> list[str]:
    return [one["name"] for one in cluster.status()["slices"] if one["name"].startswith(accelerator)]


def test_an_edited_script_and_instances_in_a_row_have_one_slice(on_demand: LocalCluster, tmp_path: Path) -> None:
    project = Folder(tmp_path, EDITED)
    for number in range(4):
        (tmp_path / "helper.py").write_text(f"VERSION = {number}\n")
        assert f"version {number}" in project.run().splitlines()
    assert slices(on_demand, "tpu-v6e-16") == ["tpu-v6e-16-0"]
    project.script.write_text(INSTANCES)
    assert "fine" in project.run().splitlines()
    assert slices(on_demand, "tpu-v6e-16") == ["tpu-v6e-16-0"]


@pytest.mark.slow
def test_two_scripts_with_short_calls_share(on_demand: LocalCluster, tmp_path: Path) -> None:
    project = Folder(tmp_path, QUEUE)
    both = [project.start(str(project.script)) for _ in range(2)]
    for process in both:
        out, err = process.communicate(timeout=300)
        assert process.returncode == 0, out + err
    # How many are started meanwhile depends on how long a start takes; one for each call that waits it never is.
    assert 1 <= len(slices(on_demand, "tpu-v6e-4")) < CALLS

"""The desk on a real cluster: calls, failures, leases, and processes that come and go."""

import itertools
import json
import re
from pathlib import Path
from typing import Any

import pytest

from kinetic_ray.backends.local.backend import status
from kinetic_ray.calls.lookout import Lookout
from kinetic_ray.testing.clusters import LocalCluster
from tests.integration.calls.calling import SMALL
from tests.integration.calls.conftest import Actors, Play, Scene
from tests.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.slow]


@pytest.mark.parametrize(
    "name",
    [
        "one_rank",
        "four_ranks",
        "four_ranks_on_cpus",
        "what_never_fits",
        "lent",
        "instances",
        "nested",
        "edits",
        pytest.param("jax_gang", marks=pytest.mark.slow),
    ],
)
def test_calls(play: Play, name: str) -> None:
    play(name)


@pytest.mark.parametrize(
    "name",
    [
        "two_slices_five_calls",
        "arguments_are_waited_for_without_a_gang",
        "capacity_timeout",
        "cancelled",
        pytest.param("what_it_waits_for", marks=pytest.mark.slow),
        "desk_killed",
        "broker_killed",
        pytest.param("more_kinds_of_gangs_than_places", marks=pytest.mark.slow),
    ],
)
def test_calls_that_leave_marks(play: Play, name: str, tmp_path: Path) -> None:
    play(name, tmp_path)


def test_a_durable_job_gets_a_slice_from_calls_that_never_end(
    cluster: LocalCluster, scene: Scene, tmp_path: Path
) -> None:
    import kinetic_ray

    with scene("keep_calling", tmp_path) as calling:
        wait_until(lambda: len(list(tmp_path.iterdir())) > 20, 90, "many calls")
        job = kinetic_ray.run(accelerator=SMALL.accelerator, num_slices=2, runtime="plain")(_where).run_async()
        assert job.result(timeout=120) == "tpu-v6e-4-0"
        count = len(list(tmp_path.iterdir()))
        wait_until(lambda: len(list(tmp_path.iterdir())) > count + 10, 90, "calls after the job")
        (tmp_path / "enough").write_text("")
        output, _ = calling.communicate(timeout=120)
        assert calling.returncode == 0, output


def test_a_process_that_is_killed_leaves_nothing(play: Play, scene: Scene, tmp_path: Path) -> None:
    with scene("call_until_killed", tmp_path) as calling:
        assert calling.stdout is not None
        assert calling.stdout.readline() == "calling\n", calling.stdout.read()
    pids = [int(file.read_text()) for file in tmp_path.rglob("*") if file.is_file()]
    assert len(pids) == 7
    wait_until(lambda: not any(Path("/proc", str(pid)).exists() for pid in pids), 30, "the end of its ranks")
    play("nothing_is_left")


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ("preempted", r"Preempted: .*rank \d: its host was (being )?preempted"),
        ("warned", r"Preempted: .*rank \d: its host was being preempted; the process was killed by SIGTERM"),
        ("killed", "NodeLost: .*rank 2: its host is gone"),
    ],
)
def test_a_lost_slice_is_named_and_the_next_call_works(
    cluster: LocalCluster, scene: Scene, tmp_path: Path, how: str, told: str
) -> None:
    with scene("lose_a_host", tmp_path) as calling:
        assert calling.stdout is not None
        assert calling.stdout.readline() == "running\n", calling.stdout.read()
        if how == "preempted":
            cluster.preempt("tpu-v6e-16-0", grace=0.0, return_after=0.5)
        elif how == "warned":
            cluster.preempt("tpu-v6e-16-0", grace=60.0, return_after=0.5)
        else:
            cluster.kill_host("tpu-v6e-16-0.2")
        reason, words = json.loads(calling.stdout.readline())
        output, _ = calling.communicate(timeout=120)
        assert calling.returncode == 0, output
    assert re.match(told, f"{reason}: {words}", re.DOTALL), f"{reason}: {words}"


@pytest.mark.parametrize("kind", ["function", "instance", "direct"])
def test_calls_may_use_the_grace(cluster: LocalCluster, scene: Scene, tmp_path: Path, kind: str) -> None:
    with scene("use_the_grace", tmp_path, kind) as calling:
        assert calling.stdout is not None
        where = calling.stdout.readline().strip()
        assert where.startswith("tpu-"), where + calling.stdout.read()
        cluster.preempt(where, grace=60.0, return_after=0.5)
        output, _ = calling.communicate(timeout=120)
        assert calling.returncode == 0, output


@pytest.mark.slow
def test_a_cluster_is_not_idle_while_a_call_runs(
    kinetic_home: Path, actors: Actors, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    cluster = LocalCluster(kinetic_home)
    with cluster.active():
        monkeypatch.setenv("KINETIC_LOCAL_IDLE_S", "4")
        cluster.start()
        found = status(cluster.home)
        assert found is not None
        try:
            until_it_calls = Lookout(found["socket"], lambda _: None)  # how long a process takes to start nobody knows
            with actors(cluster, "one_call_of_nine_seconds", tmp_path) as calling:
                assert calling.stdout is not None
                lines = iter(calling.stdout.readline, "")
                said = [*itertools.takewhile(lambda line: line != "calling\n", lines)]
                until_it_calls.close()
                output = "".join((*said, calling.communicate(timeout=120)[0]))
                assert calling.returncode == 0, output
        finally:
            cluster.stop()


def _where() -> Any:
    import os

    return os.environ["TPU_NAME"]

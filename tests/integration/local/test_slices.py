"""Slices that come and go: a host dies, a pool is fixed, room is made."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kinetic_ray import wire
from kinetic_ray.backends.base import Need
from kinetic_ray.backends.local import backend, guard
from kinetic_ray.backends.local.backend import LocalBackend
from kinetic_ray.backends.local.paths import Runtime
from kinetic_ray.errors import UsageError
from tests.integration.local import clusters
from tests.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(240)]


@contextmanager
def _events(runtime: Runtime) -> Iterator[list[dict[str, Any]]]:
    """Everything that the supervisor publishes meanwhile."""
    heard: list[dict[str, Any]] = []
    with wire.connect(runtime.sock) as peer:
        peer.send({"op": "events"})

        def listen() -> None:
            while (message := peer.recv()) is not None:
                if message.get("event") != "following":  # which says that it listens, no more
                    heard.append(message)

        listening = threading.Thread(target=listen, daemon=True)
        listening.start()
        wire.call(runtime.sock, {"op": "hello"})  # the supervisor has seen the line above before this
        yield heard


def _standing(home: Path) -> list[dict[str, Any]]:
    status = backend.status(home)
    assert status is not None
    return list(status["slices"])


def _alive(home: Path) -> int:
    return int(clusters.ask_ray(home, "sum(n['Alive'] for n in ray.nodes())"))


def test_a_slice_dies_whole_when_a_host_is_lost(own_cluster: Path) -> None:
    runtime = clusters.start(own_cluster)
    (offered,) = clusters.slices(runtime, "tpu-v6e-16")["slices"]
    (standing,) = _standing(own_cluster)
    pids = [host["pid"] for host in standing["hosts"]]
    below = {child for pid in pids for child in guard.descendants(pid)}
    assert len(below) >= 12  # a raylet and two stand-ins each
    with _events(runtime) as heard:
        os.kill(pids[2], signal.SIGKILL)
        lost = wait_until(lambda: [e for e in heard if e["event"] == "host_lost"][3:] and heard, 10, "four lost hosts")
    told = [(e["worker_id"], e["node_id"], e["reason"]) for e in lost if e["event"] == "host_lost"]
    nodes = {host["worker_id"]: host["node_id"] for host in offered["hosts"]}
    assert told[0] == (2, nodes[2], "NodeLost")
    assert sorted(told[1:]) == [(worker_id, nodes[worker_id], "SliceLost") for worker_id in (0, 1, 3)]
    assert {e["slice"] for e in lost if e["event"] == "host_lost"} == {"tpu-v6e-16-0"}
    wait_until(lambda: not guard.parents().keys() & {*below, *pids}, 15, "every process of the slice to be gone")
    (again,) = clusters.slices(runtime, "tpu-v6e-16")["slices"]
    assert not {host["node_id"] for host in again["hosts"]} & set(nodes.values())
    wait_until(lambda: _alive(own_cluster) == 5, 30, "Ray to have forgotten the lost hosts")


def test_what_a_host_left_running_goes_with_it(own_cluster: Path) -> None:
    """Also a process that has left its session and its parents, as a badly behaved job's may."""
    runtime = clusters.start(own_cluster)
    clusters.slices(runtime, "tpu-v6e-8")
    escape = (
        "ray.get(ray.remote(lambda: __import__('subprocess').run("
        "['sh', '-c', 'setsid setsid sleep 600 >/dev/null 2>&1 & echo $!'], capture_output=True, text=True).stdout)"
        ".options(num_cpus=0, resources={'TPU': 8}).remote())"
    )
    clusters.ask_ray(own_cluster, escape)
    (sleeper,) = (p for p in clusters.processes(runtime) if p.cmdline()[:2] == ["sleep", "600"])
    (slice_,) = _standing(own_cluster)
    os.kill(slice_["hosts"][0]["pid"], signal.SIGKILL)
    wait_until(lambda: sleeper.pid not in guard.parents(), 15, "the escaped process to be gone")


def test_a_fixed_pool_waits_or_refuses(own_cluster: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    local = LocalBackend(own_cluster)
    monkeypatch.setenv("KINETIC_LOCAL_SLICES", '{"v6e-8": 1}')
    with pytest.raises(UsageError, match="1 x tpu-v6e-8"):
        local.check(Need("tpu-v6e-16"))  # with nothing running yet
    runtime = clusters.start(own_cluster)
    status = backend.status(own_cluster)
    assert status is not None
    assert status["pool"] == {"tpu-v6e-8": 1}
    (one,) = clusters.slices(runtime, "tpu-v6e-8")["slices"]
    busy = clusters.slices(runtime, "tpu-v6e-8", leased=(one["name"],))
    assert (busy["slices"], busy["wait"]) == ([], "1 of 1 slices of tpu-v6e-8 are in use")
    assert clusters.slices(runtime, "tpu-v6e-8")["slices"] == [one]
    with pytest.raises(UsageError, match="never fit"):
        clusters.slices(runtime, "tpu-v6e-8", count=2)
    with pytest.raises(UsageError, match="never fit"):
        local.check(Need("tpu-v6e-16"))
    with _events(runtime) as heard:
        os.kill(_standing(own_cluster)[0]["hosts"][0]["pid"], signal.SIGKILL)
        wait_until(lambda: heard, 10, "the loss")
        assert "wait" in clusters.slices(runtime, "tpu-v6e-8")  # its name rests until Ray has noticed
        wait_until(lambda: any(e["event"] == "room" for e in heard), 30, "word that the pool is whole again")
    (returned,) = wait_until(lambda: clusters.slices(runtime, "tpu-v6e-8")["slices"], 60, "the slice", every=0.5)
    assert returned["name"] == one["name"]
    assert returned["hosts"] != one["hosts"]


def test_an_unused_slice_makes_room_and_a_leased_one_does_not(
    own_cluster: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KINETIC_LOCAL_IDLE_S", "600")
    runtime = clusters.start(own_cluster)
    clusters.slices(runtime, "tpu-v6e-8")
    wire.call(runtime.sock, {"op": "leases", "names": ["tpu-v6e-8-0"]})
    waits = clusters.slices(runtime, "tpu-v6e-64", leased=("tpu-v6e-8-0",))
    assert waits["slices"] == []
    assert waits["wait"] == "1 of 16 simulated hosts are in use"
    assert [one["name"] for one in _standing(own_cluster)] == ["tpu-v6e-8-0"]


def test_an_idle_slice_is_stopped_before_the_cluster(own_cluster: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KINETIC_LOCAL_IDLE_S", "6")
    runtime = clusters.start(own_cluster)
    clusters.slices(runtime, "tpu-v6e-8")
    wire.call(runtime.sock, {"op": "leases", "names": ["tpu-v6e-8-0"]})
    pid = _standing(own_cluster)[0]["hosts"][0]["pid"]
    wire.call(runtime.sock, {"op": "leases", "names": []})
    wait_until(lambda: _standing(own_cluster) == [], 30, "the slice to stop", every=0.5)
    assert pid not in guard.parents()
    assert backend.status(own_cluster) is not None


def test_a_request_for_two_starts_two(own_cluster: Path) -> None:
    runtime = clusters.start(own_cluster)
    offered = clusters.slices(runtime, "tpu-v5e-4", count=2)["slices"]
    assert [one["name"] for one in offered] == ["tpu-v5e-4-0", "tpu-v5e-4-1"]
    assert len({host["node_id"] for one in offered for host in one["hosts"]}) == 2


@pytest.mark.slow
def test_sixteen_hosts_come_up(own_cluster: Path) -> None:
    runtime = clusters.start(own_cluster)
    (offered,) = clusters.slices(runtime, "tpu-v6e-64")["slices"]
    assert [host["worker_id"] for host in offered["hosts"]] == list(range(16))
    assert clusters.ask_ray(own_cluster, "ray.cluster_resources()['TPU']") == 64

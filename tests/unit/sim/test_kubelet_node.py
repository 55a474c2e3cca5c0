"""Nodes that are played against an API server in memory: what they tell, and what happens to them."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from cluster.sim.kubelet import faults
from cluster.sim.kubelet.node import NodeWorker
from cluster.sim.kubelet.surroundings import Surroundings
from tests.unit.sim.fakes import FakeApi, Json, pod, surroundings

FAKE = {"fake*": {"override": True}}
Body = Callable[[NodeWorker, FakeApi], Coroutine[Any, Any, None]]


def node(fault: str = "") -> Json:
    notes = {faults.NODE_FAULT: fault} if fault else {}
    return {"metadata": {"name": "n", "uid": "node-uid", "annotations": notes}, "spec": {"taints": []}, "status": {}}


def play(folder: Path, body: Body) -> None:
    async def run() -> None:
        async with surroundings(folder, FAKE) as (around, api, _):
            worker = NodeWorker(node(), around)
            worker.start()
            await body(worker, api)
            await end(worker, around)

    asyncio.run(run())


async def end(worker: NodeWorker, around: Surroundings) -> None:
    await worker.stop()
    await asyncio.gather(*(one.force() for one in worker.pods.values()))


def conditions(api: FakeApi) -> list[str]:
    """What was told of the node's readiness, in its order."""
    bodies = [body for _, path, body in api.calls if body and path.endswith("/nodes/n/status")]
    return [one["status"] for body in bodies for one in body["status"]["conditions"] if one["type"] == "Ready"]


def taints(api: FakeApi) -> list[list[str]]:
    bodies = [body for _, path, body in api.calls if body and path.endswith("/nodes/n")]
    return [[one["key"] for one in body["spec"]["taints"]] for body in bodies]


def phases(api: FakeApi, name: str = "p") -> list[str]:
    return [status["phase"] for status in api.statuses(name)]


def test_a_node_says_that_it_is_ready_and_renews_its_lease(tmp_path: Path) -> None:
    async def body(worker: NodeWorker, api: FakeApi) -> None:
        await api.until(lambda: any(path.endswith("/leases/n") for _, path, _ in api.calls))
        assert conditions(api) == ["True"]
        await api.until(lambda: {"Starting", "NodeReady"} <= set(api.reasons()))

    play(tmp_path, body)


@pytest.mark.parametrize(("fault", "label"), [("preempt:1", None), ("maintenance:1", "ONGOING")])
def test_notice_then_failed_pods_then_silence_then_the_host_again(
    tmp_path: Path, fault: str, label: str | None
) -> None:
    async def body(worker: NodeWorker, api: FakeApi) -> None:
        worker.on_pod("ADDED", pod())
        await api.until(lambda: "Running" in phases(api))
        worker.update(node(fault))
        await api.until(lambda: "Failed" in phases(api))
        assert conditions(api)[-1] == "False"
        assert taints(api) == [[faults.TERMINATION_TAINT]]
        told = next(body for _, path, body in api.calls if body and path.endswith("/nodes/n"))
        assert told["metadata"]["labels"] == {faults.MAINTENANCE_LABEL: label}
        worker.update(node())
        await api.until(lambda: conditions(api)[-1] == "True" and taints(api)[-1] == [])
        assert worker.reachable

    play(tmp_path, body)


def test_a_pod_that_comes_while_the_node_shuts_down_is_refused(tmp_path: Path) -> None:
    async def body(worker: NodeWorker, api: FakeApi) -> None:
        slow = pod(containers=[{"name": "main", "image": "fake:1"}])
        worker.on_pod("ADDED", slow)
        await api.until(lambda: "Running" in phases(api))
        worker.update(node("preempt"))
        await api.until(lambda: "Shutdown" in api.reasons())
        worker.on_pod("ADDED", pod("late"))
        if worker.reachable:  # else it is told when the node is back
            await api.until(lambda: "Failed" in phases(api, "late"))
            assert api.statuses("late")[-1]["reason"] == faults.REFUSED_REASON
        worker.update(node())
        await api.until(lambda: conditions(api)[-1] == "True")

    play(tmp_path, body)


@pytest.mark.parametrize("fault", ["silent", "crash"])
def test_what_a_host_misses_is_done_when_it_is_back(tmp_path: Path, fault: str) -> None:
    async def body(worker: NodeWorker, api: FakeApi) -> None:
        worker.on_pod("ADDED", pod())
        await api.until(lambda: "Running" in phases(api))
        worker.update(node(fault))
        await asyncio.wait_for(worker.settled(), 20)
        told = len(api.calls)
        record = pod()
        record["metadata"] |= {"deletionTimestamp": "now", "deletionGracePeriodSeconds": 1}
        worker.on_pod("MODIFIED", record)
        worker.on_pod("ADDED", pod("new"))
        assert len(api.calls) == told
        worker.update(node())
        await api.until(lambda: "Running" in phases(api, "new"))
        await api.until(lambda: any(method == "DELETE" and path.endswith("/pods/p") for method, path, _ in api.calls))

    play(tmp_path, body)


def test_a_pod_of_a_time_before_is_let_go_or_given_up(tmp_path: Path) -> None:
    async def body(worker: NodeWorker, api: FakeApi) -> None:
        going = pod("going")
        going["metadata"]["deletionTimestamp"] = "now"
        worker.on_pod("ADDED", going)
        once = pod("once", restartPolicy="Never")
        once["status"] = {"phase": "Running", "containerStatuses": [{"name": "main", "state": {"running": {}}}]}
        worker.on_pod("ADDED", once)
        await api.until(lambda: any(method == "DELETE" and path.endswith("/going") for method, path, _ in api.calls))
        await api.until(lambda: "Failed" in phases(api, "once"))
        assert worker.pods == {}

    play(tmp_path, body)

"""The life of pods in name only, against an API server in memory."""

import asyncio
import json
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from cluster.sim.kubelet.faults import CONTAINER_EXIT
from cluster.sim.kubelet.pod import PodWorker
from cluster.sim.kubelet.surroundings import Surroundings
from tests.unit.sim.fakes import FakeApi, FakeHost, Json, pod, surroundings

FAKE = {"fake*": {"override": True}, "short*": {"override": True, "exit_after": 0, "exit_code": 3}}
Body = Callable[[Surroundings, FakeApi, FakeHost], Coroutine[Any, Any, None]]


def play(folder: Path, body: Body, images: Json | None = None) -> None:
    async def run() -> None:
        async with surroundings(folder, FAKE if images is None else images) as (around, api, host):
            await body(around, api, host)

    asyncio.run(run())


def last(api: FakeApi, name: str = "p") -> Json:
    found = api.statuses(name)
    return found[-1] if found else {"phase": "", "conditions": []}


def is_ready(status: Json) -> bool:
    return any(one["type"] == "Ready" and one["status"] == "True" for one in status["conditions"])


def state(status: Json, at: int = 0) -> Json:
    found: Json = (status.get("containerStatuses") or [{"state": {}}] * (at + 1))[at]["state"]
    return found


def waits_for(status: Json) -> str:
    return str((state(status).get("waiting") or {}).get("reason", ""))


def deleted(record: Json, grace: int = 5) -> Json:
    meta = {**record["metadata"], "deletionTimestamp": "now", "deletionGracePeriodSeconds": grace}
    return {**record, "metadata": meta}


def is_gone(api: FakeApi) -> bool:
    return any(method == "DELETE" and path.endswith("/pods/p") for method, path, _ in api.calls)


def test_a_pod_runs_and_is_deleted_with_all_that_it_had(tmp_path: Path) -> None:
    async def body(around: Surroundings, api: FakeApi, host: FakeHost) -> None:
        worker = PodWorker(pod(), host, around)
        worker.start()
        await api.until(lambda: is_ready(last(api)))
        assert (last(api)["phase"], last(api)["podIP"]) == ("Running", "10.244.250.2")
        assert worker.place.path.is_dir()
        worker.update(deleted(worker.record))
        await api.until(lambda: is_gone(api))
        assert not worker.place.path.exists()
        assert around.addresses.take(host.record) == "10.244.250.2"
        await api.until(lambda: "Killing" in api.reasons())
        assert api.reasons()[:3] == ["Pulled", "Created", "Started"]

    play(tmp_path, body)


def test_an_image_that_comes_later_is_found(tmp_path: Path) -> None:
    async def body(around: Surroundings, api: FakeApi, host: FakeHost) -> None:
        worker = PodWorker(pod(), host, around)
        worker.start()
        await api.until(lambda: waits_for(last(api)) == "ImagePullBackOff")
        await api.until(lambda: "BackOff" in api.reasons())
        around.options.images.write_text(json.dumps(FAKE))
        await api.until(lambda: is_ready(last(api)))
        await worker.force()

    play(tmp_path, body, images={})


def test_a_secret_that_comes_later_is_found(tmp_path: Path) -> None:
    async def body(around: Surroundings, api: FakeApi, host: FakeHost) -> None:
        ref = {"name": "X", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}
        worker = PodWorker(pod(containers=[{"name": "main", "image": "fake:1", "env": [ref]}]), host, around)
        worker.start()
        await api.until(lambda: waits_for(last(api)) == "CreateContainerConfigError")
        assert state(last(api))["waiting"]["message"] == 'secret "s" not found'
        api.things["/api/v1/namespaces/ns/secrets/s"] = {"data": {"k": "eA=="}}
        await api.until(lambda: is_ready(last(api)))
        await worker.force()

    play(tmp_path, body)


@pytest.mark.parametrize(("policy", "phase"), [("Never", "Failed"), ("Always", "Running"), ("OnFailure", "Running")])
def test_what_a_test_ends_is_restarted_by_the_pods_rule(tmp_path: Path, policy: str, phase: str) -> None:
    async def body(around: Surroundings, api: FakeApi, host: FakeHost) -> None:
        record = pod(restartPolicy=policy)
        worker = PodWorker(record, host, around)
        worker.start()
        await api.until(lambda: is_ready(last(api)))
        annotated = {**record["metadata"], "annotations": {CONTAINER_EXIT: "main:137:OOMKilled"}}
        worker.update({**record, "metadata": annotated})
        worker.update({**record, "metadata": annotated})  # the same wish is no second one

        def is_told() -> bool:
            one = (last(api).get("containerStatuses") or [{}])[0]
            ended = (one.get("lastState") if policy != "Never" else one.get("state")) or {}
            return (ended.get("terminated") or {}).get("reason") == "OOMKilled" and last(api)["phase"] == phase

        await api.until(lambda: is_told() and (policy == "Never" or is_ready(last(api))))
        assert last(api)["containerStatuses"][0]["restartCount"] == (0 if policy == "Never" else 1)
        await worker.force()

    play(tmp_path, body)


def test_a_container_that_keeps_failing_backs_off(tmp_path: Path) -> None:
    async def body(around: Surroundings, api: FakeApi, host: FakeHost) -> None:
        worker = PodWorker(pod(containers=[{"name": "main", "image": "short:1"}]), host, around)
        worker.start()
        await api.until(lambda: waits_for(last(api)) == "CrashLoopBackOff")
        assert last(api)["phase"] == "Running"
        assert last(api)["containerStatuses"][0]["lastState"]["terminated"]["exitCode"] == 3
        await api.until(lambda: last(api)["containerStatuses"][0]["restartCount"] >= 3)
        await worker.force()

    play(tmp_path, body)


def test_init_containers_go_first_and_a_failed_one_fails_the_pod(tmp_path: Path) -> None:
    async def body(around: Surroundings, api: FakeApi, host: FakeHost) -> None:
        inits = [{"name": "first", "image": "fake:1"}, {"name": "side", "image": "fake:1", "restartPolicy": "Always"}]
        worker = PodWorker(pod(initContainers=inits), host, around)
        worker.start()
        await api.until(lambda: is_ready(last(api)))
        first, side = last(api)["initContainerStatuses"]
        assert "terminated" in first["state"]
        assert "running" in side["state"]
        await worker.force()
        broken = PodWorker(
            pod("q", initContainers=[{"name": "first", "image": "nowhere:1"}], restartPolicy="Never"), host, around
        )
        broken.start()
        await api.until(lambda: bool(api.statuses("q")))
        assert last(api, "q")["phase"] == "Pending"
        await broken.force()

    play(tmp_path, body)


def test_a_pod_that_does_its_work_succeeds_and_its_sidecar_is_stopped(tmp_path: Path) -> None:
    async def body(around: Surroundings, api: FakeApi, host: FakeHost) -> None:
        side = {"name": "side", "image": "fake:1", "restartPolicy": "Always"}
        worker = PodWorker(
            pod(containers=[{"name": "main", "image": "done:1"}], initContainers=[side], restartPolicy="Never"),
            host,
            around,
        )
        worker.start()
        await api.until(lambda: last(api)["phase"] == "Succeeded")
        await api.until(lambda: "terminated" in last(api)["initContainerStatuses"][0]["state"])
        await worker.force()

    play(tmp_path, body, images={**FAKE, "done*": {"override": True, "exit_after": 0}})


@pytest.mark.parametrize("policy", ["Always", "OnFailure", "Never"])
def test_a_shutdown_leaves_a_failed_pod_that_says_why_at_once(tmp_path: Path, policy: str) -> None:
    async def body(around: Surroundings, api: FakeApi, host: FakeHost) -> None:
        worker = PodWorker(pod(restartPolicy=policy), host, around)
        worker.start()
        await api.until(lambda: is_ready(last(api)))
        await worker.shut_down(5)
        over = [told for told in api.statuses("p") if told["phase"] in ("Succeeded", "Failed")]
        assert over
        for told in over:
            assert (told["phase"], told["reason"]) == ("Failed", "Terminated")
            disruption = next(one for one in told["conditions"] if one["type"] == "DisruptionTarget")
            assert (disruption["status"], disruption["reason"]) == ("True", "TerminationByKubelet")
        await worker.force()

    play(tmp_path, body)


def test_a_pod_that_has_had_its_time_fails(tmp_path: Path) -> None:
    async def body(around: Surroundings, api: FakeApi, host: FakeHost) -> None:
        worker = PodWorker(pod(activeDeadlineSeconds=0.01), host, around)
        worker.start()
        await api.until(lambda: last(api).get("reason") == "DeadlineExceeded")
        assert last(api)["phase"] == "Failed"
        await worker.force()

    play(tmp_path, body)


def test_nothing_is_told_of_a_host_that_is_away(tmp_path: Path) -> None:
    async def body(around: Surroundings, api: FakeApi, host: FakeHost) -> None:
        worker = PodWorker(pod(restartPolicy="Never"), host, around)
        worker.start()
        await api.until(lambda: is_ready(last(api)))
        host.here.clear()
        told = len(api.calls)
        worker.cut_power()
        await asyncio.wait_for(worker.ended(), 10)
        assert len(api.calls) == told
        host.here.set()
        worker.changed()
        await api.until(lambda: last(api)["phase"] == "Failed")
        await worker.force()

    play(tmp_path, body)


def test_an_event_that_comes_again_is_counted(tmp_path: Path) -> None:
    async def body(around: Surroundings, api: FakeApi, host: FakeHost) -> None:
        worker = PodWorker(pod(volumes=[{"name": "v", "configMap": {"name": "gone"}}]), host, around)
        worker.start()
        await api.until(lambda: any(method == "PATCH" and "/events/" in path for method, path, _ in api.calls))
        assert api.reasons() == ["FailedMount"]
        counts = [
            body["count"] for method, path, body in api.calls if method == "PATCH" and "/events/" in path and body
        ]
        assert counts[0] == 2
        await worker.force()

    play(tmp_path, body)

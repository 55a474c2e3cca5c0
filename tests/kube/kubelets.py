"""Pods that really run, on a plane of their own, and what tests ask of them."""

import asyncio
import gc
import json
import warnings
from typing import Any

import aiohttp
import yaml

from cluster.sim import Plane
from cluster.sim.api import ApiError
from tests.waiting import wait_until

Json = dict[str, Any]
IMAGE = "example/tools:1"
PATIENCE = 60.0
_STDOUT, _STDERR, _ERROR = 1, 2, 3


class Pods:
    """The pods of one namespace."""

    def __init__(self, plane: Plane, namespace: str) -> None:
        self.plane = plane
        self.namespace = namespace
        self.path = f"/api/v1/namespaces/{namespace}/pods"

    def run(self, name: str, script: str = "", spec: Json | None = None, **container: Any) -> None:
        """Create a pod with one container that runs a shell script."""
        main = {"name": "main", "image": IMAGE, **({"command": ["sh", "-c", script]} if script else {}), **container}
        given = {"containers": [main], "terminationGracePeriodSeconds": 2, "restartPolicy": "Never", **(spec or {})}
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": given}
        self.plane.api.create(self.path, body)

    def get(self, name: str) -> Json:
        return self.plane.api.get(f"{self.path}/{name}")

    def state(self, name: str, container: str = "main") -> Json:
        """What a container does now: the only key is running, waiting or terminated."""
        status = self.get(name)["status"]
        every = (status.get("containerStatuses") or []) + (status.get("initContainerStatuses") or [])
        found: Json = next((one["state"] for one in every if one["name"] == container), {})
        return found

    def wait_phase(self, name: str, phase: str) -> Json:
        def is_there() -> Json | None:
            pod = self.get(name)
            return pod if pod["status"].get("phase") == phase else None

        found = wait_until(is_there, PATIENCE, f"pod {name} to be {phase}", 0.1)
        assert found
        return found

    def wait_ready(self, name: str) -> Json:
        def is_ready() -> Json | None:
            pod = self.get(name)
            stated = pod["status"].get("conditions") or []
            return pod if any(one["type"] == "Ready" and one["status"] == "True" for one in stated) else None

        found = wait_until(is_ready, PATIENCE, f"pod {name} to be ready", 0.1)
        assert found
        return found

    def wait_gone(self, name: str) -> None:
        wait_until(lambda: not self.plane.api.exists(f"{self.path}/{name}"), PATIENCE, f"the end of pod {name}", 0.1)

    def delete(self, name: str) -> None:
        self.plane.api.delete(f"{self.path}/{name}")

    def log(self, name: str, **query: Any) -> str:
        words = "&".join(f"{key}={value}" for key, value in query.items())
        return self.plane.api.read(f"{self.path}/{name}/log?{words}").decode()

    def wait_log(self, name: str, words: str, **query: Any) -> str:
        """The log of a pod, as soon as something stands in it."""

        def has() -> str:
            try:
                text = self.log(name, **query)
            except ApiError:  # it is waiting to start
                return ""
            return text if words in text else ""

        return wait_until(has, PATIENCE, f"{words!r} in the log of {name}", 0.1)

    def reasons(self, name: str) -> set[str]:
        events = self.plane.api.items(f"/api/v1/namespaces/{self.namespace}/events")
        return {one["reason"] for one in events if one["involvedObject"]["name"] == name}

    def execute(self, name: str, *argv: str, typed: bytes = b"") -> tuple[int, str, str]:
        """Run a command inside: its exit code, its output, its errors."""
        words = "&".join(f"command={word}" for word in map(_quoted, argv))
        query = f"{words}&stdout=true&stderr=true{'&stdin=true' if typed else ''}"
        frames = _talk(self.plane, f"{self.path}/{name}/exec?{query}", "v5.channel.k8s.io", typed)
        streams = dict.fromkeys((_STDOUT, _STDERR, _ERROR), b"")
        for frame in frames:
            streams[frame[0]] = streams.get(frame[0], b"") + frame[1:]
        status = json.loads(streams[_ERROR])
        code = 0 if status["status"] == "Success" else int(status["details"]["causes"][0]["message"])
        return code, streams[_STDOUT].decode(), streams[_STDERR].decode()

    def through_forward(self, name: str, port: int, sent: bytes) -> bytes:
        """What a port of a pod answers through port-forward."""
        frames = _talk(
            self.plane, f"{self.path}/{name}/portforward?ports={port}", "v4.channel.k8s.io", sent, closes=False
        )
        return b"".join(frame[1:] for frame in frames if frame[0] == 0)[2:]  # its first frame says the port


def _quoted(word: str) -> str:
    return "".join(char if char.isalnum() else f"%{byte:02x}" for char in word for byte in char.encode())


def _talk(plane: Plane, path: str, protocol: str, sent: bytes, closes: bool = True) -> list[bytes]:
    config = yaml.safe_load(plane.kubeconfig.read_text())
    url = config["clusters"][0]["cluster"]["server"] + path
    headers = {"Authorization": f"Bearer {config['users'][0]['user']['token']}"}
    typed = ([b"\0" + sent] if sent else []) + ([b"\xff\0"] if sent and closes else [])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        frames = asyncio.run(_talk_to(url, headers, protocol, typed))
        gc.collect()  # the client leaves the ends of its encrypted connections to the collector
    return frames


async def _talk_to(url: str, headers: dict[str, str], protocol: str, typed: list[bytes]) -> list[bytes]:
    closing = aiohttp.ClientWSTimeout(ws_close=5)
    async with (
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=False), headers=headers) as http,
        http.ws_connect(url, protocols=(protocol,), timeout=closing) as socket,
    ):
        for frame in typed:
            await socket.send_bytes(frame)
        async with asyncio.timeout(PATIENCE):
            return [one.data async for one in socket if one.type is aiohttp.WSMsgType.BINARY and one.data]

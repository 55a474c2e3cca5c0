"""Ports and sockets of a cluster as a stranger on the machine sees them: what listens, and what it grants."""

import http.client
import importlib
import json
import pkgutil
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

import grpc
import psutil
import ray.core.generated

from kinetic_ray.backends.local.paths import Runtime

#: Method, path, body.
Request = tuple[str, str, object]
_PUBLIC = ("/grpc.health.v1.Health/", "/grpc.reflection.v1", "/grpc.channelz.v1.Channelz/")
_REFLECTION = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
_LIST_SERVICES = b"\x3a\x00"
#: Services that have no generated module in Ray's wheel.
_MORE = (
    "/ray.rpc.ObjectManagerService/Push",
    "/ray.rpc.ObjectManagerService/Pull",
    "/ray.rpc.syncer.RaySyncer/StartSync",
    "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export",
)
#: Without this RaySyncer ends its process before it has looked for a token: a fault of Ray, and no way in.
_NODE = ("node_id", "0" * 56)
_TIMEOUT_S = 10.0
_READING = (
    "/api/version /api/jobs/ /api/jobs/raw-1 /api/jobs/raw-1/logs /api/jobs/raw-1/logs/tail /nodes?view=summary "
    "/api/v0/nodes /api/v0/jobs /api/v0/actors /api/v0/tasks /api/v0/workers /api/v0/objects /api/v0/runtime_envs "
    "/api/v0/placement_groups /api/v0/logs?node_ip=127.0.0.1 /api/v0/logs/file?node_ip=127.0.0.1&filename=x "
    "/api/v0/cluster_events /logical/actors /api/cluster_status /api/snapshot /events /api/serve/applications/ "
    "/worker/traceback?pid=1&ip=127.0.0.1 /worker/cpu_profile?pid=1&ip=127.0.0.1 /memory_profile?pid=1 "
    "/api/packages/gcs/x.zip /api/component_activities /api/prometheus/sd /api/grafana_health /metrics "
    "/api/job_agent/jobs/raw-1/logs /api/job_agent/jobs/raw-1/logs/tail /api/local_raylet_healthz/../jobs/ "
    "/static/../api/jobs/ /api/actors/kill?actor_id=00&force_kill=true /log_proxy /timeline /%61pi/jobs/"
)


@dataclass(frozen=True, slots=True)
class Port:
    """A TCP or UDP socket that takes what comes.

    Attributes:
        pid: Whose it is.
        process: That one's name.
        address: Where it listens.
        number: The port.
    """

    pid: int
    process: str
    address: str
    number: int

    @property
    def on_loopback(self) -> bool:
        """Whether only this machine reaches it."""
        found = ip_address(self.address)
        mapped = getattr(found, "ipv4_mapped", None)
        return (mapped or found).is_loopback


def below(runtime: Runtime) -> list[psutil.Process]:
    """The supervisor of a cluster, and every process that descends from it."""
    supervisor = psutil.Process(json.loads(runtime.info.read_text())["pid"])
    return [supervisor, *supervisor.children(recursive=True)]


def ports(runtime: Runtime) -> list[Port]:
    """Every open port of these processes, of both families."""
    found = set()
    for process in below(runtime):
        try:
            name, sockets = process.name(), process.net_connections("inet")
        except psutil.NoSuchProcess:
            continue
        for one in sockets:
            waiting = one.status == psutil.CONN_LISTEN or (one.type.name == "SOCK_DGRAM" and not one.raddr)
            if waiting:
                found.add(Port(process.pid, name, one.laddr.ip, one.laddr.port))
    return sorted(found, key=lambda port: port.number)


def unix_sockets(runtime: Runtime) -> set[str]:
    """The names of all unix sockets of these processes; an abstract one has a name that is no path."""
    found = set()
    for process in below(runtime):
        try:
            found |= {str(one.laddr) for one in process.net_connections("unix") if one.laddr}
        except psutil.NoSuchProcess:
            continue
    return found


def speaks_http(port: Port) -> bool:
    """Whether a port answers in HTTP/1; else Ray's speak gRPC."""
    connection = http.client.HTTPConnection("127.0.0.1", port.number, timeout=_TIMEOUT_S)
    try:
        connection.request("GET", "/")
        connection.getresponse().read()
    except http.client.BadStatusLine:  # the settings with which HTTP/2 begins
        return False
    finally:
        connection.close()
    return True


def ask(port: Port, request: Request, headers: dict[str, str]) -> tuple[int, bytes]:
    """The status and the body of the answer to one HTTP request."""
    method, path, body = request
    text = None if body is None else json.dumps(body)
    connection = http.client.HTTPConnection("127.0.0.1", port.number, timeout=3 * _TIMEOUT_S)
    try:
        connection.request(method, path, text, {"Content-Type": "application/json", **headers})
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def http_requests(command: str) -> list[Request]:
    """The ways to run something, and to learn something, of Ray's dashboard, job agent and runtime-env agent."""
    job = {"entrypoint": command, "submission_id": "stranger"}
    serve = {"applications": [{"name": "x", "import_path": "os:system", "args": {"command": command}}]}
    environment = {"serialized_runtime_env": "{}", "source_process": command}
    changing: list[Request] = [
        ("POST", "/api/jobs/", job),
        ("POST", "/api/jobs", job),
        ("POST", "/api/job_agent/jobs/", job),
        ("POST", "/api/jobs/raw-1/stop", {}),
        ("POST", "/api/job_agent/jobs/raw-1/stop", {}),
        ("DELETE", "/api/jobs/raw-1", None),
        ("PUT", "/api/packages/gcs/x.zip", "x"),
        ("PUT", "/api/serve/applications/", serve),
        ("DELETE", "/api/serve/applications/", None),
        ("POST", "/report_events", []),
        ("POST", "/get_or_create_runtime_env", environment),
        ("POST", "/delete_runtime_env_if_possible", environment),
        ("POST", "/get_runtime_envs_info", {}),
    ]
    return [*(("GET", path, None) for path in _READING.split()), *changing]


def rpc_methods() -> list[str]:
    """Every gRPC method that Ray has, by the modules in its wheel."""
    found = list(_MORE)
    for module in pkgutil.iter_modules(ray.core.generated.__path__, "ray.core.generated."):
        described = getattr(importlib.import_module(module.name), "DESCRIPTOR", None)
        for service in described.services_by_name.values() if described is not None else ():
            found += [f"/{service.full_name}/{method.name}" for method in service.methods]
    return found


class Caller:
    """Calls gRPC methods of one port with an empty message, as if from a node."""

    def __init__(self, port: Port, token: str | None = None) -> None:
        self._channel = grpc.insecure_channel(f"127.0.0.1:{port.number}")
        self._metadata = [_NODE, *([("authorization", f"Bearer {token}")] if token else [])]

    def __enter__(self) -> "Caller":
        grpc.channel_ready_future(self._channel).result(_TIMEOUT_S)
        return self

    def __exit__(self, *_exc: object) -> None:
        self._channel.close()

    def codes(self, methods: Sequence[str]) -> dict[str, str]:
        """What each method ends with: "OK", "UNAUTHENTICATED", "UNIMPLEMENTED"..."""
        with ThreadPoolExecutor(8) as calling:
            return dict(zip(methods, calling.map(self._code, methods), strict=True))

    def _code(self, method: str) -> str:
        try:
            self._channel.unary_unary(method)(b"", timeout=_TIMEOUT_S, metadata=self._metadata)
        except grpc.RpcError as error:
            return str(error.code().name)
        return "OK"

    def services(self) -> set[str] | None:
        """The services that the port itself names; None when it names none."""
        asking = self._channel.stream_stream(_REFLECTION)(iter([_LIST_SERVICES]), timeout=_TIMEOUT_S)
        try:
            (answer,) = asking
        except grpc.RpcError as error:
            if error.code() is grpc.StatusCode.UNIMPLEMENTED:
                return None
            raise
        listings = [value for number, value in _fields(answer) if number == 6]
        services = [value for listing in listings for number, value in _fields(listing) if number == 1]
        return {value.decode() for service in services for number, value in _fields(service) if number == 1}


def _fields(message: bytes) -> Iterator[tuple[int, bytes]]:
    """The fields of a protobuf message that has only strings and messages."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        assert key & 7 == 2, message
        length, at = _varint(message, at)
        yield key >> 3, message[at : at + length]
        at += length


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        value |= (message[at] & 0x7F) << shift
        shift, at = shift + 7, at + 1
        if message[at - 1] < 0x80:
            return value, at


def is_public(service: str) -> bool:
    """Whether a service answers everybody, by what gRPC itself brings: health, services, counts of connections."""
    return f"/{service}/".startswith(_PUBLIC)


def folder_mode(path: Path) -> int:
    """Who may do what in a folder."""
    return path.stat().st_mode & 0o777

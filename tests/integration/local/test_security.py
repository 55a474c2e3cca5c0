"""Nobody without the token gets anything from a cluster, and nobody off the machine reaches it."""

import contextlib
import json
import os
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from kinetic_ray.backends.local import backend
from kinetic_ray.backends.local.paths import Runtime, runtime_of
from tests.integration.local import clusters, outward, probes, programs
from tests.integration.local.probes import Caller, Port

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(240)]

_REFUSED = (401, 403)
_NOBODY = 65534
_STRANGERS = {
    "no token": {},
    "another token": {"Authorization": "Bearer " + "0" * 64},
    "an empty token": {"Authorization": "Bearer "},
    "another cookie": {"Cookie": "ray-authentication-token=" + "0" * 64},
}


@dataclass(frozen=True, slots=True)
class Guarded:
    """A cluster with a gang on it.

    Attributes:
        home: Its home.
        runtime: Its folder.
        ranks: The processes of the gang.
        ports: All that listens.
    """

    home: Path
    runtime: Runtime
    ranks: frozenset[int]
    ports: tuple[Port, ...]

    @property
    def rays(self) -> list[Port]:
        """What is not the gang's own. Workers that Ray no longer needs have ended, or end when they are looked at."""
        return [port for port in self.ports if port.pid not in self.ranks and _stays(port)]


def _stays(port: Port) -> bool:
    """Whether it is there, and no worker that is idle or about to be."""
    try:
        return not psutil.Process(port.pid).cmdline()[0].startswith("ray::IDLE")
    except (psutil.Error, IndexError):
        return False


@pytest.fixture(scope="module")
def guarded(test_homes: Path) -> Iterator[Guarded]:
    """A cluster with a slice of four hosts, on which a gang runs."""
    with pytest.MonkeyPatch.context() as patch:
        home = Path(tempfile.mkdtemp(prefix="krt", dir=test_homes))
        patch.setenv("KINETIC_HOME", str(home))
        try:
            started = home / "started"
            started.mkdir()
            programs.hold.run_async(str(started))
            ranks = frozenset(clusters.numbers_in(started, programs.RANKS))
            runtime = runtime_of(home)
            yield Guarded(home, runtime, ranks, tuple(probes.ports(runtime)))
        finally:
            backend.stop(home, force=True)


def test_everything_listens_on_loopback_only(guarded: Guarded) -> None:
    names = {port.process[:14] for port in guarded.ports}  # the kernel knows 15 letters of a name
    assert names >= {"gcs_server", "raylet", "ray::Dashboard", "ray::RuntimeEn", "ray::HostAgent"}
    assert len(guarded.ports) >= 25  # GCS, dashboard, agents, two for each of five raylets, workers, driver, gang
    assert {port.pid for port in guarded.ports} >= guarded.ranks  # gloo's, and rank 0's coordinator
    assert [port for port in guarded.ports if not port.on_loopback] == []


def test_every_port_is_known_for_what_it_speaks(guarded: Guarded) -> None:
    """The tests below ask those that speak HTTP and those that speak gRPC; here it is held that there are no others."""
    web = [port for port in guarded.rays if probes.speaks_http(port)]
    assert len(web) == 3  # dashboard, its agent, the runtime-env agent; no exporter of metrics, no Ray Client
    for port in guarded.rays:
        if port not in web:
            with Caller(port):
                pass


@pytest.mark.parametrize("stranger", _STRANGERS)
def test_http_without_the_token_is_refused_and_nothing_runs(guarded: Guarded, tmp_path: Path, stranger: str) -> None:
    canary = tmp_path / "taken-over"
    before = clusters.api_of(guarded.home)._ask("GET", "")
    web = [port for port in guarded.rays if probes.speaks_http(port)]
    for port in web:
        for request in probes.http_requests(f"touch {canary}"):
            status, body = probes.ask(port, request, _STRANGERS[stranger])
            assert status in _REFUSED, (port, request)
            assert b"job-" not in body
    assert clusters.api_of(guarded.home)._ask("GET", "") == before
    assert not canary.exists()


def test_http_with_the_token_is_answered(guarded: Guarded, tmp_path: Path) -> None:
    """What is refused above works for who may, and would leave the trace that is looked for."""
    canary = tmp_path / "mine"
    owner = {"Authorization": f"Bearer {guarded.runtime.token.read_text()}"}
    for port in guarded.rays:
        if probes.speaks_http(port):
            assert probes.ask(port, ("GET", "/api/no-such-thing", None), owner)[0] not in _REFUSED
    assert clusters.run_job(guarded.home, f"touch {canary}") == "SUCCEEDED"
    assert canary.exists()


def test_grpc_without_the_token_is_refused(guarded: Guarded) -> None:
    methods = probes.rpc_methods()
    known = {method.split("/")[1] for method in methods}
    before = clusters.api_of(guarded.home)._ask("GET", "")
    for port in guarded.rays:
        if probes.speaks_http(port):
            continue
        for token in (None, "0" * 64):
            with Caller(port, token) as stranger:
                codes = stranger.codes(methods)
                named = stranger.services()
            refused = {method.split("/")[1] for method, code in codes.items() if code == "UNAUTHENTICATED"}
            assert set(codes.values()) == {"UNAUTHENTICATED", "UNIMPLEMENTED"}, (port, codes)
            if named is not None:  # what is there is what was tried, and what was tried is refused
                private = {service for service in named if not probes.is_public(service)}
                assert private <= known
                assert refused == private
    assert clusters.api_of(guarded.home)._ask("GET", "") == before
    assert {process.pid for process in probes.below(guarded.runtime)} >= guarded.ranks


def test_grpc_with_the_token_is_answered(guarded: Guarded) -> None:
    """Of every kind of process a method that does no harm."""
    methods = [
        "/ray.rpc.JobInfoGcsService/GetAllJobInfo",
        "/ray.rpc.NodeManagerService/GetSystemConfig",
        "/ray.rpc.ObjectManagerService/Pull",
        "/ray.rpc.CoreWorkerService/NumPendingTasks",
        "/ray.rpc.ReporterService/HealthCheck",
    ]
    token = guarded.runtime.token.read_text()
    answered = set()
    for port in guarded.rays:
        if not probes.speaks_http(port):
            with Caller(port, token) as owner:
                codes = owner.codes(methods)
            assert set(codes.values()) == {"OK", "UNIMPLEMENTED"}, (port, codes)
            answered |= {method for method, code in codes.items() if code == "OK"}
    assert answered == set(methods)


def test_unix_sockets_lie_where_only_this_user_can_go(guarded: Guarded) -> None:
    names = probes.unix_sockets(guarded.runtime)
    assert {str(guarded.runtime.sock), str(guarded.runtime.nursery)} <= names
    assert [name for name in names if not Path(name).is_relative_to(guarded.runtime.root)] == []
    found = guarded.runtime.root.stat()
    assert (stat.S_IMODE(found.st_mode), found.st_uid) == (0o700, os.getuid())


@pytest.mark.parametrize("name", ["sock", "nursery"])
def test_our_sockets_answer_no_other_user(guarded: Guarded, test_homes: Path, name: str) -> None:
    """Here another user gets as far as the socket, which the folder's mode would not allow."""
    if os.getuid() != 0:
        pytest.skip("only root can be another user for a moment")
    path = guarded.runtime.root / name
    elsewhere = Path(tempfile.mkdtemp(prefix="krt"))  # the homes' folder is this user's alone
    mode = stat.S_IMODE(path.stat().st_mode)
    try:
        elsewhere.chmod(0o755)
        try:
            (elsewhere / name).hardlink_to(path)
        except OSError as exc:
            pytest.skip(f"no second name for a socket here: {exc}")
        path.chmod(0o777)
        told = {user: _call_as(user, elsewhere / name) for user in (0, _NOBODY)}
    finally:
        path.chmod(mode)
        shutil.rmtree(elsewhere)
    assert told[_NOBODY] == "connected, no answer"
    assert told[0] == ("answered" if name == "sock" else "connected, no answer")  # the nursery answers elsewhere
    assert f"belongs to user {_NOBODY}" in "".join(
        log.read_text(errors="replace") for log in (guarded.runtime.log, guarded.runtime.node_logs / "nursery.log")
    )


def _call_as(user: int, path: Path) -> str:
    script = (
        "import os, socket, sys; os.setgroups([]); os.setuid(int(sys.argv[1]))\n"
        "s = socket.socket(socket.AF_UNIX); s.settimeout(20); s.connect(sys.argv[2])\n"
        'try: s.sendall(b\'{"op": "hello"}\\n\'); answer = s.recv(1000)\n'
        "except ConnectionError: answer = b''\n"
        "print('answered' if answer else 'connected, no answer')"
    )
    done = subprocess.run([sys.executable, "-c", script, str(user), str(path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.slow
def test_a_gang_stays_on_loopback_where_the_machines_name_leads_elsewhere(own_cluster: Path) -> None:
    """jax's coordinator and gloo ask nobody for a token, so that nobody else reaches them is all there is."""
    address = "10.86.7.5"
    words = [*_own_namespaces(), sys.executable, "-m", "tests.integration.local.outward", str(own_cluster), address]
    root = Path(__file__).parents[3]
    done = subprocess.run(words, cwd=root, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["control"] == address  # what would have listened there
    ports = [Port(**port) for port in told["ports"]]
    assert {port.pid for port in ports} >= set(told["ranks"])
    assert len(told["ranks"]) == programs.RANKS
    assert [port for port in ports if not port.on_loopback] == []


def _own_namespaces() -> list[str]:
    """The command that gives a program a network, a name and files of its own."""
    if shutil.which("unshare") is None:
        pytest.skip("no `unshare` here, so no network of the test's own")
    said = ""
    for user in ([], ["--user", "--map-root-user"]):
        command = ["unshare", *user, *outward.NAMESPACES]
        mounting = [*command, "mount", "--bind", "/etc/hosts", "/etc/hosts"]
        trial = subprocess.run(mounting, capture_output=True, text=True)
        if trial.returncode == 0:
            return command
        said = trial.stderr.strip()
    pytest.skip(f"this machine allows no namespaces: {said}")


def test_the_search_for_ports_finds_what_is_open() -> None:
    """An open port, and a port off loopback, are told apart from the others."""
    with contextlib.ExitStack() as stack:
        for family, address, on_loopback in (
            (socket.AF_INET, "127.0.0.1", True),
            (socket.AF_INET, "0.0.0.0", False),  # what must be found
            (socket.AF_INET6, "::1", True),
            (socket.AF_INET6, "::", False),
        ):
            server = stack.enter_context(socket.socket(family, socket.SOCK_STREAM))
            try:
                server.bind((address, 0))
            except OSError:  # no IPv6 here
                continue
            server.listen()
            port = Port(os.getpid(), "test", *server.getsockname()[:2])
            assert port.on_loopback is on_loopback
    assert Port(1, "x", "::ffff:127.0.0.1", 1).on_loopback
    assert not Port(1, "x", "::ffff:10.0.0.1", 1).on_loopback

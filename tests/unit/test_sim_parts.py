"""The test plane's parts that need no cluster: builds, components, keys, kubeconfigs, the relay, the shim."""

import re
import shutil
import socket
import ssl
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from cluster.sim import build, images, kuberay
from cluster.sim.api import Api, write_kubeconfig
from cluster.sim.build import KUBERAY_PART, PLANE, Part
from cluster.sim.certificates import make_keys
from cluster.sim.compiling import FetchError, find_go
from cluster.sim.components import USERS, components_of, read_components, write_components
from cluster.sim.folder import Folder, Process, write_secret
from cluster.sim.programs import CONTROL_PLANE, Programs
from cluster.sim.spec import Image, PlaneSpec
from tests.waiting import wait_until

SIM = Path(build.__file__).parent
PROGRAMS = Programs(Path("/plane"), Path("/kuberay"), Path("/gcs"), "v1.36.3")


@pytest.mark.parametrize("part", [PLANE, KUBERAY_PART], ids=lambda part: part.name)
def test_modules_are_pinned_with_their_sums(part: Part) -> None:
    pinned = part.source.joinpath("go.mod").read_text()
    sums = part.source.joinpath("go.sum").read_text()
    for module, version in re.findall(r"^\t(\S+) (v\S+)", pinned, re.MULTILINE):
        assert f"{module} {version} h1:" in sums or f"{module} {version}/go.mod h1:" in sums
    assert "replace ../" not in pinned


def test_versions_are_read_from_the_pinned_modules() -> None:
    assert build.kubernetes_version().startswith("v1.")
    major, minor = map(int, build.kuberay_version().removeprefix("v").split(".")[:2])
    assert (major, minor) >= (1, 6)


def test_a_build_is_another_one_when_anything_of_it_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(build.SOURCES, tmp_path / "go")
    keys = [PLANE.key()]
    for name in ("go.mod", "go.sum", "main.go"):
        changed = Part(str(tmp_path / "go" / "plane"), "copy")
        with changed.source.joinpath(name).open("a") as file:
            file.write("\n")
        keys.append(changed.key())
    assert len(set(keys)) == 4
    assert PLANE.key() == keys[0]


def test_what_is_built_is_not_built_again(tmp_path: Path) -> None:
    assert not build.is_built(tmp_path)
    for part in (PLANE, KUBERAY_PART):
        part.place(tmp_path).mkdir()
    assert build.is_built(tmp_path)
    told: list[str] = []
    programs = build.build_programs(tmp_path, told.append)
    assert programs.etcd.parent == PLANE.place(tmp_path)
    assert told == []


def test_what_a_killed_build_left_is_removed_by_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left = tmp_path / "new-left"
    left.mkdir()
    if find_go() is None:
        pytest.skip("without a Go no build begins")
    monkeypatch.setenv("GOPROXY", "off")
    with pytest.raises(FetchError):
        build.build_programs(tmp_path, lambda line: None)
    assert not left.exists()
    assert not build.is_built(tmp_path)


def test_components_come_back_as_they_were_written(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.keys.mkdir()
    components = components_of(PlaneSpec(memory_limits=True), folder, make_keys(folder.keys), PROGRAMS)
    write_components(folder.components, components)
    assert read_components(folder.components) == {component.name: component for component in components}
    assert {*CONTROL_PLANE, "gcs", "kubelet", "operator"} == {component.name for component in components}


def test_components_that_need_the_api_server_do_not_start_before_it(tmp_path: Path) -> None:
    tmp_path.joinpath("keys").mkdir()
    components = components_of(PlaneSpec(), Folder(tmp_path), make_keys(tmp_path / "keys"), PROGRAMS)
    assert {component.name for component in components if component.at_once} == {"etcd", "kube-apiserver", "gcs"}


def test_no_token_is_an_argument(tmp_path: Path) -> None:
    """Arguments are seen by every user of the machine."""
    folder = Folder(tmp_path)
    folder.keys.mkdir()
    for user in USERS:
        write_secret(folder.token(user), f"secret-of-{user}")
    for component in components_of(PlaneSpec(), folder, make_keys(folder.keys), PROGRAMS):
        assert "secret-of-" not in " ".join(component.argv)


def test_secrets_can_be_read_by_their_owner_only(tmp_path: Path) -> None:
    keys = make_keys(tmp_path)
    write_secret(tmp_path / "token", "secret")
    write_kubeconfig(tmp_path / "config", "https://127.0.0.1:1", "secret", keys.ca)
    for path in (keys.server_key, keys.service_accounts, tmp_path / "token", tmp_path / "config"):
        assert path.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("name", ["127.0.0.1", "10.96.0.1", "kubernetes.default.svc", "localhost"])
def test_the_server_is_trusted_under_every_name_that_it_has(name: str, tmp_path: Path) -> None:
    keys = make_keys(tmp_path)
    _shake_hands(name, keys.ca, keys.server_cert, keys.server_key)


def test_the_server_is_not_trusted_by_another_plane(tmp_path: Path) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    ours.mkdir()
    theirs.mkdir()
    mine, other = make_keys(ours), make_keys(theirs)
    with pytest.raises(ssl.SSLCertVerificationError):
        _shake_hands("127.0.0.1", other.ca, mine.server_cert, mine.server_key)


def _shake_hands(name: str, ca: Path, certificate: Path, key: Path) -> None:
    """A handshake in memory, as a client that looks for `name`."""
    server_side = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_side.load_cert_chain(certificate, key)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = server_side.wrap_bio(to_server, to_client, server_side=True)
    client = ssl.create_default_context(cafile=str(ca)).wrap_bio(to_client, to_server, server_hostname=name)
    waiting = [client, server]
    for _ in range(10):
        for side in list(waiting):
            try:
                side.do_handshake()
                waiting.remove(side)
            except ssl.SSLWantReadError:
                continue
    assert waiting == []


def test_a_kubeconfig_of_ours_names_its_server_and_token(tmp_path: Path) -> None:
    keys = make_keys(tmp_path)
    write_kubeconfig(tmp_path / "config", "https://127.0.0.1:6443", "secret", keys.ca)
    api = Api.of_kubeconfig(tmp_path / "config")
    assert (api.server, api.token) == ("https://127.0.0.1:6443", "secret")
    assert "secret" not in repr(api)


def test_a_process_is_known_by_its_id_and_its_start() -> None:
    child = subprocess.Popen(["sleep", "100"])
    try:
        process = Process.of(child.pid)
        assert process.lives()
        assert not Process(child.pid, process.started - 1).lives()
    finally:
        child.kill()
        child.wait()
    assert not process.lives()
    with pytest.raises(ProcessLookupError):
        Process.of(child.pid)


def test_images_are_looked_up_in_the_order_given() -> None:
    table = images.entries((Image("a:*", "/venv/bin", (("A", "1"),)), Image("*")))
    assert list(table) == ["a:*", "*"]
    assert table["a:*"]["env"]["PATH"].split(":")[1] == "/venv/bin"
    assert table["a:*"]["env"]["A"] == "1"
    assert table["*"] == {"override": True}


def test_the_operators_roles_move_into_its_namespace() -> None:
    binding = {
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "b", "namespace": "elsewhere"},
        "subjects": [{"kind": "ServiceAccount", "name": "a", "namespace": "elsewhere"}],
    }
    [(path, moved)] = kuberay.roles_of([binding])
    assert path.endswith("/clusterrolebindings")
    assert "namespace" not in moved["metadata"]
    assert moved["subjects"][0]["namespace"] == "ray-system"
    assert binding["metadata"] == {"name": "b", "namespace": "elsewhere"}


def test_the_relay_carries_both_ways_and_passes_on_who_hangs_up() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as inner,
        socket.create_server(("127.0.0.1", 0)) as outer,
    ):
        port = inner.getsockname()[1]
        route = f"{outer.fileno()}=127.0.0.1:{port}"
        relay = subprocess.Popen([sys.executable, "-m", "cluster.sim.relay", route], pass_fds=[outer.fileno()])
        try:
            _talk(outer.getsockname(), inner)
        finally:
            relay.kill()
            relay.wait()


def _talk(address: tuple[str, int], inner: socket.socket) -> None:
    heard: list[bytes] = []

    def serve() -> None:
        connection, _ = inner.accept()
        with connection, connection.makefile("rb") as stream:
            heard.append(stream.read())
            connection.sendall(b"answer")

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    with socket.create_connection(address, 60) as client:
        client.sendall(b"x" * 200_000)
        client.shutdown(socket.SHUT_WR)
        with client.makefile("rb") as stream:
            assert stream.read() == b"answer"
    thread.join(60)
    assert heard == [b"x" * 200_000]


def test_the_relay_ends_a_connection_that_nobody_answers() -> None:
    with socket.create_server(("127.0.0.1", 0)) as inner:
        dead = inner.getsockname()[1]
    with socket.create_server(("127.0.0.1", 0)) as outer:
        route = f"{outer.fileno()}=127.0.0.1:{dead}"
        relay = subprocess.Popen([sys.executable, "-m", "cluster.sim.relay", route], pass_fds=[outer.fileno()])
        try:
            with socket.create_connection(outer.getsockname(), 60) as client:
                assert client.recv(1) == b""
        finally:
            relay.kill()
            relay.wait()


def test_the_shim_answers_health_checks_and_passes_on_the_rest(tmp_path: Path) -> None:
    ray = tmp_path / "ray"
    ray.write_text('#!/bin/sh\necho real "$@"\n')
    ray.chmod(0o755)
    env = {"PATH": f"{SIM / 'shims'}:{tmp_path}:/usr/bin:/bin"}

    def call(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(["ray", *words], env=env, capture_output=True, text=True)

    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        assert wait_until(lambda: call("health-check", "--address", address).returncode == 0)
    assert call("health-check", "--address", address).returncode != 0
    assert call("start", "--head").stdout == "real start --head\n"

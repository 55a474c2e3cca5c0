"""How a cluster begins and ends, beside others, and when it is killed."""

import contextlib
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from kinetic_ray import wire
from kinetic_ray.backends.local import backend, client, guard
from kinetic_ray.backends.local.paths import Runtime, runtime_of
from kinetic_ray.errors import ConfigError
from tests import leaks
from tests.integration.local import clusters, probes
from tests.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(240)]


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        return probe.connect_ex(("127.0.0.1", port)) != 0


def _assert_nothing_left(runtime: Runtime, pids: list[int], ports: list[int]) -> None:
    assert clusters.processes(runtime) == []
    assert not guard.parents().keys() & set(pids)
    assert [port for port in ports if not _is_free(port)] == []
    assert not runtime.root.exists()


def test_start_a_job_stop_and_nothing_is_left(own_cluster: Path) -> None:
    shared = leaks.shared_memory()
    runtime = clusters.start(own_cluster)
    assert len(clusters.slices(runtime, "tpu-v6e-8")["slices"]) == 1
    assert clusters.run_job(own_cluster, "true") == "SUCCEEDED"
    assert clusters.run_job(own_cluster, "false", "raw-2") == "FAILED"
    pids = [process.pid for process in clusters.processes(runtime)]
    ports = [port.number for port in probes.ports(runtime)]
    assert len(pids) > 10
    assert len(ports) > 5
    assert backend.stop(own_cluster)
    _assert_nothing_left(runtime, pids, ports)
    assert leaks.abandoned_shared_memory(shared) == []
    assert backend.status(own_cluster) is None
    assert not backend.stop(own_cluster)


def test_a_supervisor_that_is_killed_leaves_nothing_and_the_next_one_starts(own_cluster: Path) -> None:
    runtime = clusters.start(own_cluster)
    clusters.slices(runtime, "tpu-v6e-8")
    api = clusters.api_of(own_cluster)
    api.submit("sleep 600", "raw-1")
    wait_until(lambda: (api.job("raw-1") or {})["status"] == "RUNNING", 60, "the job to run")
    pids = [process.pid for process in clusters.processes(runtime)]
    status = backend.status(own_cluster)
    assert status is not None
    os.kill(status["pid"], signal.SIGKILL)
    wait_until(lambda: not clusters.processes(runtime), 15, "everything to be gone")
    assert not guard.parents().keys() & set(pids)
    assert runtime.sock.exists()  # stale, and no obstacle:
    assert backend.status(own_cluster) is None
    again = clusters.start(own_cluster)
    assert again == runtime
    assert clusters.run_job(own_cluster, "true") == "SUCCEEDED"


def test_stop_removes_what_a_killed_supervisor_has_left(own_cluster: Path) -> None:
    runtime = client.ensure(own_cluster)
    status = backend.status(own_cluster)
    assert status is not None
    os.kill(status["pid"], signal.SIGKILL)
    wait_until(lambda: status["pid"] not in guard.parents(), what="the supervisor to be gone")
    assert not backend.stop(own_cluster)
    assert clusters.processes(runtime) == []
    assert not runtime.root.exists()


def test_a_supervisor_that_hangs_is_named_and_can_be_forced_to_end(own_cluster: Path) -> None:
    runtime = clusters.start(own_cluster)
    pids = [process.pid for process in clusters.processes(runtime)]
    ports = [port.number for port in probes.ports(runtime)]
    (supervisor,) = (pid for pid in pids if pid == json.loads(runtime.info.read_text())["pid"])
    os.kill(supervisor, signal.SIGSTOP)
    try:
        named = rf"process {supervisor}, KINETIC_HOME={own_cluster}\).*kinetic local stop --force"
        with pytest.raises(ConfigError, match=named):
            client.ask(own_cluster, {"op": "status"}, 0.2)
        with pytest.raises(ConfigError, match=named):
            client.ensure(own_cluster)
        assert backend.stop(own_cluster, force=True)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(supervisor, signal.SIGCONT)
    # Those that ended by themselves as they lost the supervisor were nobody's to wait for.
    wait_until(lambda: not guard.parents().keys() & set(pids), 15, "what had begun to end to be gone")
    _assert_nothing_left(runtime, pids, ports)


def test_a_record_that_names_another_process_kills_nobody(kinetic_home: Path) -> None:
    """Numbers of processes are given again; here a process of this test's own has the one of the record."""
    runtime = runtime_of(kinetic_home)
    runtime.prepare()
    with (
        subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other,
        socket.socket(socket.AF_UNIX) as server,
    ):
        server.bind(str(runtime.sock))
        server.listen()
        runtime.info.write_text(json.dumps({"pid": other.pid, "home": str(kinetic_home)}))
        with pytest.raises(ConfigError, match="fuser"):
            client.stop(kinetic_home, force=True)
        assert other.poll() is None
    shutil.rmtree(runtime.root)


def test_a_head_that_dies_takes_its_cluster_with_it(own_cluster: Path) -> None:
    runtime = clusters.start(own_cluster)
    clusters.slices(runtime, "tpu-v6e-8")
    (gcs,) = (process for process in clusters.processes(runtime) if process.name() == "gcs_server")
    gcs.kill()
    wait_until(lambda: not runtime.root.exists(), 30, "the cluster to end")
    assert clusters.processes(runtime) == []


def test_clients_that_start_it_at_once_get_one_cluster(own_cluster: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from kinetic_ray.backends.local import backend;"
        "print(backend.start(Path(sys.argv[1]))['pid'])"
    )
    words = [sys.executable, "-c", script, str(own_cluster)]
    racing = [subprocess.Popen(words, stdout=subprocess.PIPE, text=True) for _ in range(5)]
    pids = {one.communicate(timeout=120)[0].strip() for one in racing}
    assert len(pids) == 1
    assert pids != {""}
    runtime = runtime_of(own_cluster)
    named = [p for p in clusters.processes(runtime) if "kinetic_ray.backends.local.supervisor" in p.cmdline()]
    wait_until(lambda: [str(p.pid) for p in named if p.is_running()] == list(pids), 30, "the other supervisors to end")


def test_an_idle_cluster_stops_itself(own_cluster: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KINETIC_LOCAL_IDLE_S", "1.5")
    runtime = client.ensure(own_cluster)
    assert clusters.processes(runtime)
    wait_until(lambda: not runtime.root.exists(), 60, "the idle cluster to stop")
    assert clusters.processes(runtime) == []


def test_two_homes_have_two_clusters(own_cluster: Path, second_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = clusters.start(own_cluster)
    monkeypatch.setenv("KINETIC_HOME", str(second_home))
    second = clusters.start(second_home)
    assert first.root != second.root
    nodes = {home: clusters.ask_ray(home, "[n['NodeID'] for n in ray.nodes()]") for home in (own_cluster, second_home)}
    assert [len(found) for found in nodes.values()] == [1, 1]
    assert nodes[own_cluster] != nodes[second_home]
    assert clusters.run_job(own_cluster, "true") == "SUCCEEDED"
    assert clusters.run_job(second_home, "true") == "SUCCEEDED"
    assert not {port.number for port in probes.ports(first)} & {port.number for port in probes.ports(second)}
    backend.stop(second_home)
    assert clusters.run_job(own_cluster, "true", "raw-2") == "SUCCEEDED"


@pytest.fixture
def foreign(tmp_path_factory: pytest.TempPathFactory, test_homes: Path) -> Iterator[tuple[str, Path]]:
    """Somebody else's Ray cluster: its address and its folder. Stopped by its own pid."""
    folder = test_homes / "foreign"
    words = ["--head", "--block", "--port=0", f"--temp-dir={folder}", "--include-dashboard=false", "--num-cpus=1"]
    words += ["--node-ip-address=127.0.0.1", "--dashboard-agent-listen-port=0", "--disable-usage-stats"]
    command = [sys.executable, "-m", "ray.scripts.scripts", "start", *words]
    with (test_homes / "foreign.log").open("wb") as log:
        ray = subprocess.Popen(command, stdout=log, stderr=log, env=_plain(RAY_TMPDIR=str(folder)))
    address = wait_until(lambda: _read(folder / "ray_current_cluster"), 90, "the foreign cluster")
    yield address, folder
    ray.terminate()
    ray.wait(60)


def _plain(**more: str) -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    return {**kept, **more, "RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S": "0", "RAY_AUTH_MODE": "disabled"}


def _read(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def _nodes_of(foreign: tuple[str, Path]) -> list[str]:
    script = (
        "import json, ray, sys; ray.init(address=sys.argv[1], logging_level='error');"
        "print(json.dumps([n['NodeID'] for n in ray.nodes()]))"
    )
    words = [sys.executable, "-c", script, foreign[0]]
    done = subprocess.run(words, env=_plain(RAY_TMPDIR=str(foreign[1])), capture_output=True, text=True, timeout=90)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.splitlines()[-1:]


@pytest.mark.slow
def test_a_foreign_cluster_is_neither_joined_nor_disturbed(
    own_cluster: Path, foreign: tuple[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    address, folder = foreign
    before = _nodes_of(foreign)
    for name, value in {"RAY_ADDRESS": address, "RAY_TMPDIR": str(folder), "RAY_AUTH_MODE": "disabled"}.items():
        monkeypatch.setenv(name, value)
    runtime = clusters.start(own_cluster)
    clusters.slices(runtime, "tpu-v6e-8")
    status = backend.status(own_cluster)
    assert status is not None
    assert status["ray_address"] != address
    # A driver whose address Ray itself works out, with two clusters to choose from.
    script = (
        "import os; assert os.environ['RAY_ADDRESS'] == os.environ['KINETIC_RAY_ADDRESS'], os.environ['RAY_ADDRESS']"
    )
    assert clusters.run_job(own_cluster, f'{sys.executable} -c "{script}"') == "SUCCEEDED"
    assert len(clusters.ask_ray(own_cluster, "[n['NodeID'] for n in ray.nodes()]")) == 2
    assert _nodes_of(foreign) == before
    backend.stop(own_cluster)
    assert _nodes_of(foreign) == before
    assert _read(folder / "ray_current_cluster") == address


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_many_lives_leave_nothing(own_cluster: Path) -> None:
    """Stopped at any moment: before the head is up, with a slice half up, with a slice up."""
    dice = random.Random(7)
    for _ in range(12):
        runtime = client.ensure(own_cluster)
        stage = dice.choice(["socket", "head", "half a slice", "slice"])
        if stage != "socket":
            backend.environment(own_cluster)
        if stage == "slice":
            clusters.slices(runtime, "tpu-v6e-8")
        with contextlib.ExitStack() as open_lines:
            if stage == "half a slice":
                line = open_lines.enter_context(wire.connect(runtime.sock))
                line.send({"op": "slices", "accelerator": "tpu-v6e-16", "count": 1})
            threading.Event().wait(dice.uniform(0, 1.5) if stage in ("socket", "half a slice") else 0)
            pids = [process.pid for process in clusters.processes(runtime)]
            assert backend.stop(own_cluster)
        assert not guard.parents().keys() & set(pids), stage
        assert clusters.processes(runtime) == [], stage
        assert not runtime.root.exists(), stage


def test_a_folder_that_is_not_ours_is_not_trusted(kinetic_home: Path) -> None:
    runtime = runtime_of(kinetic_home)
    runtime.root.mkdir(mode=0o755)
    try:
        with pytest.raises(ConfigError, match="only this user can enter"):
            client.ensure(kinetic_home)
    finally:
        runtime.root.rmdir()
    runtime.root.symlink_to(kinetic_home)
    try:
        with pytest.raises(ConfigError, match="only this user can enter"):
            client.ensure(kinetic_home)
    finally:
        runtime.root.unlink()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("KINETIC_LOCAL_IDLE_S", "soon"),
        ("KINETIC_LOCAL_IDLE_S", "0"),
        ("KINETIC_LOCAL_SLICES", "two"),
        ("KINETIC_LOCAL_MEMORY_MB", "8g"),
    ],
)
def test_bad_settings_are_refused_before_anything_starts(
    kinetic_home: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match=name):
        client.ensure(kinetic_home)
    assert not runtime_of(kinetic_home).root.exists()


def test_a_supervisor_that_can_not_start_says_why(own_cluster: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings are checked by the client, so here the supervisor finds them broken by somebody else on the way."""
    broken = own_cluster / "site-packages"  # of the shell's PYTHONPATH only folders of packages reach the cluster
    broken.mkdir()
    text = """
import os, sys
if "kinetic_ray.backends.local.supervisor" in sys.orig_argv:
    os.environ["KINETIC_LOCAL_IDLE_S"] = "x"
"""
    (broken / "sitecustomize.py").write_text(text)
    monkeypatch.setenv("PYTHONPATH", str(broken))
    with pytest.raises(ConfigError, match=r"(?s)did not start.*KINETIC_LOCAL_IDLE_S='x'"):
        client.ensure(own_cluster)
    assert clusters.processes(runtime_of(own_cluster)) == []
    backend.stop(own_cluster)
    assert not runtime_of(own_cluster).root.exists()

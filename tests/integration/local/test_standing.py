"""A cluster as it stands: what its hosts carry, who may speak to it, where it listens."""

import json
import stat
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from kinetic_ray import wire
from kinetic_ray.backends.base import Liveness, Need
from kinetic_ray.backends.local import backend
from kinetic_ray.backends.local.backend import LocalBackend
from kinetic_ray.backends.local.paths import runtime_of
from kinetic_ray.errors import ConfigError, KineticError, UsageError
from tests.integration.local import clusters

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]


def test_hosts_carry_what_hosts_of_gke_carry(standing: Path) -> None:
    nodes = clusters.ask_ray(standing, "ray.nodes()")
    hosts = sorted(
        (node for node in nodes if node["Resources"].get("TPU")),
        key=lambda node: node["Labels"]["ray.io/tpu-worker-id"],
    )
    assert len(nodes) == 5
    for worker_id, host in enumerate(hosts):
        labels, resources = host["Labels"], host["Resources"]
        assert labels["ray.io/tpu-slice-name"] == "tpu-v6e-16-0"
        assert labels["ray.io/tpu-worker-id"] == str(worker_id)
        assert labels["ray.io/tpu-topology"] == "4x4"
        assert labels["ray.io/tpu-pod-type"] == "v6e-16"
        assert labels["ray.io/accelerator-type"] == "TPU-V6E"
        assert resources["TPU"] == 4
        assert resources["tpu-v6e-16-0"] == 1
        assert "CPU" not in resources
        assert resources.get("TPU-v6e-16-head", 0) == (worker_id == 0)
    status = backend.status(standing)
    assert status is not None
    told = [host["node_id"] for host in status["slices"][0]["hosts"]]
    assert told == [host["NodeID"] for host in hosts]
    assert [host["state"] for host in status["slices"][0]["hosts"]] == ["up"] * 4


def test_processes_on_a_host_see_its_environment(standing: Path) -> None:
    expression = (
        "ray.get([ray.remote(lambda: {k: v for k, v in os.environ.items() if k.startswith(('TPU_', 'KINETIC_'))})"
        ".options(num_cpus=0, resources={'TPU': 4}, label_selector={'ray.io/tpu-worker-id': str(i)}).remote()"
        " for i in (1, 3)])"
    )
    for worker_id, seen in zip((1, 3), clusters.ask_ray(standing, expression), strict=True):
        assert seen["KINETIC_SUPERVISOR"] == str(runtime_of(standing).sock)
        assert seen["KINETIC_SIMULATED"] == "1"
        assert seen["KINETIC_HOME"] == str(standing)
        assert (seen["TPU_NAME"], seen["TPU_WORKER_ID"]) == ("tpu-v6e-16-0", str(worker_id))
        assert (seen["TPU_ACCELERATOR_TYPE"], seen["TPU_TOPOLOGY"]) == ("v6e-16", "4x4")


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux says whom it ends first")
def test_what_serves_jobs_is_not_the_first_to_go_when_memory_runs_out(standing: Path) -> None:
    path = "/proc/self/oom_score_adj"
    expression = f"int(ray.get(ray.remote(lambda: open({path!r}).read()).options(num_cpus=0).remote()))"
    assert clusters.ask_ray(standing, expression) == int(Path(path).read_text())


def test_a_driver_attaches_to_the_head_though_all_hosts_share_an_address(standing: Path) -> None:
    status = backend.status(standing)
    assert status is not None
    attached = clusters.ask_ray(standing, "ray.get_runtime_context().get_node_id()")
    head = clusters.ask_ray(
        standing, "[n['NodeID'] for n in ray.nodes() if 'node:__internal_head__' in n['Resources']]"
    )
    assert [attached] == head


def test_a_runtime_env_works_on_a_host(standing: Path) -> None:
    """Hosts have no runtime-env agent of their own; the head's serves them."""
    expression = (
        "ray.get(ray.remote(lambda: os.environ['GREETING']).options(num_cpus=0, resources={'TPU': 4},"
        " runtime_env={'env_vars': {'GREETING': 'hello'}}).remote())"
    )
    assert clusters.ask_ray(standing, expression) == "hello"


@pytest.mark.slow
def test_a_ray_client_without_the_token_is_refused(standing: Path) -> None:
    environment = {name: v for name, v in (backend.environment(standing) or {}).items() if "TOKEN" not in name}
    script = "import os, ray; ray.init(address=os.environ['RAY_ADDRESS'], logging_level='error')"
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={"PATH": "/usr/bin:/bin", "HOME": str(standing), **environment, "RAY_AUTH_TOKEN": "wrong" * 8},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode != 0
    assert "uthentication" in done.stderr


def test_the_token_is_a_private_file_and_nothing_else_shows_it(standing: Path) -> None:
    runtime = runtime_of(standing)
    token = runtime.token.read_text()
    assert len(token) == 64
    assert stat.S_IMODE(runtime.token.stat().st_mode) == 0o600
    assert stat.S_IMODE(runtime.root.stat().st_mode) == 0o700
    for process in clusters.processes(runtime):
        try:
            shown = " ".join(process.cmdline()) + json.dumps(process.environ())
        except psutil.NoSuchProcess:
            continue
        assert token not in shown
    holding = [path for path in runtime.root.rglob("*") if path.is_file() and token.encode() in path.read_bytes()]
    assert holding == [runtime.token]
    assert token not in json.dumps(backend.status(standing)) + json.dumps(backend.environment(standing))


def test_the_folder_and_the_home_of_the_user_are_left_alone(standing: Path) -> None:
    """Nothing of ours lies in Ray's usual folder, which other clusters share."""
    runtime = runtime_of(standing)
    for process in clusters.processes(runtime):
        try:
            opened = [file.path for file in process.open_files()]
        except psutil.NoSuchProcess:
            continue
        assert [path for path in opened if path.startswith("/tmp/ray")] == []


@pytest.mark.parametrize(
    "request_",
    [
        {"op": "nonsense"},
        {},
        {"op": "submit"},
        {"op": "slices", "accelerator": "v99", "count": 1},
        {"op": "leases", "names": 3},
    ],
)
def test_bad_requests_are_answered_and_change_nothing(standing: Path, request_: dict[str, object]) -> None:
    with pytest.raises(KineticError):
        wire.call(runtime_of(standing).sock, request_)
    assert wire.call(runtime_of(standing).sock, {"op": "hello"})["stopping"] is False


def test_what_never_fits_is_refused_at_once(standing: Path) -> None:
    local = LocalBackend(standing)
    local.check(Need("tpu-v6e-16", num_slices=4))
    with pytest.raises(UsageError, match="20 hosts"):
        local.check(Need("tpu-v6e-16", num_slices=5))
    with pytest.raises(UsageError, match="no GPUs"):
        local.check(Need("gpu-l4"))
    with pytest.raises(UsageError, match="CPUs at once never fit"):
        local.check(Need("cpu", hosts=1000))
    with pytest.raises(KineticError, match="20 hosts"):
        clusters.slices(runtime_of(standing), "tpu-v6e-16", count=5)


def test_another_pool_on_a_live_cluster_is_refused(standing: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KINETIC_LOCAL_SLICES", '{"tpu-v6e-16": 1}')
    with pytest.raises(ConfigError, match="kinetic local stop"):
        backend.start(standing)
    with pytest.raises(ConfigError, match="kinetic local stop"):
        LocalBackend(standing).check(Need("cpu"))  # that is, before a call has created anything


def test_a_job_that_never_came_is_unknown(standing: Path) -> None:
    local = LocalBackend(standing)
    job_id = "job-0000000000e008000000000000"
    assert local.observe("file:///nowhere", job_id).state is Liveness.UNKNOWN
    with pytest.raises(KineticError):
        local.submit(str(standing / "no store"), job_id)
    assert local.list() == {}

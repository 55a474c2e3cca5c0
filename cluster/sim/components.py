"""The processes of a plane and how each is started."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from cluster.sim import network
from cluster.sim.certificates import Keys
from cluster.sim.folder import Folder
from cluster.sim.nodes import PLAYED
from cluster.sim.programs import Programs
from cluster.sim.spec import PlaneSpec

#: Inside, /run is memory of the plane's own: what lies there is gone with it.
ETCD_DATA, PODS, BUCKETS = "/run/etcd", "/run/pods", "/run/buckets"
INNER_SERVER = f"https://{network.GATEWAY}:{network.API_PORT}"
ISSUER = "https://kubernetes.default.svc.cluster.local"
OPERATOR_NAMESPACE = "ray-system"
#: User name and group by token: what the static components are to the API server.
USERS = {
    "admin": ("admin", "system:masters"),
    "kube-controller-manager": ("system:kube-controller-manager", ""),
    "kube-scheduler": ("system:kube-scheduler", ""),
    "kubelet": ("process-kubelet", "system:masters"),
}


@dataclass(frozen=True, slots=True)
class Component:
    """One process.

    Attributes:
        name: What it is called and stopped by.
        argv: Its program and arguments.
        env: Variables beside those of the plane.
        at_once: Whether it starts with the plane; the others when they are told to.
    """

    name: str
    argv: tuple[str, ...]
    env: tuple[tuple[str, str], ...] = ()
    at_once: bool = False


def components_of(spec: PlaneSpec, folder: Folder, keys: Keys, programs: Programs) -> tuple[Component, ...]:
    """All of a plane's but the relay, which only its first process can start."""
    return (
        _etcd(programs),
        _api_server(folder, keys, programs),
        _controller_manager(folder, keys, programs),
        _scheduler(folder, programs),
        _store(programs),
        _kubelet(spec, folder, keys),
        _operator(spec, folder, programs),
    )


def write_components(path: Path, components: tuple[Component, ...]) -> None:
    path.write_text(json.dumps([asdict(component) for component in components]), encoding="utf-8")


def read_components(path: Path) -> dict[str, Component]:
    found = {}
    for fields in json.loads(path.read_text(encoding="utf-8")):
        env = tuple((name, value) for name, value in fields["env"])
        found[fields["name"]] = Component(fields["name"], tuple(fields["argv"]), env, fields["at_once"])
    return found


def _etcd(programs: Programs) -> Component:
    url, peers = f"http://127.0.0.1:{network.ETCD_PORT}", f"http://127.0.0.1:{network.ETCD_PORT + 1}"
    flags = (
        f"--data-dir={ETCD_DATA}",
        "--unsafe-no-fsync",  # it lies in memory
        "--log-level=warn",
        f"--listen-client-urls={url}",
        f"--advertise-client-urls={url}",
        f"--listen-peer-urls={peers}",
    )
    return Component("etcd", (str(programs.etcd), *flags), at_once=True)


def _api_server(folder: Folder, keys: Keys, programs: Programs) -> Component:
    flags = (
        f"--etcd-servers=http://127.0.0.1:{network.ETCD_PORT}",
        f"--advertise-address={network.GATEWAY}",
        "--bind-address=0.0.0.0",
        f"--secure-port={network.API_PORT}",
        f"--service-cluster-ip-range={network.SERVICES}",
        f"--tls-cert-file={keys.server_cert}",
        f"--tls-private-key-file={keys.server_key}",
        f"--client-ca-file={keys.ca}",
        f"--token-auth-file={folder.tokens}",
        f"--service-account-issuer={ISSUER}",
        f"--service-account-key-file={keys.service_accounts}",
        f"--service-account-signing-key-file={keys.service_accounts}",
        "--authorization-mode=RBAC",
        "--allow-privileged=true",
        # As on GKE: a pod that asks for google.com/tpu tolerates the taint of the nodes that have it.
        "--enable-admission-plugins=ExtendedResourceToleration",
        "--kubelet-preferred-address-types=InternalIP",
    )
    return Component("kube-apiserver", (str(programs.api_server), *flags), at_once=True)


def _controller_manager(folder: Folder, keys: Keys, programs: Programs) -> Component:
    name = "kube-controller-manager"
    flags = (
        f"--kubeconfig={folder.inner_kubeconfig(name)}",
        "--leader-elect=false",
        "--bind-address=127.0.0.1",
        "--allocate-node-cidrs=false",  # nodes come with theirs
        f"--service-cluster-ip-range={network.SERVICES}",
        f"--service-account-private-key-file={keys.service_accounts}",
        f"--root-ca-file={keys.ca}",
        "--use-service-account-credentials=true",
    )
    return Component(name, (str(programs.controller_manager), *flags))


def _scheduler(folder: Folder, programs: Programs) -> Component:
    name = "kube-scheduler"
    flags = (f"--kubeconfig={folder.inner_kubeconfig(name)}", "--leader-elect=false", "--bind-address=127.0.0.1")
    return Component(name, (str(programs.scheduler), *flags))


def _store(programs: Programs) -> Component:
    """Cloud Storage; its buckets are the folders that volumes of GCS FUSE show."""
    flags = (
        "-scheme=http",
        "-backend=filesystem",
        f"-filesystem-root={BUCKETS}",
        f"-host={network.GATEWAY}",
        f"-port={network.GCS_PORT}",
        f"-public-host={network.GCS_NAME}:{network.GCS_PORT}",
        "-log-level=warn",
    )
    return Component("gcs", (str(programs.gcs), *flags), at_once=True)


def _kubelet(spec: PlaneSpec, folder: Folder, keys: Keys) -> Component:
    flags = [
        f"--server={INNER_SERVER}",
        f"--token-file={folder.token('kubelet')}",
        f"--ca={keys.ca}",
        f"--images={folder.images}",
        f"--dir={PODS}",
        f"--buckets={BUCKETS}",
        f"--prefix={folder.path.name}",
        f"--node-type={PLAYED}",
        f"--tls-cert={keys.server_cert}",
        f"--tls-key={keys.server_key}",
        f"--gateway={network.GATEWAY}",
        f"--dns-ip={network.DNS}",
        f"--dns-extra={json.dumps({network.GCS_NAME: network.GATEWAY})}",
        f"--probe-scale={spec.probe_scale}",
    ]
    if spec.memory_limits:
        flags.append("--memory-limits")
    if spec.tpu_webhook:
        flags.append("--tpu-webhook")
    return Component("kubelet", (sys.executable, "-m", "cluster.sim.kubelet", *flags))


def _operator(spec: PlaneSpec, folder: Folder, programs: Programs) -> Component:
    flags = (
        f"--kubeconfig={folder.inner_kubeconfig('operator')}",
        "--enable-leader-election=false",
        "--metrics-addr=127.0.0.1:8080",
        "--health-probe-bind-address=127.0.0.1:8082",
        *spec.operator_flags,
    )
    return Component("operator", (str(programs.operator), *flags), (("POD_NAMESPACE", OPERATOR_NAMESPACE),))

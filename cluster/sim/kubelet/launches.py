"""What a container's process is started with, worked out from its spec."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cluster.sim.kubelet import environment, quantities, volumes
from cluster.sim.kubelet.images import Image
from cluster.sim.kubelet.objects import MissingError
from cluster.sim.kubelet.shapes import Json

TERMINATION_LOG = "/dev/termination-log"


@dataclass(frozen=True, slots=True)
class Mount:
    """One place inside a container that shows one of the machine."""

    path: str
    source: Path
    read_only: bool = False

    def json(self) -> Json:
        return {"path": self.path, "source": str(self.source), "read_only": self.read_only}


@dataclass(frozen=True, slots=True)
class Launch:
    """All that one start of a container needs.

    Attributes:
        folder: The container's own on the machine.
        log: Where its output goes.
        argv: What it runs.
        env: Its environment, and nothing else.
        mounts: What it sees besides the image.
        workdir: Where it starts.
        image: What stands for its image.
        uid: Who it runs as.
        gid: As which group.
        groups: As which further groups.
        read_only_root: Whether it can't write outside its volumes.
        no_new_privileges: Whether it can't become somebody else.
        memory: Its limit in bytes; 0 for none.
    """

    folder: Path
    log: Path
    argv: tuple[str, ...]
    env: Mapping[str, str]
    mounts: tuple[Mount, ...]
    workdir: str
    image: Image
    uid: int = 0
    gid: int = 0
    groups: tuple[int, ...] = ()
    read_only_root: bool = False
    no_new_privileges: bool = False
    memory: int = 0

    def json(self) -> Json:
        """What the shim reads, less what the sandbox knows."""
        return {
            "folder": str(self.folder),
            "argv": list(self.argv),
            "env": dict(self.env),
            "mounts": [mount.json() for mount in self.mounts],
            "workdir": self.workdir,
            "uid": self.uid,
            "gid": self.gid,
            "groups": list(self.groups),
            "read_only_root": self.read_only_root,
            "no_new_privileges": self.no_new_privileges,
        }


@dataclass(frozen=True, slots=True)
class PodFolder:
    """Where all of a pod lies on the machine."""

    path: Path

    def container(self, name: str) -> Path:
        return self.path / "containers" / name

    def volume(self, name: str) -> Path:
        return self.path / "volumes" / name

    def log(self, name: str, run: int) -> Path:
        """A container's output of its nth run."""
        return self.path / "logs" / f"{name}.{run}.log"

    def system_mounts(self) -> tuple[Mount, ...]:
        """The files that every container finds in /etc."""
        return tuple(Mount(f"/etc/{name}", self.path / name) for name in ("hosts", "resolv.conf", "hostname"))


@dataclass(frozen=True, slots=True)
class Security:
    """As whom a container runs: what it says itself beats what its pod says."""

    uid: int
    gid: int
    groups: tuple[int, ...]
    read_only_root: bool
    no_new_privileges: bool


def security(pod: Json, container: Json) -> Security:
    """As whom a container runs.

    Raises:
        MissingError: It must not run as root, and would.
    """
    of_pod, own = pod["spec"].get("securityContext") or {}, container.get("securityContext") or {}
    both = of_pod | own
    uid, name = int(both.get("runAsUser") or 0), container["name"]
    if both.get("runAsNonRoot") and uid == 0:
        said = "container has runAsNonRoot and image will run as root"
        raise MissingError(f'{said} (pod: "{pod["metadata"]["name"]}", container: {name})')
    groups = [int(group) for group in of_pod.get("supplementalGroups") or []]
    groups += [int(of_pod["fsGroup"])] if of_pod.get("fsGroup") else []
    return Security(
        uid=uid,
        gid=int(both.get("runAsGroup") or 0),
        groups=tuple(groups),
        read_only_root=bool(own.get("readOnlyRootFilesystem")),
        no_new_privileges=own.get("allowPrivilegeEscalation") is False,
    )


def volume_mounts(
    container: Json, env: Mapping[str, str], sources: Mapping[str, Path], read_only: frozenset[str]
) -> tuple[Mount, ...]:
    """The places of a container that show its pod's volumes.

    Args:
        container: Its spec.
        env: Its environment, for `subPathExpr`.
        sources: Where each volume lies.
        read_only: The volumes that can't be written to by anybody.

    Raises:
        volumes.VolumeError: A path leads out of its volume.
    """
    mounts = []
    for one in container.get("volumeMounts") or []:
        part = volumes.sub_path(one, env, environment.expand)
        source = sources[one["name"]] / part if part else sources[one["name"]]
        path = "/" + str(one["mountPath"]).strip("/")
        mounts.append(Mount(path, source, bool(one.get("readOnly")) or one["name"] in read_only))
    return tuple(mounts)


@dataclass(frozen=True, slots=True)
class Setting:
    """What one start of a container is given.

    Attributes:
        image: What stands for its image.
        env: Its environment.
        shown: Its volumes.
        run: The number of this start.
    """

    image: Image
    env: Mapping[str, str]
    shown: tuple[Mount, ...]
    run: int


def plan(pod: Json, container: Json, folder: PodFolder, given: Setting) -> Launch:
    """Everything about one start of a container.

    Args:
        pod: Its pod.
        container: Its spec.
        folder: Where the pod lies.
        given: The rest.

    Raises:
        MissingError: It must not run as root, and would; or it has nothing to run.
    """
    name = container["name"]
    image, env = given.image, given.env
    argv = environment.command(container, image.entrypoint, image.cmd, env)
    if not argv and not image.nominal:
        raise MissingError(f"no command specified for container {name}")
    own = folder.container(name)
    who = security(pod, container)
    ending = Mount(str(container.get("terminationMessagePath") or TERMINATION_LOG), own / "termination-log")
    binds = tuple(Mount(path, Path(source)) for path, source in image.binds.items())
    limits = (container.get("resources") or {}).get("limits") or {}
    everything = (*folder.system_mounts(), ending, *binds, *given.shown)
    return Launch(
        folder=own,
        log=folder.log(name, given.run),
        argv=argv,
        env=env,
        mounts=tuple(sorted(everything, key=lambda mount: mount.path.count("/"))),
        workdir=str(container.get("workingDir") or image.workdir),
        image=image,
        uid=who.uid,
        gid=who.gid,
        groups=who.groups,
        read_only_root=who.read_only_root,
        no_new_privileges=who.no_new_privileges,
        memory=quantities.in_units(limits.get("memory") or 0),
    )

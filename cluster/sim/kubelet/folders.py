"""Makes the folders of a pod: its system's files and its volumes."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
from pathlib import Path

from cluster.sim.kubelet import shapes, volumes
from cluster.sim.kubelet.fields import PodFacts
from cluster.sim.kubelet.launches import PodFolder
from cluster.sim.kubelet.routing import hosts_file, resolv_conf
from cluster.sim.kubelet.sandbox import CommandError, command
from cluster.sim.kubelet.shapes import Json
from cluster.sim.kubelet.surroundings import Surroundings
from cluster.sim.kubelet.volumes import Bucket, Files, HostPath, Plan, Scratch, VolumeError

_CHECKS = {"Directory": "directory", "File": "file", "Socket": "socket"}


class Folders:
    """One pod's place on the machine."""

    def __init__(self, around: Surroundings, uid: str) -> None:
        self.place = PodFolder(around.options.dir / "pods" / uid)
        self.sources: dict[str, Path] = {}
        self.read_only: set[str] = set()
        self._around = around
        self._mounted: list[Path] = []

    def write_system(self, facts: PodFacts) -> None:
        """Write what every container finds in /etc."""
        self.place.path.mkdir(parents=True, exist_ok=True)
        texts = {
            "hosts": hosts_file(facts.pod, facts.address),
            "hostname": f"{shapes.name_of(facts.pod)}\n",
            "resolv.conf": resolv_conf(facts.pod, self._around.options.dns_ip),
        }
        for name, text in texts.items():
            (self.place.path / name).write_text(text)

    async def make_volume(self, volume: Json, facts: PodFacts) -> None:
        """Make one volume of the pod.

        Raises:
            VolumeError: It can't be made.
            MissingError: Something that it shows isn't there.
        """
        namespace = shapes.namespace_of(facts.pod)
        found = await self._around.objects(namespace, volumes.references(volume))
        account = facts.pod["spec"].get("serviceAccountName") or "default"
        given = {}
        for ask in volumes.tokens(volume):
            path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
            answer = await self._around.api.call("POST", path, ask.request(facts.pod))
            if answer is None:
                raise VolumeError(f'failed to fetch token: serviceaccounts "{account}" not found')
            given[ask] = str(answer["status"]["token"])
        made = volumes.plan(volume, facts, found, given)
        self.sources[volume["name"]] = await self._make(volume["name"], made, _group(facts.pod))
        if isinstance(made, Files) or (isinstance(made, Bucket) and made.read_only):
            self.read_only.add(volume["name"])

    async def _make(self, name: str, plan: Plan, group: int) -> Path:
        if isinstance(plan, HostPath):
            return _host_path(plan)
        if isinstance(plan, Bucket):
            return self._bucket(plan)
        path = self.place.volume(name)
        path.mkdir(parents=True, exist_ok=True)
        if isinstance(plan, Scratch):
            if plan.size and path not in self._mounted:
                await _mount_memory(path, plan.size)
                self._mounted.append(path)
            path.chmod(0o1777 if not group else 0o2777)
            if group:
                os.chown(path, -1, group)
            return path
        for entry in plan.files:
            target = path / entry.path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(entry.data)
            target.chmod(entry.mode | (0o040 if group else 0))
            if group:
                os.chown(target, -1, group)
        return path

    def _bucket(self, plan: Bucket) -> Path:
        if self._around.options.buckets is None:
            raise VolumeError("rpc error: code = Unavailable desc = this plane has no buckets to mount")
        path = self._around.options.buckets / plan.bucket
        if not path.is_dir():
            raise VolumeError(f"rpc error: code = NotFound desc = failed to get GCS bucket {plan.bucket!r}")
        if plan.only_dir:
            path /= plan.only_dir
            path.mkdir(parents=True, exist_ok=True)
        return path

    async def clear_container(self, name: str) -> None:
        """Forget what a container has written outside its volumes."""
        await asyncio.to_thread(shutil.rmtree, self.place.container(name), ignore_errors=True)

    async def remove(self) -> None:
        """Take all of it away."""
        for path in self._mounted:
            with contextlib.suppress(CommandError):
                await command("umount", "-l", str(path))
        await asyncio.to_thread(shutil.rmtree, self.place.path, ignore_errors=True)


def _group(pod: Json) -> int:
    return int((pod["spec"].get("securityContext") or {}).get("fsGroup") or 0)


async def _mount_memory(path: Path, size: int) -> None:
    try:
        await command("mount", "-t", "tmpfs", "-o", f"size={size},mode=1777", "tmpfs", str(path))
    except CommandError as wrong:
        raise VolumeError(str(wrong)) from wrong


def _host_path(plan: HostPath) -> Path:
    path = Path(plan.path)
    if plan.type == "DirectoryOrCreate":
        path.mkdir(parents=True, exist_ok=True)
    elif plan.type == "FileOrCreate":
        path.touch(exist_ok=True)
    found = {"Directory": path.is_dir(), "File": path.is_file(), "Socket": path.is_socket()}
    if plan.type in found and not found[plan.type]:
        raise VolumeError(f"hostPath type check failed: {plan.path} is not a {_CHECKS[plan.type]}")
    if not plan.type and not path.exists():
        path.mkdir(parents=True)
    return path

"""What a pod's volumes are here: a plan of folders and files, made before anything is written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from cluster.sim.kubelet import objects, quantities
from cluster.sim.kubelet.fields import PodFacts
from cluster.sim.kubelet.objects import MissingError, Objects, Reference
from cluster.sim.kubelet.shapes import Json

GCS_FUSE = "gcsfuse.csi.storage.gke.io"


class VolumeError(Exception):
    """A volume that can't be made; the message is what a kubelet would put into the event."""


@dataclass(frozen=True, slots=True)
class Scratch:
    """An empty folder of the pod's own; in memory with a size, a file system of its own."""

    size: int = 0


@dataclass(frozen=True, slots=True)
class HostPath:
    """A place of the machine."""

    path: str
    type: str = ""


@dataclass(frozen=True, slots=True)
class Bucket:
    """A bucket, mounted by GCS FUSE: a folder beside others."""

    bucket: str
    only_dir: str = ""
    read_only: bool = False


@dataclass(frozen=True, slots=True)
class FileEntry:
    """One file of a volume."""

    path: str
    data: bytes
    mode: int


@dataclass(frozen=True, slots=True)
class Files:
    """Files that are written once."""

    files: tuple[FileEntry, ...]


@dataclass(frozen=True, slots=True)
class TokenAsk:
    """A token of the pod's service account that a volume holds."""

    path: str
    audience: str = ""
    seconds: int = 3600

    def request(self, pod: Json) -> Json:
        """What the API server is asked for it."""
        bound = {"apiVersion": "v1", "kind": "Pod", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}
        spec: Json = {"expirationSeconds": self.seconds, "boundObjectRef": bound}
        spec["audiences"] = [self.audience] if self.audience else []
        return {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}


Plan = Scratch | HostPath | Bucket | Files


def _sources(volume: Json) -> Iterator[Json]:
    yield from volume["projected"].get("sources") or [] if "projected" in volume else [volume]


def references(volume: Json) -> tuple[Reference, ...]:
    """The objects whose contents a volume shows."""

    def each() -> Iterator[Reference]:
        for source in _sources(volume):
            if "configMap" in source:
                yield objects.config_map(source["configMap"])
            if "secret" in source:
                yield _secret(source["secret"])

    return objects.distinct(each())


def _secret(spec: Json) -> Reference:
    return objects.secret(spec, "secretName" if "secretName" in spec else "name")


def tokens(volume: Json) -> tuple[TokenAsk, ...]:
    """The tokens that a volume holds."""
    asks = [source["serviceAccountToken"] for source in _sources(volume) if "serviceAccountToken" in source]
    return tuple(TokenAsk(t["path"], t.get("audience") or "", t.get("expirationSeconds") or 3600) for t in asks)


def plan(volume: Json, facts: PodFacts, found: Objects, given: Mapping[TokenAsk, str]) -> Plan:
    """What a volume comes to.

    Args:
        volume: One of the pod's spec.
        facts: The pod.
        found: The objects of `references`.
        given: The tokens of `tokens`.

    Raises:
        MissingError: Something that it shows isn't there.
        VolumeError: It is of a kind that these nodes don't have.
    """
    if "emptyDir" in volume:
        spec = volume["emptyDir"] or {}
        in_memory = spec.get("medium") == "Memory" and spec.get("sizeLimit")
        return Scratch(quantities.in_units(spec["sizeLimit"]) if in_memory else 0)
    if "hostPath" in volume:
        return HostPath(volume["hostPath"]["path"], volume["hostPath"].get("type") or "")
    if "csi" in volume:
        return _bucket(volume)
    default = _spec_of(volume).get("defaultMode", 0o644)
    files = [entry for source in _sources(volume) for entry in _files(source, default, facts, found, given)]
    if not files and not _is_known(volume):
        kinds = sorted(key for key in volume if key != "name")
        raise VolumeError(f"no volume plugin matched: {kinds} is not to be had on this node")
    return Files(tuple({entry.path: entry for entry in files}.values()))


def _spec_of(volume: Json) -> Json:
    found: Any = next((value for key, value in volume.items() if key != "name"), None)
    return found if isinstance(found, dict) else {}


def _is_known(volume: Json) -> bool:
    return any(key in volume for key in ("configMap", "secret", "downwardAPI", "projected"))


def _bucket(volume: Json) -> Bucket:
    csi = volume["csi"]
    if csi.get("driver") != GCS_FUSE:
        raise VolumeError(f"driver name {csi.get('driver')} not found in the list of registered CSI drivers")
    attributes = csi.get("volumeAttributes") or {}
    name = attributes.get("bucketName")
    if not name:
        raise VolumeError("rpc error: code = InvalidArgument desc = NodePublishVolume bucket name must be provided")
    options = str(attributes.get("mountOptions") or "").split(",")
    only = next((word.partition(sep)[2] for word in options for sep in "=:" if word.startswith(f"only-dir{sep}")), "")
    return Bucket("" if name == "_" else name, only.strip("/"), bool(csi.get("readOnly")))


def _files(
    source: Json, default: int, facts: PodFacts, found: Objects, given: Mapping[TokenAsk, str]
) -> Iterator[FileEntry]:
    if "configMap" in source:
        yield from _chosen(source["configMap"], found, objects.config_map(source["configMap"]), default)
    elif "secret" in source:
        yield from _chosen(source["secret"], found, _secret(source["secret"]), default)
    elif "downwardAPI" in source:
        for item in source["downwardAPI"].get("items") or []:
            ref = item.get("fieldRef")
            text = facts.field(ref["fieldPath"]) if ref else facts.resource(item["resourceFieldRef"])
            yield FileEntry(item["path"], text.encode(), item.get("mode", default))
    elif "serviceAccountToken" in source:
        (ask,) = tokens({"projected": {"sources": [source]}})
        yield FileEntry(ask.path, given[ask].encode(), default)


def _chosen(spec: Json, found: Objects, ref: Reference, default: int) -> Iterator[FileEntry]:
    data = found.data(ref)
    if not spec.get("items"):
        yield from (FileEntry(key, data[key], default) for key in sorted(data))
        return
    for item in spec["items"]:
        if item["key"] in data:
            yield FileEntry(item["path"], data[item["key"]], item.get("mode", default))
        elif not ref.optional:
            raise MissingError(f"references non-existent {ref.sort.removesuffix('s')} key: {item['key']}")


def sub_path(mount: Json, env: Mapping[str, str], expand: Any) -> str:
    """The part of a volume that a mount shows; "" for all of it.

    Raises:
        VolumeError: It leads out of the volume.
    """
    path = str(mount.get("subPath") or expand(str(mount.get("subPathExpr") or ""), env))
    if path.startswith("/") or ".." in path.split("/"):
        raise VolumeError(f"failed to prepare subPath {path!r}: must be relative and must not contain '..'")
    return path

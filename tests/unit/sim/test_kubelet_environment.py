"""What a container is given: its environment, its command, its volumes, its rights."""

import base64
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.sim.kubelet import environment, launches, objects, volumes
from cluster.sim.kubelet.environment import expand
from cluster.sim.kubelet.fields import PodFacts
from cluster.sim.kubelet.images import Image, InvalidNameError, PullError, find
from cluster.sim.kubelet.launches import PodFolder, Setting
from cluster.sim.kubelet.objects import MissingError, Objects, Reference
from cluster.sim.kubelet.volumes import Bucket, FileEntry, Files, HostPath, Scratch, TokenAsk, VolumeError

CONTAINER: dict[str, Any] = {
    "name": "main",
    "image": "i",
    "resources": {"limits": {"memory": "1Gi", "cpu": "1500m"}, "requests": {"cpu": "100m"}},
}
POD: dict[str, Any] = {
    "metadata": {"name": "p", "namespace": "ns", "uid": "u-1", "labels": {"b": "2", "a": 'x"y'}},
    "spec": {"nodeName": "n", "containers": [CONTAINER]},
}
FACTS = PodFacts(POD, "10.0.0.2", "10.9.9.9", {"memory": "8Gi", "cpu": "4"})
FOUND = Objects({("configmaps", "c"): {"k": b"v", "j": b"w"}, ("secrets", "s"): {"pw": b"x"}}, "ns")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("$(A)", "1"),
        ("x$(A)$(B)y", "x1$(B)y"),
        ("$$(A)", "$(A)"),
        ("$$$(A)", "$1"),
        ("$A ${A} $(", "$A ${A} $("),
    ],
)
def test_expansion(text: str, expected: str) -> None:
    assert expand(text, {"A": "1"}) == expected


@given(st.text(alphabet="abc()$ ", max_size=20))
def test_expansion_without_names_only_halves_dollars(text: str) -> None:
    assert expand(text, {}) == text.replace("$$", "$")


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("metadata.name", "p"),
        ("metadata.labels['a']", 'x"y'),
        ("metadata.labels['none']", ""),
        ("metadata.annotations['none']", ""),
        ("metadata.labels", 'a="x\\"y"\nb="2"'),
        ("status.podIP", "10.0.0.2"),
        ("status.hostIP", "10.9.9.9"),
        ("spec.serviceAccountName", "default"),
    ],
)
def test_downward_fields(path: str, expected: str) -> None:
    assert FACTS.field(path) == expected


@pytest.mark.parametrize(
    ("ref", "expected"),
    [
        ({"resource": "limits.memory", "divisor": "1Mi"}, "1024"),
        ({"resource": "limits.cpu"}, "2"),
        ({"resource": "requests.cpu", "divisor": "1m"}, "100"),
        ({"resource": "limits.ephemeral-storage"}, "0"),
        ({"resource": "requests.memory"}, "0"),
        ({"resource": "limits.cpu", "containerName": "main", "divisor": "0"}, "2"),
    ],
)
def test_downward_resources(ref: dict[str, str], expected: str) -> None:
    assert FACTS.resource(ref, CONTAINER) == expected


def test_a_limit_that_is_not_set_is_what_the_node_has() -> None:
    assert FACTS.resource({"resource": "limits.memory", "divisor": "1Gi"}, {"name": "x"}) == "8"
    with pytest.raises(MissingError, match="container other not found"):
        FACTS.resource({"resource": "limits.cpu", "containerName": "other"})
    with pytest.raises(MissingError, match="unsupported fieldPath"):
        FACTS.field("spec.nothing")


def resolve(**spec: Any) -> dict[str, str]:
    return environment.resolve({"name": "main", **spec}, FACTS, FOUND, {"SVC": "s"}, {"TPU": "t", "PATH": "/i"})


def test_what_the_pod_says_beats_what_comes_with_the_image() -> None:
    env = resolve(env=[{"name": "TPU", "value": "mine"}, {"name": "SVC", "value": "$(TPU)!"}, {"name": "EMPTY"}])
    assert (env["TPU"], env["SVC"], env["EMPTY"]) == ("mine", "mine!", "")
    assert (env["PATH"], env["HOSTNAME"]) == ("/i", "p")


def test_environment_from_objects() -> None:
    env = resolve(
        envFrom=[{"configMapRef": {"name": "c"}, "prefix": "P_"}, {"secretRef": {"name": "gone", "optional": True}}],
        env=[
            {"name": "K", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}},
            {"name": "S", "valueFrom": {"secretKeyRef": {"name": "s", "key": "pw"}}},
            {"name": "NO", "valueFrom": {"secretKeyRef": {"name": "s", "key": "none", "optional": True}}},
            {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        ],
    )
    assert (env["P_k"], env["P_j"], env["K"], env["S"], env["IP"]) == ("v", "w", "v", "x", "10.0.0.2")
    assert "NO" not in env


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ({"secretKeyRef": {"name": "gone", "key": "k"}}, 'secret "gone" not found'),
        ({"configMapKeyRef": {"name": "c", "key": "x"}}, "couldn't find key x in ConfigMap ns/c"),
    ],
)
def test_what_is_missing_is_named_as_a_kubelet_does(source: dict[str, Any], message: str) -> None:
    with pytest.raises(MissingError) as caught:
        resolve(env=[{"name": "X", "valueFrom": source}])
    assert str(caught.value) == message


def test_each_object_is_asked_for_once() -> None:
    refs = environment.references(
        {
            "envFrom": [{"configMapRef": {"name": "c"}}],
            "env": [
                {"name": "A", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}},
                {"name": "B", "valueFrom": {"secretKeyRef": {"name": "c", "key": "k"}}},
                {"name": "C", "value": "plain"},
            ],
        }
    )
    assert refs == (Reference("configmaps", "c"), Reference("secrets", "c"))


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, ("entry", "cmd")),
        ({"args": ["a"]}, ("entry", "a")),
        ({"command": ["c"]}, ("c",)),
        ({"command": ["c", "$(X)"], "args": ["$(X)", "$(Y)"]}, ("c", "1", "1", "$(Y)")),
    ],
)
def test_commands(spec: dict[str, Any], expected: tuple[str, ...]) -> None:
    assert environment.command(spec, ("entry",), ("cmd",), {"X": "1"}) == expected


def service(title: str, namespace: str, address: str | None, **port: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": title, "namespace": namespace},
        "spec": {"clusterIP": address, "ports": [{"port": 80, **port}]},
    }


def test_service_variables() -> None:
    services = [
        service("my-svc", "ns", "10.1.1.1", name="web"),
        service("other", "else", "10.1.1.2"),
        service("headless", "ns", "None"),
        service("kubernetes", "default", "10.96.0.1"),
    ]
    env = environment.service_variables(POD, services)
    assert env["MY_SVC_SERVICE_HOST"] == env["MY_SVC_PORT_80_TCP_ADDR"] == "10.1.1.1"
    assert (env["MY_SVC_SERVICE_PORT_WEB"], env["MY_SVC_PORT"]) == ("80", "tcp://10.1.1.1:80")
    assert "KUBERNETES_SERVICE_HOST" in env
    assert not any(key.startswith(("OTHER", "HEADLESS")) for key in env)
    alone = {**POD, "spec": {**POD["spec"], "enableServiceLinks": False}}
    assert {key.split("_")[0] for key in environment.service_variables(alone, services)} == {"KUBERNETES"}


def test_contents_of_objects_are_decoded() -> None:
    encoded = base64.b64encode(b"\x00\x01").decode()
    assert objects.contents("secrets", {"data": {"a": encoded}}) == {"a": b"\x00\x01"}
    assert objects.contents("configmaps", {"data": {"a": "x"}, "binaryData": {"b": encoded}}) == {
        "a": b"x",
        "b": b"\x00\x01",
    }


TOKEN = TokenAsk("token", "aud", 600)
PROJECTED = {
    "name": "v",
    "projected": {
        "defaultMode": 0o400,
        "sources": [
            {"serviceAccountToken": {"path": "token", "audience": "aud", "expirationSeconds": 600}},
            {"configMap": {"name": "c", "items": [{"key": "k", "path": "sub/k"}]}},
            {"downwardAPI": {"items": [{"path": "ns", "fieldRef": {"fieldPath": "metadata.namespace"}}]}},
        ],
    },
}


@pytest.mark.parametrize(
    ("volume", "expected"),
    [
        ({"emptyDir": {}}, Scratch()),
        ({"emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}}, Scratch(2**20)),
        ({"hostPath": {"path": "/x", "type": "Directory"}}, HostPath("/x", "Directory")),
        ({"secret": {"secretName": "s", "defaultMode": 0o400}}, Files((FileEntry("pw", b"x", 0o400),))),
        (
            {"configMap": {"name": "c", "items": [{"key": "k", "path": "p", "mode": 0o600}]}},
            Files((FileEntry("p", b"v", 0o600),)),
        ),
        ({"configMap": {"name": "gone", "optional": True}}, Files(())),
    ],
)
def test_volumes_are_planned(volume: dict[str, Any], expected: volumes.Plan) -> None:
    assert volumes.plan({"name": "v", **volume}, FACTS, FOUND, {}) == expected


def test_a_projected_volume_holds_all_its_sources() -> None:
    assert volumes.tokens(PROJECTED) == (TOKEN,)
    assert volumes.references(PROJECTED) == (Reference("configmaps", "c"),)
    made = volumes.plan(PROJECTED, FACTS, FOUND, {TOKEN: "secret"})
    assert isinstance(made, Files)
    assert {one.path: (one.data, one.mode) for one in made.files} == {
        "token": (b"secret", 0o400),
        "sub/k": (b"v", 0o400),
        "ns": (b"ns", 0o400),
    }
    assert TOKEN.request(POD)["spec"]["boundObjectRef"]["uid"] == "u-1"


def test_buckets_are_folders() -> None:
    attributes = {"bucketName": "b", "mountOptions": "implicit-dirs,only-dir=a/b"}
    volume = {"name": "v", "csi": {"driver": volumes.GCS_FUSE, "readOnly": True, "volumeAttributes": attributes}}
    assert volumes.plan(volume, FACTS, FOUND, {}) == Bucket("b", "a/b", read_only=True)
    volume["csi"] = {"driver": volumes.GCS_FUSE, "volumeAttributes": {"bucketName": "_"}}
    assert volumes.plan(volume, FACTS, FOUND, {}) == Bucket("")


@pytest.mark.parametrize(
    "volume",
    [{"csi": {"driver": "other"}}, {"csi": {"driver": volumes.GCS_FUSE}}, {"nfs": {"server": "s", "path": "/"}}],
)
def test_volumes_that_these_nodes_do_not_have(volume: dict[str, Any]) -> None:
    with pytest.raises(VolumeError):
        volumes.plan({"name": "v", **volume}, FACTS, FOUND, {})


@pytest.mark.parametrize(("path", "fits"), [("a/b", True), ("", True), ("../x", False), ("/abs", False)])
def test_sub_paths_stay_inside(path: str, fits: bool) -> None:
    if fits:
        assert volumes.sub_path({"subPath": path}, {}, expand) == path
    else:
        with pytest.raises(VolumeError):
            volumes.sub_path({"subPath": path}, {}, expand)


TABLE = {
    "rayproject/ray:2.60*": {"env": {"A": 1}, "workdir": "/w"},
    "private/*": {"pull_error": "403 Forbidden"},
    "busybox:latest": {"override": True, "exit_after": 1},
}


def test_images_are_found_by_the_first_pattern_that_matches() -> None:
    assert find(TABLE, "rayproject/ray:2.60.0-py311") == Image(env={"A": "1"}, workdir="/w")
    assert find(TABLE, "busybox") == Image(nominal=True, exit_after=1)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("nowhere/x:1", "nowhere/x:1: not found"),
        ("none", "docker.io/library/none:latest"),
        ("private/x", "403 Forbidden"),
    ],
)
def test_images_that_cannot_be_had(name: str, words: str) -> None:
    with pytest.raises(PullError, match=words):
        find(TABLE, name)


@pytest.mark.parametrize("name", ["Upper/Case", "a b", "x:", "-x"])
def test_what_is_no_image_name(name: str) -> None:
    with pytest.raises(InvalidNameError, match="invalid reference format"):
        find(TABLE, name)


def test_a_launch_has_all_of_a_container(tmp_path: Path) -> None:
    folder = PodFolder(tmp_path)
    spec = {
        **CONTAINER,
        "command": ["run"],
        "volumeMounts": [
            {"name": "v", "mountPath": "/data/", "subPath": "x"},
            {"name": "cm", "mountPath": "/etc/cm"},
        ],
        "securityContext": {"runAsUser": 5, "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True},
    }
    pod = {**POD, "spec": {**POD["spec"], "securityContext": {"runAsUser": 9, "runAsGroup": 7, "fsGroup": 8}}}
    shown = launches.volume_mounts(spec, {}, {"v": tmp_path / "v", "cm": tmp_path / "c"}, frozenset(("cm",)))
    made = launches.plan(pod, spec, folder, Setting(Image(binds={"/opt/x": "/opt/x"}), {}, shown, 2))
    assert (made.uid, made.gid, made.groups) == (5, 7, (8,))
    assert made.read_only_root
    assert made.no_new_privileges
    assert made.memory == 2**30
    assert made.log == folder.log("main", 2)
    mounts = {one.path: (one.source, one.read_only) for one in made.mounts}
    assert mounts["/data"] == (tmp_path / "v" / "x", False)
    assert mounts["/etc/cm"] == (tmp_path / "c", True)
    assert {"/etc/hosts", "/etc/resolv.conf", "/dev/termination-log", "/opt/x"} <= set(mounts)


def test_what_must_not_run_as_root_does_not() -> None:
    pod = {**POD, "spec": {**POD["spec"], "securityContext": {"runAsNonRoot": True}}}
    with pytest.raises(MissingError, match="image will run as root"):
        launches.security(pod, CONTAINER)

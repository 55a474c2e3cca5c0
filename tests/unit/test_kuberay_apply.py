"""Applying manifests: what is sent, in which order, and what a refusal leaves behind."""

import json
from dataclasses import dataclass, field
from typing import Any

import pytest

from kinetic_ray.backends.kuberay.apply import apply
from kinetic_ray.backends.kuberay.clusters import ClusterSpec
from kinetic_ray.backends.kuberay.describing import manifest_of
from kinetic_ray.backends.kuberay.manifests.rayclusters import manifests, raycluster
from kinetic_ray.backends.kuberay.manifests.text import document
from kinetic_ray.backends.kuberay.pools import parse_pool
from kinetic_ray.errors import ConfigError, SubmissionError
from kinetic_ray.options import check_options

pytest.importorskip("kubernetes")

POOL = parse_pool({"name": "slice", "accelerator": "tpu-v6e-16", "max_slices": 2})
CLUSTER = ClusterSpec("team", "ml", "registry.example.com/kinetic:1", "gs://bucket/prefix", (POOL,))


@dataclass
class Answer:
    """What the client library's newer versions answer with."""

    status: int
    content: bytes
    data: bytes | None = None

    def read(self) -> bytes:
        return self.content


@dataclass
class Server:
    """An API server, as far as applying sees it; stands in the place of the client and of its parts.

    Attributes:
        live: RayClusters that are there, by path.
        refusals: What is answered, once each, to a path's request that changes, or would change, something.
    """

    live: dict[str, dict[str, Any]] = field(default_factory=dict)
    refusals: list[tuple[str, int]] = field(default_factory=list)
    sent: list[tuple[str, str, str]] = field(default_factory=list)
    host: str = "https://server"
    default_headers: dict[str, str] = field(default_factory=dict)

    @property
    def configuration(self) -> "Server":
        return self

    @property
    def rest_client(self) -> "Server":
        return self

    def auth_settings(self) -> dict[str, dict[str, str]]:
        return {"BearerToken": {"key": "authorization", "value": "Bearer t"}}

    def request(self, method: str, url: str, *, headers: dict[str, str], body: str | None, **_: Any) -> Answer:
        assert headers["authorization"] == "Bearer t"
        path, _, query = url.removeprefix(self.host).partition("?")
        if method == "GET":
            found = self.live.get(path)
            return Answer(200 if found else 404, json.dumps(found or {"message": "not found"}).encode())
        self.sent.append((path, query, body or ""))
        for refusal in self.refusals:
            if refusal[0] in f"{path}?{query}":
                self.refusals.remove(refusal)
                return Answer(refusal[1], json.dumps({"message": "no, because"}).encode())
        return Answer(200, b"{}")


def applied(server: Server, **options: Any) -> None:
    apply(server, manifests(CLUSTER), **options)  # type: ignore[arg-type]


def test_the_server_agrees_to_everything_before_anything_is_changed() -> None:
    server = Server()
    applied(server)
    dry = ["dryRun=All" in query for _, query, _ in server.sent]
    count = len(manifests(CLUSTER))
    assert dry == [True] * count + [False] * count
    assert all("fieldManager=kinetic-ray&force=true" in query for _, query, _ in server.sent)


def test_a_dry_run_changes_nothing() -> None:
    server = Server()
    applied(server, dry_run=True)
    assert all("dryRun=All" in query for _, query, _ in server.sent)


def test_what_is_sent_is_the_very_text_that_a_function_shows() -> None:
    server = Server()
    given = {"accelerator": "tpu-v6e-16", "image": CLUSTER.image, "num_slices": 2, "cluster": "team", "namespace": "ml"}
    environ = {"KINETIC_HOME": "/nowhere", "KINETIC_STORE": CLUSTER.store}
    shown = manifest_of("raycluster", "train", check_options(given), environ)
    named = ClusterSpec("team", "ml", CLUSTER.image, CLUSTER.store, (parse_pool({
        "name": "tpu-v6e-16", "accelerator": "tpu-v6e-16", "max_slices": 2}),))  # fmt: skip
    apply(server, manifests(named))  # type: ignore[arg-type]
    bodies = [body for _, query, body in server.sent if "dryRun" not in query]
    assert "---\n".join(bodies) == shown


def test_one_refusal_keeps_everything_from_being_changed() -> None:
    server = Server(refusals=[("/rayclusters/team", 422)])
    with pytest.raises(ConfigError, match=r"RayCluster ml/team: .* no, because\. Nothing was changed"):
        applied(server)
    assert all("dryRun=All" in query for _, query, _ in server.sent)


def test_a_change_of_mind_is_told_as_one() -> None:
    server = Server(refusals=[("/networkpolicies/team?fieldManager=kinetic-ray&force=true", 422)])
    server.refusals = [("/networkpolicies/team", 200), *server.refusals]  # agrees once
    with pytest.raises(SubmissionError, match="had agreed a moment before"):
        applied(server)


def test_slices_that_come_meanwhile_are_looked_at_again() -> None:
    path = "/apis/ray.io/v1/namespaces/ml/rayclusters/team"
    groups = [{"groupName": "slice", "replicas": 1}]
    live = {"metadata": {"resourceVersion": "7"}, "spec": {"workerGroupSpecs": groups}}
    server = Server({path: live}, [("/rayclusters/team", 409)])
    apply(server, [raycluster(CLUSTER)])  # type: ignore[arg-type]
    bodies = {body for _, _, body in server.sent}
    assert len(server.sent) == 3
    assert all('resourceVersion: "7"' in body and "replicas: 1" in body for body in bodies)


def test_a_conflict_that_stays_is_told() -> None:
    server = Server(refusals=[("/rayclusters/team", 409)] * 5)
    with pytest.raises(ConfigError, match="no, because"):
        apply(server, [raycluster(CLUSTER)])  # type: ignore[arg-type]


def test_bytes_are_those_of_one_document() -> None:
    server = Server()
    apply(server, [raycluster(CLUSTER)], dry_run=True)  # type: ignore[arg-type]
    assert server.sent[0][2] == document(raycluster(CLUSTER))

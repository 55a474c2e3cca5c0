"""What clusters are given, byte by byte: a change here is one that every cluster sees at its next update.

`python -m tests.golden.kuberay.test_kuberay_manifests` writes the files anew; look at what changes.
"""

from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import pytest

from kinetic_ray.backends.kuberay.clusters import ClusterSpec
from kinetic_ray.backends.kuberay.manifests.rayclusters import manifests
from kinetic_ray.backends.kuberay.manifests.rayjobs import JobCluster, rayjob
from kinetic_ray.backends.kuberay.manifests.text import to_yaml
from kinetic_ray.backends.kuberay.pools import parse_pool

FOLDER = Path(__file__).parent
_SLICE = {"name": "v6e-16", "accelerator": "tpu-v6e-16", "max_slices": 2, "cpus": 40, "memory": "160Gi"}
_PLAIN = ClusterSpec(
    "kinetic-cluster", "default", "registry.example.com/kinetic:1", "gs://bucket/prefix", (parse_pool(_SLICE),)
)
_FULL = replace(
    _PLAIN,
    name="team",
    namespace="ml",
    pools=(
        parse_pool(_SLICE | {"capacity": "reserved", "reservation": "ours", "secrets": ["hf"], "fuse": True}),
        parse_pool({"name": "spot", "accelerator": "tpu-v5e-4:spot", "max_slices": 8}),
        parse_pool({"name": "flex", "accelerator": "tpu-v5p-64", "capacity": "flex-start"}),
        parse_pool({"name": "gpu", "accelerator": "gpu-l4", "hosts": 2, "min_slices": 1}),
        parse_pool({"name": "cpu", "accelerator": "cpu", "tolerations": [{"key": "team", "value": "ml"}]}),
    ),
    queue="gold",
    priority_class="high",
    monitoring="monitoring",
    identity=MappingProxyType({"iam.gke.io/gcp-service-account": "ray@project.iam.gserviceaccount.com"}),
)
_JOB = JobCluster("job-0000000000e008000000000000", _FULL, _FULL.pools[0], 2, timeout=3600, capacity_timeout=600)
FILES = {
    "plain.yaml": to_yaml(manifests(_PLAIN)),
    "full.yaml": to_yaml(manifests(_FULL)),
    "webhook.yaml": to_yaml(manifests(replace(_PLAIN, tpu_webhook=True))),
    "job.yaml": to_yaml([rayjob(_JOB)]),
}


@pytest.mark.parametrize("name", FILES)
def test_manifests_are_what_they_were(name: str) -> None:
    assert FILES[name] == (FOLDER / name).read_text(encoding="utf-8")


if __name__ == "__main__":
    for name, text in FILES.items():
        (FOLDER / name).write_text(text, encoding="utf-8")

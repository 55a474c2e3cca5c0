"""A Kubernetes cluster on one machine: real control plane and KubeRay, played nodes, pods that are processes."""

from cluster.sim.api import Api, ApiError
from cluster.sim.build import build_programs
from cluster.sim.needs import missing
from cluster.sim.plane import Plane, PlaneError
from cluster.sim.spec import Image, NodePool, PlaneSpec, parse_gpus, parse_slice

__all__ = [
    "Api",
    "ApiError",
    "Image",
    "NodePool",
    "Plane",
    "PlaneError",
    "PlaneSpec",
    "build_programs",
    "missing",
    "parse_gpus",
    "parse_slice",
]

"""What one node process is told to build; read and written without loading Ray."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True)
class NodePlan:
    """One Ray node.

    Attributes:
        name: For sockets, logs and messages: "head", or the slice's name and the worker id.
        temp_dir: Ray's folder for this node.
        socket_dir: Folder for the node's two unix sockets.
        cpus: CPUs that it offers.
        chips: TPU chips that it offers.
        object_store: Bytes of shared memory for objects; 0 = Ray's own choice.
        gcs_address: Where the head is; "" builds a head.
        runtime_env_port: The head's runtime-env agent, for a host.
        parent: Pid of the supervisor.
        report_fd: Where the node says that it is up, one JSON line.
    """

    name: str
    temp_dir: str
    socket_dir: str
    cpus: int = 0
    chips: int = 0
    object_store: int = 0
    gcs_address: str = ""
    runtime_env_port: int = 0
    parent: int = 0
    report_fd: int = -1

    def argv(self) -> list[str]:
        """The command that builds it."""
        return [sys.executable, "-m", "kinetic_ray.backends.local.node", json.dumps(asdict(self))]

    @staticmethod
    def parse(text: str) -> NodePlan:
        """Reads what :meth:`argv` wrote."""
        return NodePlan(**json.loads(text))

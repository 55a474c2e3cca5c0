"""How the process kubelet is started: its flags as one value."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Options:
    """The flags.

    Attributes:
        server: The API server's URL.
        token_file: Where the kubelet's token lies.
        ca: The file of who signed the server's certificate.
        images: The table of images.
        dir: Folder for pods; a file system in memory is mounted there that nobody else sees.
        prefix: The plane's name: that of its memory cgroups.
        tls_cert: The certificate of the kubelet's own server.
        tls_key: Its key.
        gateway: The bridge's address, through which pods reach all else.
        dns_ip: Address of the cluster's DNS.
        node_type: Only nodes with this value of their label `type` are played.
        buckets: Folder whose folders are the buckets of GCS FUSE.
        probe_scale: Factor for delays and periods of probes.
        probe_timeout_scale: Factor for their time-outs: a few cores are slow.
        backoff_scale: Factor for waiting between restarts and between pulls.
        memory_limits: Whether limits of memory hold, by cgroup.
        dns_extra: Further names of the DNS.
        tpu_webhook: Whether to do the work of GKE's TPU webhook.
    """

    server: str
    token_file: Path
    ca: Path
    images: Path
    dir: Path
    prefix: str
    tls_cert: Path
    tls_key: Path
    gateway: str = "10.244.0.1"
    dns_ip: str = "10.96.0.10"
    node_type: str = "process"
    buckets: Path | None = None
    probe_scale: float = 1.0
    probe_timeout_scale: float = 5.0
    backoff_scale: float = 1.0
    memory_limits: bool = False
    dns_extra: dict[str, str] = field(default_factory=dict)
    tpu_webhook: bool = False


def parse(argv: Sequence[str] | None = None) -> Options:
    """The options that a command line gives."""
    parser = argparse.ArgumentParser(prog="python -m cluster.sim.kubelet", description=__doc__)
    for name in ("server", "prefix"):
        parser.add_argument(f"--{name}", required=True)
    for name in ("token-file", "ca", "images", "dir", "tls-cert", "tls-key"):
        parser.add_argument(f"--{name}", required=True, type=Path)
    parser.add_argument("--gateway", default=Options.gateway)
    parser.add_argument("--dns-ip", default=Options.dns_ip)
    parser.add_argument("--node-type", default=Options.node_type)
    parser.add_argument("--buckets", type=Path)
    for name, value in (("probe-scale", 1.0), ("probe-timeout-scale", 5.0), ("backoff-scale", 1.0)):
        parser.add_argument(f"--{name}", type=float, default=value)
    parser.add_argument("--memory-limits", action="store_true")
    parser.add_argument("--tpu-webhook", action="store_true")
    parser.add_argument("--dns-extra", type=json.loads, default={})
    parser.add_argument("--netns", help=argparse.SUPPRESS)  # the kubelet is started inside it
    given = vars(parser.parse_args(argv))
    del given["netns"]
    return Options(**given)

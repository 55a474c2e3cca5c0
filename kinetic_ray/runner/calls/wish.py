"""What a call asks for: the gang that it needs, and the call itself, as plain values."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any


@dataclass(frozen=True)
class Wish:
    """The gang that a call needs. Equal wishes share gangs and warm children.

    Attributes:
        accelerator: Canonical name; "cpu" for a gang of CPU hosts.
        chips_per_host: Chips per host; 0 for CPUs.
        num_slices: Slices in the gang; 0 for CPUs.
        hosts: Hosts per slice; for CPUs the ranks.
        cpus: CPUs of each rank of a CPU gang.
        memory: Bytes of each of these; 0 = not reserved.
        runtime: "jax" or "plain".
        env_vars: The call's variables, set before the zygote starts.
        secrets: Secrets of the hosts, set likewise: NAME or NAME:VARIABLE -> its version as the client sees it.
        bundle: SHA-256 of the project's archive; "" for none.
        sys_path: Folders of the bundle for `sys.path`, relative to its root.
        cwd: The working folder in the bundle.
        main: The script's path in the bundle, which becomes `__file__` again.
        python: The client's version of Python, which the host's has to match.
        packages: What is installed: warm processes don't outlive an upgrade.
    """

    accelerator: str = "cpu"
    chips_per_host: int = 0
    num_slices: int = 0
    hosts: int = 1
    cpus: float = 1.0
    memory: int = 0
    runtime: str = "plain"
    env_vars: Mapping[str, str] = field(default_factory=dict, repr=False)
    secrets: Mapping[str, str] = field(default_factory=dict)
    bundle: str = ""
    sys_path: tuple[str, ...] = ()
    cwd: str = "."
    main: str | None = None
    python: str = ""
    packages: str = ""

    @cached_property
    def key(self) -> str:
        """Names the wish: the digest of all of it."""
        text = json.dumps(self.to_dict(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def ranks(self) -> int:
        """Ranks in the gang."""
        return max(1, self.num_slices) * self.hosts

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> Wish:
        return Wish(**{**data, "sys_path": tuple(data["sys_path"])})


@dataclass(frozen=True)
class Order:
    """One call, as the desk is told of it; its arguments and its code travel beside it.

    Attributes:
        wish: The gang that it needs.
        function: Digest of the pickled function or class.
        name: Its name, for people.
        client: Who calls: the Ray job of the calling process, in hex.
        gather: "leader": the value is rank 0's; "all": the list by rank.
        kind: "function"; "create": an instance of the class; "method": of an instance.
        actor: Id of the instance, `act-...`; "" for functions.
        method: Name of the method; "" for others.
        priority: In the broker's queue; higher goes first.
        capacity_timeout: Seconds that it may wait for a gang; None = as long as it takes.
        timeout: Seconds that it may run; None = as long as it takes.
        ancestors: Holders of the leases under which the caller itself runs, outermost first.
        sizes: Bytes of the function and of the project's archive.
    """

    wish: Wish
    function: str
    name: str
    client: str
    gather: str = "leader"
    kind: str = "function"
    actor: str = ""
    method: str = ""
    priority: int = 0
    capacity_timeout: float | None = None
    timeout: float | None = None
    ancestors: tuple[str, ...] = ()
    sizes: tuple[int, int] = (0, 0)

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "wish": self.wish.to_dict()}

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> Order:
        told = {name: tuple(data[name]) for name in ("ancestors", "sizes")}
        return Order(**{**data, **told, "wish": Wish.from_dict(data["wish"])})

    def to_bytes(self) -> bytes:
        return json.dumps(self.to_dict()).encode()

    @staticmethod
    def from_bytes(data: bytes) -> Order:
        return Order.from_dict(json.loads(data))

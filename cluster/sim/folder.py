"""The folder of a plane: everything it has outside its namespaces, and nothing else."""

from __future__ import annotations

import json
import os
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

_FACTS = "plane.json"


@dataclass(frozen=True, slots=True)
class Process:
    """One process for good: ids are used again, an id and its start are not."""

    pid: int
    started: float

    @classmethod
    def of(cls, pid: int) -> Process:
        """The process that has this id now.

        Raises:
            ProcessLookupError: None has.
        """
        try:
            return cls(pid, psutil.Process(pid).create_time())
        except psutil.NoSuchProcess:
            raise ProcessLookupError(pid) from None

    def lives(self) -> bool:
        try:
            process = psutil.Process(self.pid)
            return bool(process.create_time() == self.started and process.status() != psutil.STATUS_ZOMBIE)
        except psutil.NoSuchProcess:
            return False


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of a plane from the moment its folder exists.

    Attributes:
        name: Unlike every other plane's of this machine; its cgroups are named by it.
        keeper: The process that ends the plane and removes the folder.
        api_port: On 127.0.0.1.
        gcs_port: Likewise.
    """

    name: str
    keeper: Process
    api_port: int
    gcs_port: int


@dataclass(frozen=True, slots=True)
class Folder:
    """The paths of a plane's folder."""

    path: Path

    @property
    def kubeconfig(self) -> Path:
        """The administrator's, for the host; the only file that users need."""
        return self.path / "admin.kubeconfig"

    @property
    def components(self) -> Path:
        return self.path / "components.json"

    @property
    def keys(self) -> Path:
        return self.path / "keys"

    @property
    def tokens(self) -> Path:
        return self.path / "tokens.csv"

    @property
    def images(self) -> Path:
        return self.path / "images.json"

    @property
    def spec(self) -> Path:
        """What was asked for, for those who look."""
        return self.path / "spec.json"

    def token(self, user: str) -> Path:
        return self.path / f"{user}.token"

    def inner_kubeconfig(self, user: str) -> Path:
        """A component's, valid inside the plane's network."""
        return self.path / f"{user}.kubeconfig"

    def log(self, component: str) -> Path:
        return self.path / "logs" / f"{component}.log"

    def write_facts(self, facts: Facts) -> None:
        self.path.joinpath(_FACTS).write_text(json.dumps(asdict(facts)), encoding="utf-8")

    def read_facts(self) -> Facts:
        """What the keeper wrote.

        Raises:
            OSError: No plane's folder.
            ValueError: Its keeper died while writing it.
        """
        found = json.loads(self.path.joinpath(_FACTS).read_text(encoding="utf-8"))
        return Facts(**{**found, "keeper": Process(**found["keeper"])})


def planes_root() -> Path:
    """Where this user's planes have their folders; paths of sockets must be short, so it is near the top."""
    return Path(tempfile.gettempdir()) / f"kinetic-planes-{os.getuid()}"


def write_secret(path: Path, content: str) -> None:
    """Writes a file that only its owner can read, from its first moment."""
    path.touch(mode=0o600)
    path.write_text(content, encoding="utf-8")

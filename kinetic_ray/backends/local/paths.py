"""Where the embedded cluster of this user, home and interpreter has its files."""

import hashlib
import importlib.metadata
import os
import platform
import stat
import sys
from dataclasses import dataclass
from pathlib import Path

from kinetic_ray.errors import ConfigError
from kinetic_ray.version import __version__

#: Socket paths end at 104 characters on some systems, so the folder is as near to the root as a user may write.
CLUSTERS = Path("/tmp")


@dataclass(frozen=True, slots=True)
class Runtime:
    """The runtime folder of one embedded cluster: `/tmp/kr<uid>-<8 hex>`. It lives as long as the cluster.

    Attributes:
        root: The folder.
    """

    root: Path

    @property
    def sock(self) -> Path:
        """The supervisor's socket."""
        return self.root / "sock"

    @property
    def lock(self) -> Path:
        """Locked by the supervisor for as long as it lives."""
        return self.root / "lock"

    @property
    def token(self) -> Path:
        """The cluster's token, mode 0600."""
        return self.root / "token"

    @property
    def info(self) -> Path:
        """Who runs here, for people and for tests."""
        return self.root / "info.json"

    @property
    def log(self) -> Path:
        """The supervisor's log."""
        return self.root / "supervisor.log"

    @property
    def node_logs(self) -> Path:
        """What launchers and guards say, one file a node."""
        return self.root / "logs"

    @property
    def nursery(self) -> Path:
        """The nursery's socket."""
        return self.root / "nursery"

    @property
    def ray(self) -> Path:
        """The head's Ray folder."""
        return self.root / "ray"

    @property
    def hosts(self) -> Path:
        """The Ray folders of the simulated hosts."""
        return self.root / "n"

    @property
    def sockets(self) -> Path:
        """The Ray nodes' sockets."""
        return self.root / "s"

    def prepare(self) -> None:
        """Makes the folder, for this user alone.

        Raises:
            ConfigError: Somebody else has taken its name, or it can't be made.
        """
        try:
            self.root.mkdir(mode=0o700, exist_ok=True)
            found = self.root.lstat()
        except OSError as exc:
            raise ConfigError(f"the embedded cluster's folder {self.root} can't be made: {exc}") from exc
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
            raise ConfigError(
                f"{self.root} is not a folder that only this user can enter, so the embedded cluster won't trust it: "
                "remove it (or have its owner remove it) and try again"
            )


def prefix_of_user(uid: int) -> str:
    """How the names of all runtime folders of a user begin."""
    return f"kr{uid}-"


def runtime_of(home: Path) -> Runtime:
    """The runtime folder of this user and interpreter with a KINETIC_HOME: nothing is shared across any of them.

    Args:
        home: The root of the client's state.
    """
    parts = (
        str(os.getuid()),
        str(home.expanduser().absolute()),
        sys.prefix,
        platform.python_version(),
        importlib.metadata.version("ray"),
        __version__,
    )
    digest = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:8]
    return Runtime(CLUSTERS / f"{prefix_of_user(os.getuid())}{digest}")

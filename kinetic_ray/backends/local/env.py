"""The environment of the embedded cluster: the only place in this package that reads or makes one."""

import os
import sysconfig
from collections.abc import Mapping
from pathlib import Path

from kinetic_ray.bundle.origins import is_installed
from kinetic_ray.core.accelerators import Accelerator
from kinetic_ray.errors import ConfigError
from kinetic_ray.settings import megabytes

#: What a cluster takes from the shell that happens to start it. All else stays out: the cluster outlives that shell
#: and serves others, so a job must see the same variables whoever came first, and no RAY_* of another cluster.
# fmt: off
_KEPT = frozenset((
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR", "LD_LIBRARY_PATH",
    "VIRTUAL_ENV", "CONDA_PREFIX", "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "KINETIC_HOME",
    # Who may read and write gs:// stores, and where they are.
    "GOOGLE_APPLICATION_CREDENTIALS", "CLOUDSDK_CONFIG", "STORAGE_EMULATOR_HOST",
))
# fmt: on
_KEPT_PREFIXES = ("LC_", "XDG_", "KINETIC_LOCAL_")
_PROXIES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")
_LOOPBACK = "127.0.0.1,localhost,::1"

DEFAULT_IDLE_S = 600.0


def cluster_environment(
    runtime: Path, token: Path, sock: Path, secrets: Path, slices: str | None = None
) -> dict[str, str]:
    """The whole environment of the supervisor, from which everything of the cluster inherits.

    Args:
        runtime: The cluster's runtime folder.
        token: The file with its token.
        sock: The supervisor's socket.
        secrets: The folder of secrets, from which hosts read those that jobs name.
        slices: The pool that it pretends to have, as JSON; None = as the shell says.
    """
    kept = {name: value for name, value in os.environ.items() if name in _KEPT or name.startswith(_KEPT_PREFIXES)}
    return {
        **kept,
        **({"KINETIC_LOCAL_SLICES": slices} if slices else {}),
        **_proxies(os.environ),
        "PYTHONPATH": os.pathsep.join(_python_path(os.environ.get("PYTHONPATH", ""))),
        "KINETIC_SIMULATED": "1",  # chips are CPU devices, all hosts are one machine
        "KINETIC_SECRETS": str(secrets.absolute()),
        "KINETIC_SUPERVISOR": str(sock),
        "OPENBLAS_NUM_THREADS": "1",
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": str(token),
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # on every system: one machine only, so all binds to loopback
        "RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S": "0",
        "RAY_JOB_STOP_WAIT_TIME_S": "30",
        # Ray knows its own workers only, so of a machine short of memory it would end those that serve jobs, one after
        # the other, and never the rank that fills it. The kernel is told whom to end first: the ranks.
        "RAY_memory_monitor_refresh_ms": "0",
        "RAY_worker_oom_score_adjustment": "0",
        "RAY_TMPDIR": str(runtime),  # where Ray looks for the address of "the" cluster when it is given none
        "RAY_USAGE_STATS_ENABLED": "0",
        "DASHBOARD_METRIC_PORT": "-1",  # none: it would answer without the token. Ray logs that, and goes on
    }


def host_environment(
    accelerator: Accelerator, slice_name: str, worker_id: int, nursery: Path | None = None
) -> dict[str, str]:
    """What a simulated host has on top of the cluster's: what GKE sets on a TPU host, and the nursery's socket."""
    return {
        **os.environ,
        **({"KINETIC_NURSERY": str(nursery)} if nursery else {}),
        "TPU_NAME": slice_name,
        "TPU_WORKER_ID": str(worker_id),
        "TPU_ACCELERATOR_TYPE": accelerator.pod_type,
        "TPU_TOPOLOGY": accelerator.topology,
    }


def head_environment() -> dict[str, str]:
    """What the head has: the cluster's."""
    return dict(os.environ)


def nursery_environment() -> dict[str, str]:
    """What the nursery has: the cluster's; what it must not have of it, it takes out itself."""
    return dict(os.environ)


def ray_environment(gcs_address: str, dashboard: str) -> dict[str, str]:
    """What the `ray` command needs, in any shell, to speak to this cluster.

    Args:
        gcs_address: host:port of the cluster.
        dashboard: host:port of its dashboard.
    """
    names = ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN_PATH", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "RAY_TMPDIR")
    addresses = {"RAY_ADDRESS": gcs_address, "RAY_API_SERVER_ADDRESS": f"http://{dashboard}"}
    return {**addresses, **{name: os.environ[name] for name in names}}


def keep_umask(mask: int) -> None:
    """Has ranks make files as whoever started the cluster does, not as the cluster's own processes do."""
    os.environ["KINETIC_UMASK"] = f"{mask:o}"


def local_slices() -> str | None:
    """KINETIC_LOCAL_SLICES as it was written, None when it isn't set."""
    return os.environ.get("KINETIC_LOCAL_SLICES") or None


def idle_seconds() -> float:
    """Seconds without work after which the cluster stops itself: KINETIC_LOCAL_IDLE_S, 600 by default."""
    value = os.environ.get("KINETIC_LOCAL_IDLE_S", "")
    try:
        seconds = float(value) if value else DEFAULT_IDLE_S
    except ValueError:
        raise ConfigError(f"KINETIC_LOCAL_IDLE_S={value!r}: expected seconds, such as 600") from None
    if not seconds > 0:
        raise ConfigError(f"KINETIC_LOCAL_IDLE_S={value!r}: expected more than 0 seconds")
    return seconds


def check_memory_limit() -> None:
    """What the cluster's agents will read.

    Raises:
        ConfigError: KINETIC_LOCAL_MEMORY_MB is no number of megabytes.
    """
    if value := os.environ.get("KINETIC_LOCAL_MEMORY_MB"):
        megabytes("local_memory_mb", value)


def _python_path(inherited: str) -> list[str]:
    """Where children find kinetic_ray: its own folder goes first, unless it is installed like any package.

    Of the shell's folders only those of packages, which every host has. Code reaches a job in its bundle alone: in a
    folder of the user's it could be edited until the job runs, and other projects' jobs would see it as well.
    """
    package_root = Path(__file__).resolve().parents[3]
    installed = {Path(sysconfig.get_path(kind)).resolve() for kind in ("purelib", "platlib")}
    own = [] if package_root in installed else [str(package_root)]
    entries = [Path(entry).absolute() for entry in inherited.split(os.pathsep) if entry]
    others = [str(entry) for entry in entries if is_installed(entry.resolve())]
    return [*own, *(entry for entry in others if entry not in own)]


def _proxies(environ: Mapping[str, str]) -> dict[str, str]:
    """The shell's proxies, with loopback exempt: the cluster talks to nobody else."""
    found = {name: value for name, value in environ.items() if name.lower() in _PROXIES}
    if not found:
        return {}
    exempt = environ.get("no_proxy") or environ.get("NO_PROXY") or ""
    both = f"{exempt},{_LOOPBACK}" if exempt else _LOOPBACK
    return {**found, "no_proxy": both, "NO_PROXY": both}

"""How a zygote begins: forked from the cluster's nursery where that makes no difference, else executed."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from kinetic_ray.errors import ConfigError
from kinetic_ray.runner.lines import Lines
from kinetic_ray.runner.link import START_TIMEOUT, Begin, words_path
from kinetic_ray.runner.task import HostPlan
from kinetic_ray.vault import Vault

#: A nursery may still be importing; one that takes longer is of no help.
_NURSERY_TIMEOUT = 10.0

#: Of Ray's many variables in a worker, those that user code needs to join the same cluster.
# fmt: off
_RAY_KEPT = frozenset((
    "RAY_ADDRESS", "RAY_AUTH_MODE", "RAY_AUTH_TOKEN_PATH", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "RAY_TMPDIR",
    "RAY_USAGE_STATS_ENABLED",
))
# fmt: on
#: What Ray sets inside a worker for the worker's own good.
_RAY_SET = frozenset({"OMP_NUM_THREADS", "PYTHONBREAKPOINT", "SPT_NOENV"})


@dataclass(frozen=True, slots=True)
class Way:
    """One way to a zygote.

    Attributes:
        name: For messages.
        begin: What to do.
        patience: Seconds until the zygote must be ready.
    """

    name: str
    begin: Begin
    patience: float


def ways_to_begin(plan: HostPlan, environ: Mapping[str, str]) -> list[Way]:
    """The ways to try, the quickest first; the last one always works where anything does.

    Args:
        plan: What the zygote is for.
        environ: The agent's environment, in which KINETIC_NURSERY is the nursery's socket.
    """
    executed = Way("exec", execute, START_TIMEOUT)
    path = environ.get("KINETIC_NURSERY", "")
    # Variables of the job may be read at import, and real chips bring modules of their own.
    has_own = bool(plan.env_vars or plan.secrets)
    if not path or plan.runtime != "jax" or not plan.simulated or has_own or not Path(path).exists():
        return [executed]

    def ask(plan: HostPlan, fd: int, scratch: Path) -> None:
        _ask_nursery(path, plan, fd, scratch)

    return [Way("nursery", ask, _NURSERY_TIMEOUT), executed]


def _ask_nursery(path: str, plan: HostPlan, fd: int, scratch: Path) -> None:
    """Sends the request; what comes of it is told on the other end of the socket pair."""
    env = zygote_env(os.environ, plan, _first_environment())
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
        asking.settimeout(_NURSERY_TIMEOUT)
        asking.connect(path)
        with words_path(scratch).open("ab") as words:
            Lines(asking).send({"env": env, "scratch": str(scratch)}, (fd, words.fileno(), words.fileno()))


def execute(plan: HostPlan, fd: int, scratch: Path) -> None:
    """Starts the zygote's interpreter, which leaves us at once: it must be nobody's child.

    Raises:
        ConfigError: A secret that the plan names is not on this host.
    """
    env = zygote_env(os.environ, plan, _first_environment(), secret_variables(plan, os.environ))
    command = [sys.executable, "-P", "-m", "kinetic_ray.runner.zygote", str(fd), plan.runtime, str(scratch)]
    with words_path(scratch).open("ab") as words:
        subprocess.run(
            command,
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=words,
            stderr=words,
            pass_fds=(fd,),
            start_new_session=True,
            cwd="/",
            env=env,
        )


def secret_variables(plan: HostPlan, environ: Mapping[str, str]) -> dict[str, str]:
    """The variables of the host's secrets that a plan names, with their values.

    Args:
        plan: For whom.
        environ: The agent's environment, in which KINETIC_SECRETS is their folder.

    Raises:
        ConfigError: One is not there.
    """
    if not plan.secrets:
        return {}
    if not (folder := environ.get("KINETIC_SECRETS", "")):
        raise ConfigError(f"secrets={[*plan.secrets]}: this host has no folder of secrets (KINETIC_SECRETS)")
    return Vault(Path(folder)).variables(plan.secrets)


def zygote_env(
    inherited: Mapping[str, str],
    plan: HostPlan,
    at_start: Mapping[str, str],
    secrets: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, str]:
    """The environment of a zygote and its children: the host's, less what Ray put into its worker, plus the job's.

    Args:
        inherited: The agent's environment now.
        plan: Whose `env_vars` win over everything but the device count.
        at_start: The agent's environment when its process began, to tell Ray's settings from the host's.
        secrets: Variables of the host's secrets; what the job says itself wins over them.

    Example:
        >>> zygote_env({"RAY_JOB_ID": "01"}, HostPlan("jax", 4, True), {})["XLA_FLAGS"]
        '--xla_force_host_platform_device_count=4'
    """
    env = {name: value for name, value in inherited.items() if _is_the_hosts(name, at_start)}
    env.update(secrets)
    env.update(plan.env_vars)
    env["PYTHONPATH"] = _with_our_folder(env.get("PYTHONPATH", ""))
    env.setdefault("KERAS_BACKEND", "jax")
    env.setdefault("PYTHONUNBUFFERED", "1")  # else what a rank's own children say is shown, or is lost, at their end
    if plan.runtime == "jax":
        env.setdefault("OPENBLAS_NUM_THREADS", "1")  # its threads would make the fork unsafe
    if plan.simulated:
        env.setdefault("JAX_PLATFORMS", "cpu")
        if plan.chips:
            flag = f"--xla_force_host_platform_device_count={plan.chips}"
            env["XLA_FLAGS"] = f"{env.get('XLA_FLAGS', '')} {flag}".strip()
    elif plan.chips:
        env.setdefault("JAX_PLATFORMS", "tpu,cpu")
    return env


def _is_the_hosts(name: str, at_start: Mapping[str, str]) -> bool:
    if name in _RAY_SET:
        return name in at_start
    return not name.startswith("RAY_") or name in _RAY_KEPT


def _first_environment() -> dict[str, str]:
    source = Path("/proc/self/environ")
    if not source.exists():
        return dict(os.environ)
    entries = (os.fsdecode(entry).partition("=") for entry in source.read_bytes().split(b"\0"))
    return {name: value for name, _, value in entries if name}


def _with_our_folder(path: str) -> str:
    """`PYTHONPATH` by which a fresh interpreter finds this package where it isn't installed."""
    folder = str(Path(__file__).resolve().parents[2])
    entries = [entry for entry in path.split(os.pathsep) if entry]
    known = folder in entries or folder in (sysconfig.get_path("purelib"), sysconfig.get_path("platlib"))
    return path if known else os.pathsep.join([folder, *entries])

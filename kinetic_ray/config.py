"""The client's settings: one table, and the only reader of the environment on the client."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from kinetic_ray.errors import ConfigError

#: Backend -> "module:Class"; a backend of one's own is named in that form.
BACKEND_PLACES: Mapping[str, str] = {
    "local": "kinetic_ray.backends.local.backend:LocalBackend",
}
#: Names that later versions will know, and upstream's.
LATER_BACKENDS = ("kuberay", "gke", "pathways")

#: Set on every rank of a job, and so in what it starts.
_JOB_ID = "KINETIC_JOB_ID"
#: Likewise: who holds the leases that it runs under.
_ANCESTORS = "KINETIC_ANCESTORS"
#: Set in every process of a cluster: its supervisor's socket, and where its Ray is. A user's RAY_ADDRESS goes second.
_SUPERVISOR, _ADDRESSES = "KINETIC_SUPERVISOR", ("KINETIC_RAY_ADDRESS", "RAY_ADDRESS")


@dataclass(frozen=True, slots=True)
class Setting:
    """One environment variable of the client.

    Attributes:
        env: Its name.
        default: What holds without it, in words.
        doc: What it decides.
    """

    env: str
    default: str
    doc: str


#: Precedence everywhere: argument or flag, then these, then the default.
SETTINGS: Mapping[str, Setting] = {
    "home": Setting("KINETIC_HOME", "the user's data folder", "root of state, caches and the default store"),
    "backend": Setting("KINETIC_BACKEND", "local", "where jobs run"),
    "store": Setting("KINETIC_STORE", "KINETIC_HOME/store", "folder or URL that holds every job's records"),
    "profile": Setting("KINETIC_PROFILE", "none", "a named target; profiles come with a later version"),
    "output_dir": Setting("KINETIC_OUTPUT_DIR", "the job's own folder in the store", "where jobs put their outputs"),
    "local_slices": Setting("KINETIC_LOCAL_SLICES", "any shape on demand", 'the pool pretended, {"tpu-v6e-16": 2}'),
    "local_idle_s": Setting("KINETIC_LOCAL_IDLE_S", "600", "seconds without work until the embedded cluster stops"),
    "package_root": Setting("KINETIC_PACKAGE_ROOT", "found from the script", "root of the code that is sent"),
    "bundle_limit_mb": Setting("KINETIC_BUNDLE_LIMIT_MB", "250", "largest code bundle that is sent, in MB"),
    "debug": Setting("KINETIC_DEBUG", "off", "1: errors show where in kinetic they were raised"),
    "no_color": Setting("NO_COLOR", "colours", "anything: no colours on a terminal"),
    "term": Setting("TERM", "a terminal that can move its cursor", "dumb: stages are shown line by line"),
}


@dataclass(frozen=True, slots=True)
class Target:
    """Where a call goes.

    Attributes:
        backend: Name of the backend, or "module:Class".
        store_url: The store as given: a folder's path or a URL.
        home: Root of the client's state.
    """

    backend: str
    store_url: str
    home: Path


def resolve(
    *,
    backend: str | None = None,
    store: str | os.PathLike[str] | None = None,
    profile: str | None = None,
    environ: Mapping[str, str] | None = None,
) -> Target:
    """Where a call goes: arguments, then `KINETIC_*`, then the defaults.

    Args:
        backend: "local", or "module:Class" of a backend of one's own.
        store: A folder or URL.
        profile: A named target.
        environ: Stands in for the process's environment.

    Raises:
        ConfigError: A setting can't work; the message names it and where it came from.

    Example:
        >>> resolve(store="memory://doc", environ={"KINETIC_HOME": "/tmp/h"}).backend
        'local'
    """
    env = os.environ if environ is None else environ
    _refuse_profile(profile, env)
    root = home(env)
    chosen = backend or env.get("KINETIC_BACKEND") or "local"
    _check_backend(chosen, "backend=" if backend else "KINETIC_BACKEND=")
    place = os.fspath(store) if store else env.get("KINETIC_STORE") or str(root / "store")
    return Target(chosen, place, root)


def home(environ: Mapping[str, str] | None = None) -> Path:
    """The root of state, caches and the default store; nothing is created."""
    env = os.environ if environ is None else environ
    if given := env.get("KINETIC_HOME"):
        return Path(given).expanduser().absolute()
    import platformdirs

    return platformdirs.user_data_path("kinetic-ray", appauthor=False)


def setting(name: str, environ: Mapping[str, str] | None = None) -> str | None:
    """A setting's text from the environment; None when unset or empty."""
    env = os.environ if environ is None else environ
    return env.get(SETTINGS[name].env) or None


def output_dir(environ: Mapping[str, str] | None = None) -> str | None:
    """KINETIC_OUTPUT_DIR. Inside a job that is the job's own place, where no other job may write: None there."""
    env = os.environ if environ is None else environ
    return None if inside_a_job(env) else setting("output_dir", env)


def inside_a_job(environ: Mapping[str, str] | None = None) -> bool:
    """Whether this process is a job's rank, or one that a rank has started."""
    return bool((os.environ if environ is None else environ).get(_JOB_ID))


def ancestors(environ: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """Ids of those who hold the leases that this process runs under, outermost first; () outside of a cluster.

    Example:
        >>> ancestors({"KINETIC_ANCESTORS": "job-1 call-2"})
        ('job-1', 'call-2')
    """
    env = os.environ if environ is None else environ
    return tuple(env.get(_ANCESTORS, "").split())


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The cluster that this process is a part of: as a rank, a driver, a worker, or what one of these has started.

    Attributes:
        address: host:port of its Ray.
        supervisor: Its supervisor's socket.
    """

    address: str
    supervisor: str


def surroundings(environ: Mapping[str, str] | None = None) -> Surroundings | None:
    """The cluster that this process is a part of; None for an ordinary process."""
    env = os.environ if environ is None else environ
    address = next((env[name] for name in _ADDRESSES if env.get(name)), "")
    supervisor = env.get(_SUPERVISOR, "")
    return Surroundings(address, supervisor) if address and supervisor else None


@contextmanager
def changed_environment(values: Mapping[str, str], *, kept: Collection[str] = ()) -> Iterator[None]:
    """Sets variables of this process for a moment.

    Args:
        values: What to set.
        kept: What else is afterwards as it was before, whoever changes it meanwhile.
    """
    before = {name: os.environ.get(name) for name in (*values, *kept)}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def debug(environ: Mapping[str, str] | None = None) -> bool:
    """Whether the command line shows tracebacks of its own errors."""
    return (setting("debug", environ) or "0").lower() not in ("0", "false", "no", "off")


def bundle_limit(environ: Mapping[str, str] | None = None) -> int:
    """Most bytes of code that are sent.

    Raises:
        ConfigError: KINETIC_BUNDLE_LIMIT_MB is no number.
    """
    text = setting("bundle_limit_mb", environ) or "250"
    if not text.isascii() or not text.isdigit() or int(text) == 0:
        raise ConfigError(f"KINETIC_BUNDLE_LIMIT_MB={text!r}: expected a whole number of megabytes")
    return int(text) * 10**6


def color(environ: Mapping[str, str] | None = None) -> bool:
    """Whether a terminal may be given colours."""
    return setting("no_color", environ) is None


def environment() -> dict[str, str]:
    """A copy of the process's environment, for what a call captures of it."""
    return dict(os.environ)


def owner() -> str:
    """Who submits, for people; "" where the system doesn't tell."""
    return os.environ.get("USER") or os.environ.get("LOGNAME") or ""


def _refuse_profile(profile: str | None, env: Mapping[str, str]) -> None:
    name = profile or env.get("KINETIC_PROFILE")
    if name:
        source = "profile=" if profile else "KINETIC_PROFILE="
        raise ConfigError(
            f"{source}{name!r}: profiles come with a later version of kinetic_ray. "
            "Leave it out (unset KINETIC_PROFILE) to run on this machine"
        )


def _check_backend(name: str, source: str) -> None:
    if name in BACKEND_PLACES or ":" in name:
        return
    if name in LATER_BACKENDS:
        raise ConfigError(f"{source}{name!r}: not available yet in this version of kinetic_ray; 'local' is")
    near = get_close_matches(name, BACKEND_PLACES, n=1)
    hint = f"did you mean {near[0]!r}?" if near else "'local' runs jobs on this machine"
    raise ConfigError(f"{source}{name!r}: no such backend; {hint}")

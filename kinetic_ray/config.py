"""The client's settings: one table, where each value comes from, and the only reader of the environment here."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import TypedDict, Unpack

from kinetic_ray.core.urls import has_password, shown_url
from kinetic_ray.errors import ConfigError
from kinetic_ray.profiles import FIELDS, Profile, Profiles, read_profiles
from kinetic_ray.settings import SETTINGS, megabytes, unknown_variables

#: Backend -> "module:Class"; a backend of one's own is named in that form.
BACKEND_PLACES: Mapping[str, str] = {"local": "kinetic_ray.backends.local.backend:LocalBackend"}
#: Names that later versions will know, and upstream's.
LATER_BACKENDS = ("kuberay", "gke", "pathways")

#: Set on every rank of a job, and so in what it starts.
_JOB_ID = "KINETIC_JOB_ID"
#: Likewise: who holds the leases that it runs under.
_ANCESTORS = "KINETIC_ANCESTORS"
#: Set in every process of a cluster: its supervisor's socket, and where its Ray is. A user's RAY_ADDRESS goes second.
_SUPERVISOR, _ADDRESSES = "KINETIC_SUPERVISOR", ("KINETIC_RAY_ADDRESS", "RAY_ADDRESS")


@dataclass(frozen=True, slots=True)
class Target:
    """Where a call goes.

    Attributes:
        backend: Name of the backend, or "module:Class".
        store_url: The store as given: a folder's path or a URL.
        home: Root of the client's state.
        project, zone, cluster, namespace: Which cluster; None for the local backend, which has none.
        local_slices: The pool that the embedded cluster pretends to have, as JSON; None = any shape on demand.
        overlooked: What names a cluster although the local backend is taken, each with its source, for people.
        profile: The profile that counted.
    """

    backend: str
    store_url: str
    home: Path
    project: str | None = None
    zone: str | None = None
    cluster: str | None = None
    namespace: str | None = None
    local_slices: str | None = None
    overlooked: tuple[str, ...] = field(default=(), compare=False)
    profile: Profile | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Found:
    """What a setting is, and why.

    Attributes:
        value: None where nothing is set and the default is no text.
        source: "store=", "KINETIC_STORE", "profile 'team'", "default".
        beaten: Other values that were there, each with its source, the strongest first.
    """

    value: str | None
    source: str
    beaten: tuple[tuple[str, str], ...] = ()


class TargetKwargs(TypedDict, total=False):
    """What :func:`resolve` takes, for type checkers."""

    backend: str | None
    store: str | os.PathLike[str] | None
    project: str | None
    zone: str | None
    cluster: str | None
    namespace: str | None


def resolve(
    *, profile: str | None = None, environ: Mapping[str, str] | None = None, **given: Unpack[TargetKwargs]
) -> Target:
    """Where a call goes: arguments, then `KINETIC_*`, then the profile, then the defaults.

    Args:
        profile: A named target; None = KINETIC_PROFILE's, else the one in use.
        environ: Stands in for the process's environment.
        **given: `backend` ("local", or "module:Class" of one's own), `store` (a folder or URL), `project`, `zone`,
            `cluster`, `namespace`.

    Raises:
        ConfigError: A setting can't work; the message names it and where it came from.

    Example:
        >>> resolve(store="memory://doc", environ={"KINETIC_HOME": "/tmp/h"}).backend
        'local'
    """
    env = os.environ if environ is None else environ
    chosen = active_profile(profile, env)
    arguments: Mapping[str, object] = given
    found = {name: find_setting(name, arguments.get(name), chosen, env) for name in FIELDS}
    backend, store = found["backend"], found["store"].value
    assert backend.value is not None
    assert store is not None
    check_backend(backend.value, _prefix("backend", backend.source))
    if has_password(store):
        raise ConfigError(
            f"{_prefix('store', found['store'].source)}{shown_url(store)!r}: a URL with a password in it is refused, "
            "for records and lists of processes would tell it"
        )
    if backend.value != "local":
        places = (found[name] for name in _PLACES)
        project, zone, cluster, namespace = (each.value if each.source != "default" else None for each in places)
        return Target(backend.value, store, home(env), project, zone, cluster, namespace, profile=chosen)
    told = tuple(f"{name}={found[name].value!r} ({found[name].source})" for name in _PLACES if _is_set(found[name]))
    pool = found["local_slices"].value
    return Target(backend.value, store, home(env), overlooked=told, profile=chosen, local_slices=pool)


_PLACES = ("project", "zone", "cluster", "namespace")
_GOOGLE = "GOOGLE_CLOUD_PROJECT"


def _is_set(found: Found) -> bool:
    return found.source not in ("default", _GOOGLE)


def find_setting(
    name: str,
    given: object,
    profile: Profile | None,
    environ: Mapping[str, str] | None = None,
) -> Found:
    """What a setting is: the argument, then its variable, then the profile, then the default.

    Args:
        name: Of :data:`SETTINGS`.
        given: The argument or flag.
        profile: The active one.
        environ: Stands in for the process's environment.
    """
    env = os.environ if environ is None else environ
    said = profile.fields.get(name) if profile else None
    google = env.get(_GOOGLE) if name == "project" else None
    candidates = (
        (f"{name}=", str(given) if given else None),
        (SETTINGS[name].env, env.get(SETTINGS[name].env)),
        (f"profile {profile.name!r}" if profile else "", said),
        (_GOOGLE, google),
        ("default", _default(name, env)),
    )
    there = [(source, value) for source, value in candidates if value]
    source, value = there[0] if there else ("default", None)
    return Found(value, source, tuple(there[1:]))


def _default(name: str, env: Mapping[str, str]) -> str | None:
    if name == "store":
        return str(home(env) / "store")
    if name in ("home", "profiles_file"):
        without = {key: value for key, value in env.items() if key != SETTINGS[name].env}
        return str(home(without) if name == "home" else profiles_file(without))
    return SETTINGS[name].default if name in ("backend", "zone", "cluster", "namespace") else None


def profiles_file(environ: Mapping[str, str] | None = None) -> Path:
    """Where the profiles are: keras-team/kinetic's own file, but for whoever has a KINETIC_HOME."""
    env = os.environ if environ is None else environ
    if given := env.get("KINETIC_PROFILES_FILE"):
        return Path(given).expanduser().absolute()
    if env.get("KINETIC_HOME"):
        return home(env) / "profiles.json"
    return Path("~/.kinetic/profiles.json").expanduser()


def profiles(environ: Mapping[str, str] | None = None) -> Profiles:
    """The profiles that there are.

    Raises:
        ConfigError: Their file can't be read, or isn't as it has to be.
    """
    return read_profiles(profiles_file(environ))


def active_profile(given: str | None = None, environ: Mapping[str, str] | None = None) -> Profile | None:
    """The profile that counts: the argument's, then KINETIC_PROFILE's, then the one in use.

    Inside a job only the argument's: its variables say where it is, and the files there are another machine's.

    Raises:
        ConfigError: There is no such profile, or the file of profiles isn't as it has to be.
    """
    env = os.environ if environ is None else environ
    if not given and inside_a_job(env):
        return None
    there = profiles(env)
    if given:
        return there.find(given, "profile=")
    if named := env.get("KINETIC_PROFILE"):
        return there.find(named, "KINETIC_PROFILE=")
    return there.find(there.current, "current=") if there.current else None


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


def storage_emulator(environ: Mapping[str, str] | None = None) -> str | None:
    """Where a fake server stands in for Google's storage, as Google's own clients are told it."""
    given = (os.environ if environ is None else environ).get("STORAGE_EMULATOR_HOST", "").rstrip("/")
    return (given if "://" in given else f"http://{given}") if given else None


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
            os.environ.pop(name, None) if value is None else os.environ.update({name: value})


def debug(environ: Mapping[str, str] | None = None) -> bool:
    """Whether the command line shows tracebacks of its own errors."""
    return (setting("debug", environ) or "0").lower() not in ("0", "false", "no", "off")


def bundle_limit(environ: Mapping[str, str] | None = None) -> int:
    """Most bytes of code that are sent.

    Raises:
        ConfigError: KINETIC_BUNDLE_LIMIT_MB is no number.
    """
    return megabytes("bundle_limit_mb", setting("bundle_limit_mb", environ))


def strange_settings(profile: Profile | None, environ: Mapping[str, str] | None = None) -> list[str]:
    """A line for every variable of the environment and key of a profile that looks like a setting and is none."""
    found = [
        f"{name} is set, but there is no such setting" + (f"; did you mean {near}?" if near else "")
        for name, near in unknown_variables(os.environ if environ is None else environ)
    ]
    return found + (profile.describe_unknown() if profile else [])


def color(environ: Mapping[str, str] | None = None) -> bool:
    """Whether a terminal may be given colours."""
    return setting("no_color", environ) is None


def environment() -> dict[str, str]:
    """A copy of the process's environment, for what a call captures of it."""
    return dict(os.environ)


def owner() -> str:
    """Who submits, for people; "" where the system doesn't tell."""
    return os.environ.get("USER") or os.environ.get("LOGNAME") or ""


def check_backend(name: str, source: str) -> None:
    """Refuses what can't be a backend.

    Args:
        name: "local", or "module:Class".
        source: Where it came from, for the message, e.g. "KINETIC_BACKEND=".

    Raises:
        ConfigError: With the nearest name.
    """
    if name in BACKEND_PLACES or ":" in name:
        return
    if name in LATER_BACKENDS:
        raise ConfigError(f"{source}{name!r}: not available yet in this version of kinetic_ray; 'local' is")
    near = get_close_matches(name, BACKEND_PLACES, n=1)
    hint = f"did you mean {near[0]!r}?" if near else "'local' runs jobs on this machine"
    raise ConfigError(f"{source}{name!r}: no such backend; {hint}")


def _prefix(name: str, source: str) -> str:
    """How a message begins that names a value's source."""
    return f"{source}: {name}=" if source.startswith("profile ") else source.removesuffix("=") + "="

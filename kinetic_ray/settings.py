"""The table of the client's settings, and which `KINETIC_*` names mean something at all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches

from kinetic_ray.errors import ConfigError


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


#: Precedence everywhere: argument or flag, then these, then the profile, then the default.
SETTINGS: Mapping[str, Setting] = {
    "home": Setting("KINETIC_HOME", "the user's data folder", "root of state, caches and the default store"),
    "backend": Setting("KINETIC_BACKEND", "local", "where jobs run"),
    "store": Setting("KINETIC_STORE", "KINETIC_HOME/store", "folder or URL that holds every job's records"),
    "profile": Setting("KINETIC_PROFILE", "the one in use, if any", "a named target: backend, store, cluster"),
    "profiles_file": Setting("KINETIC_PROFILES_FILE", "KINETIC_HOME/profiles.json if set, else ~/.kinetic", "profiles"),
    "project": Setting("KINETIC_PROJECT", "GOOGLE_CLOUD_PROJECT", "a cluster's project; for later versions"),
    "zone": Setting("KINETIC_ZONE", "us-central1-a", "a cluster's zone; for later versions"),
    "cluster": Setting("KINETIC_CLUSTER", "kinetic-cluster", "a cluster's name; for later versions"),
    "namespace": Setting("KINETIC_NAMESPACE", "default", "a namespace of a cluster; for later versions"),
    "output_dir": Setting("KINETIC_OUTPUT_DIR", "the job's own folder in the store", "where jobs put their outputs"),
    "local_slices": Setting("KINETIC_LOCAL_SLICES", "any shape on demand", 'the pool pretended, {"tpu-v6e-16": 2}'),
    "local_idle_s": Setting("KINETIC_LOCAL_IDLE_S", "600", "seconds without work until the embedded cluster stops"),
    "local_memory_mb": Setting("KINETIC_LOCAL_MEMORY_MB", "what the machine has", "memory of all local ranks together"),
    "package_root": Setting("KINETIC_PACKAGE_ROOT", "found from the script", "root of the code that is sent"),
    "bundle_limit_mb": Setting("KINETIC_BUNDLE_LIMIT_MB", "250", "largest code bundle that is sent, in MB"),
    "payload_limit_mb": Setting("KINETIC_PAYLOAD_LIMIT_MB", "500", "largest function with its arguments, in MB"),
    "debug": Setting("KINETIC_DEBUG", "off", "1: errors show where in kinetic they were raised"),
    "no_color": Setting("NO_COLOR", "colours", "anything: no colours on a terminal"),
    "term": Setting("TERM", "a terminal that can move its cursor", "dumb: stages are shown line by line"),
}

#: Set by us: on every rank, in every process of a cluster, by the shell's completion, by benchmarks and tests.
OWN_VARIABLES = frozenset(
    f"KINETIC_{name}"
    for name in (
        *("ANCESTORS", "ATTEMPT", "JOB_ID", "NODE_ID", "NURSERY", "RANK", "RAY_ADDRESS", "SECRETS", "SIMULATED"),
        *("SLICE_INDEX", "SLICE_NAME", "SUPERVISOR", "TEST_CYCLES", "UMASK", "WORLD_SIZE"),
    )
)
#: keras-team/kinetic's settings that mean nothing here.
UPSTREAM_VARIABLES = frozenset(
    f"KINETIC_{name}"
    for name in (
        *("BASE_IMAGE_REPO", "CONTEXT_SIZE_WARN_MB", "DEBUG_PORT", "DEBUG_WAIT_LEADER", "DEBUG_WAIT_TIMEOUT"),
        *("FORCE_DESTROY", "LOG_LEVEL", "NO_DEFAULT_EXCLUDES", "NO_TTY_DEBUG", "PAYLOAD_SIZE_WARN_MB", "RESERVATION"),
    )
)


def megabytes(name: str, text: str | None) -> int:
    """A limit, in bytes.

    Args:
        name: Of the setting.
        text: Its value; None = the default.

    Raises:
        ConfigError: It is no whole number of megabytes.

    Example:
        >>> megabytes("bundle_limit_mb", None)
        250000000
    """
    given = SETTINGS[name]
    text = text or given.default
    if not text.isascii() or not text.isdigit() or int(text) == 0:
        raise ConfigError(f"{given.env}={text!r}: expected a whole number of megabytes")
    return int(text) * 10**6


def unknown_variables(names: Iterable[str]) -> list[tuple[str, str]]:
    """Variables that look like settings and are none, each with the nearest that is one, or "".

    Args:
        names: Of an environment.

    Example:
        >>> unknown_variables(["KINETIC_STOER", "KINETIC_RANK", "PATH"])
        [('KINETIC_STOER', 'KINETIC_STORE')]
    """
    settings = [setting.env for setting in SETTINGS.values()]
    strange = sorted(
        name
        for name in names
        if name.startswith("KINETIC_") and name not in (*settings, *OWN_VARIABLES, *UPSTREAM_VARIABLES)
    )
    return [(name, next(iter(get_close_matches(name, settings, n=1, cutoff=0.8)), "")) for name in strange]

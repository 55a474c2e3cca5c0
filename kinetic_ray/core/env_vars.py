"""Environment variables of a job: which names it may have, which of the client's it captures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kinetic_ray.errors import UsageError

#: Set by the runner on every host; a job's own variables may not pretend to be them.
RESERVED_PREFIX = "KINETIC_"
#: What a wildcard never captures: these describe the client's machine. An exact name does.
# fmt: off
NOT_BY_WILDCARD = frozenset((
    "PATH", "HOME", "PYTHONPATH", "PYTHONHOME", "LD_LIBRARY_PATH", "LD_PRELOAD", "VIRTUAL_ENV", "CONDA_PREFIX",
    "CONDA_DEFAULT_ENV", "CONDA_EXE", "SHELL", "TMPDIR", "TMP", "TEMP", "HOSTNAME", "USER", "LOGNAME", "SSH_AUTH_SOCK",
    "KUBERNETES_SERVICE_HOST", "KERAS_BACKEND",
))
# fmt: on


def capture(patterns: Iterable[str], environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that `capture_env_vars` names, as they are now; names that aren't set are passed over.

    Args:
        patterns: Names, or prefixes with "*" at the end.
        environ: The client's environment.

    Example:
        >>> capture(["WANDB_*", "HOME"], {"WANDB_MODE": "offline", "HOME": "/h", "PATH": "/bin"})
        {'HOME': '/h', 'WANDB_MODE': 'offline'}
    """
    wanted = tuple(patterns)
    prefixes = tuple(pattern[:-1] for pattern in wanted if pattern.endswith("*"))
    found = {
        name: value
        for name, value in environ.items()
        if name in wanted or (name.startswith(prefixes) and not _stays(name))
    }
    return dict(sorted(found.items()))


def _stays(name: str) -> bool:
    return name in NOT_BY_WILDCARD or name.startswith(RESERVED_PREFIX)


def check_env_name(option: str, key: object) -> None:
    """Refuses what can't name a job's variable.

    Raises:
        UsageError: Names the option and the way out.
    """
    if not isinstance(key, str) or not key or "=" in key or "\0" in key:
        raise UsageError(f"{option}: {key!r} can't be the name of an environment variable")
    if key.startswith(RESERVED_PREFIX):
        raise UsageError(
            f"{option}: {key!r}: names that start with {RESERVED_PREFIX} are set by kinetic_ray on every host"
        )

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
_NOT_IN_NAMES = frozenset("=\0\n\r")
#: Bytes of "NAME=value" and its end that Linux lets a process have (MAX_ARG_STRLEN), and of all of a job's variables:
#: arguments and environment share 2 MiB, and the host has variables of its own.
_LONGEST, _MOST = 128 * 1024, 1536 * 1024


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
    if not isinstance(key, str) or not key or not _NOT_IN_NAMES.isdisjoint(key) or _unwritable(key) is not None:
        # What follows a "=" is a value that was given in the wrong place.
        shown = f"{key.partition('=')[0]}=..." if isinstance(key, str) and "=" in key else key
        raise UsageError(f"{option}: {shown!r} can't be the name of an environment variable")
    if key.startswith(RESERVED_PREFIX):
        raise UsageError(
            f"{option}: {key!r}: names that start with {RESERVED_PREFIX} are set by kinetic_ray on every host"
        )


def check_env_value(option: str, key: str, value: object) -> None:
    """Refuses what can't be a variable's value.

    Raises:
        UsageError: Names the option, the variable and the way out.
    """
    if not isinstance(value, str):
        raise UsageError(f"{option}[{key!r}]: expected text, got {type(value).__name__}; write str(...) around it")
    if "\0" in value:
        raise UsageError(
            f"{option}[{key!r}]: a NUL character stands at index {value.index(chr(0))}, which no environment variable "
            "can hold; encode the value, e.g. as base64"
        )
    if (place := _unwritable(value)) is not None:
        raise UsageError(
            f"{option}[{key!r}]: the character at index {place} is half of a surrogate pair, which no environment "
            "variable can hold; encode the value, e.g. as base64"
        )


def _unwritable(text: str) -> int | None:
    """Where a text has what can't be made bytes; what Python made of bytes that are no UTF-8 can."""
    try:
        text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as exc:
        return exc.start
    return None


def check_env_size(environment: Mapping[str, str]) -> None:
    """Refuses variables that no process could be started with.

    Raises:
        UsageError: Names the longest variable, its length and the way out.
    """
    sizes = {name: len(f"{name}={value}".encode(errors="surrogatepass")) + 1 for name, value in environment.items()}
    longest = max(sizes, key=lambda name: sizes[name], default="")
    way_out = "pass what is large as an argument of the function, or in a file"
    if longest and sizes[longest] > _LONGEST:
        raise UsageError(
            f"environment variable {longest!r}: {sizes[longest]} bytes with its name, Linux allows {_LONGEST}; "
            f"{way_out}"
        )
    if (total := sum(sizes.values())) > _MOST:
        raise UsageError(
            f"the job's {len(sizes)} environment variables have {total} bytes, {_MOST} are allowed; the longest is "
            f"{longest!r} with {sizes[longest]}; {way_out}"
        )

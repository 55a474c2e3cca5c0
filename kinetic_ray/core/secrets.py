"""References to secrets: a call names them, their values stay where its hosts are. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from kinetic_ray.core.env_vars import RESERVED_PREFIX
from kinetic_ray.errors import ConfigError, UsageError

#: A name is short, so that a token which is given in its place is refused before anything prints it.
_NAME_RE = re.compile(r"[a-z0-9]([a-z0-9.-]{0,30}[a-z0-9])?")
_KEY_RE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
_NAME_RULE = "at most 32 lower-case letters, digits, '-' and '.'"

#: What well-known services read their credentials from: the variables of a secret that is called after one.
# fmt: off
USUAL_KEYS: Mapping[str, tuple[str, ...]] = {
    "anthropic": ("ANTHROPIC_API_KEY",),
    "aws": ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"),
    "comet": ("COMET_API_KEY",),
    "github": ("GITHUB_TOKEN",),
    "hf": ("HF_TOKEN",),
    "huggingface": ("HF_TOKEN",),
    "kaggle": ("KAGGLE_USERNAME", "KAGGLE_KEY"),
    "mlflow": ("MLFLOW_TRACKING_TOKEN",),
    "neptune": ("NEPTUNE_API_TOKEN",),
    "openai": ("OPENAI_API_KEY",),
    "wandb": ("WANDB_API_KEY",),
}
# fmt: on


@dataclass(frozen=True, slots=True)
class SecretRef:
    """One item of `secrets=`.

    Attributes:
        name: The secret.
        key: The one variable of it that is wanted; "" = all.
    """

    name: str
    key: str = ""

    @property
    def text(self) -> str:
        """As it is written."""
        return f"{self.name}:{self.key}" if self.key else self.name


def parse_ref(text: str) -> SecretRef:
    """Reads what :attr:`SecretRef.text` is.

    Raises:
        ValueError: It is none; without the text, which may be a value that was given by mistake.

    Example:
        >>> parse_ref("hf"), parse_ref("aws:AWS_ACCESS_KEY_ID").key
        (SecretRef(name='hf', key=''), 'AWS_ACCESS_KEY_ID')
    """
    name, colon, key = text.partition(":")
    if not _NAME_RE.fullmatch(name) or (colon and not _KEY_RE.fullmatch(key)):
        raise ValueError("no reference to a secret")
    return SecretRef(name, key)


def check_secrets(option: str, value: Any) -> dict[str, Any]:
    """Checks the option: a list of names; each stands once, in order.

    Raises:
        UsageError: It is anything else. No message repeats what was given: it may be a value.
    """
    how = "write the names only, such as ['hf'], and put the value where hosts find it: kinetic secret set hf"
    if isinstance(value, Mapping):
        raise UsageError(f"{option}=: takes names of secrets, not a mapping with their values: {how}")
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise UsageError(f"{option}=: expected a list of names, got {type(value).__name__}: {how}")
    found: dict[str, None] = {}
    for place, text in enumerate(value):
        try:
            found[parse_ref(text).text] = None
        except (ValueError, AttributeError):
            raise UsageError(
                f"{option}[{place}]: no name of a secret ({_NAME_RULE}), nor NAME:VARIABLE: {how}"
            ) from None
    return {option: tuple(found)}


def check_name(name: str) -> str:
    """The name of a secret, as it may be stored.

    Raises:
        UsageError: It can't be one.
    """
    if not _NAME_RE.fullmatch(name):
        raise UsageError(f"that can't be the name of a secret: {_NAME_RULE}")
    return name


def check_key(key: str) -> str:
    """The variable that a value is set as.

    Raises:
        UsageError: It can't be one; "NAME=value" is not repeated.
    """
    if "=" in key:
        raise UsageError(
            "a value is no argument, which others could see with ps: name the variable only; its value is asked for, "
            "or read from standard input"
        )
    if not _KEY_RE.fullmatch(key):
        raise UsageError("that can't be the name of a variable: letters, digits and '_'")
    if key.startswith(RESERVED_PREFIX):
        raise UsageError(f"{key}: names that start with {RESERVED_PREFIX} are set by kinetic_ray on every host")
    return key


def variables_of(references: Iterable[str], stored: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """The variables that secrets set.

    Args:
        references: As :func:`check_secrets` gives them.
        stored: The values by name and variable.

    Raises:
        ConfigError: A secret or a variable of it is not there, or two set one variable to different values. Names
            what there is, never a value.

    Example:
        >>> variables_of(["hf", "aws:AWS_REGION"], {"hf": {"HF_TOKEN": "x"}, "aws": {"AWS_REGION": "y", "B": "z"}})
        {'HF_TOKEN': 'x', 'AWS_REGION': 'y'}
    """
    found: dict[str, str] = {}
    giver: dict[str, str] = {}
    for reference in map(parse_ref, references):
        if reference.name not in stored:
            raise _no_secret(reference.name, stored)
        values = stored[reference.name]
        if reference.key and reference.key not in values:
            raise ConfigError(
                f"secret {reference.name!r} has no such variable as is asked for; it has {_listed(values)}. "
                f"Add it: kinetic secret set {reference.name} VARIABLE"
            )
        for key in (reference.key,) if reference.key else tuple(values):
            if found.setdefault(key, values[key]) != values[key]:
                raise ConfigError(
                    f"the secrets {giver[key]!r} and {reference.name!r} both set {key}: name the variables that are "
                    f"wanted of one, as {reference.name}:VARIABLE"
                )
            giver.setdefault(key, reference.name)
    return found


def _no_secret(name: str, stored: Mapping[str, object]) -> ConfigError:
    near = get_close_matches(name, stored, n=1)
    hint = f"did you mean {near[0]!r}? There are: {_listed(stored)}" if near else f"there are: {_listed(stored)}"
    return ConfigError(f"no secret {name!r} on this host; {hint}. Store it: kinetic secret set {name}")


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "none"

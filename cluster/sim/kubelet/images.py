"""What stands for a container image here: an entry of a table, found by the image's name."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

_NAME = re.compile(
    r"(?:[a-zA-Z0-9.-]+(?::[0-9]+)?/)?[a-z0-9]+(?:[._/-]+[a-z0-9]+)*(?::[\w][\w.-]{0,127})?(?:@sha256:[0-9a-f]{64})?"
)


@dataclass(frozen=True, slots=True)
class Image:
    """An environment that a container of this image finds.

    Attributes:
        env: Its variables.
        workdir: Where it starts.
        entrypoint: What it runs unless the pod says otherwise.
        cmd: The arguments of that.
        binds: Path inside -> path of the machine.
        nominal: Whether its containers run in name only: no process, Ready at once.
        exit_after: Seconds after which such a container ends by itself; never if None.
        exit_code: How it ends then.
    """

    env: Mapping[str, str] = field(default_factory=dict)
    workdir: str = ""
    entrypoint: tuple[str, ...] = ()
    cmd: tuple[str, ...] = ()
    binds: Mapping[str, str] = field(default_factory=dict)
    nominal: bool = False
    exit_after: float | None = None
    exit_code: int = 0

    def for_waiting(self) -> Image:
        """The same for a container whose end is waited for: in name only, it comes at once."""
        endless = self.nominal and self.exit_after is None
        return replace(self, exit_after=0.0) if endless else self


class PullError(Exception):
    """An image that can't be had; the message is what a runtime would say."""


class InvalidNameError(PullError):
    """What was given is no image's name."""


def with_tag(name: str) -> str:
    """The name with the tag that is meant where none is given."""
    return name if "@" in name or ":" in name.rsplit("/", 1)[-1] else f"{name}:latest"


def find(table: Mapping[str, Any], name: str) -> Image:
    """The image of a name: the first pattern that matches counts.

    Raises:
        PullError: No entry, or one that says how pulling fails.
        InvalidNameError: It is no name.
    """
    if not _NAME.fullmatch(name):
        raise InvalidNameError(f'couldn\'t parse image name "{name}": invalid reference format')
    full = with_tag(name)
    entry = next(
        (table[key] for key in table if fnmatch.fnmatchcase(name, key) or fnmatch.fnmatchcase(full, key)), None
    )
    reference = full if "/" in full else f"docker.io/library/{full}"
    prefix = f'failed to pull and unpack image "{reference}": failed to resolve reference "{reference}"'
    if entry is None:
        raise PullError(f"rpc error: code = NotFound desc = {prefix}: {reference}: not found")
    if entry.get("pull_error"):
        raise PullError(f"rpc error: code = Unknown desc = {prefix}: {entry['pull_error']}")
    return Image(
        env={str(key): str(value) for key, value in (entry.get("env") or {}).items()},
        workdir=str(entry.get("workdir") or ""),
        entrypoint=tuple(entry.get("entrypoint") or ()),
        cmd=tuple(entry.get("cmd") or ()),
        binds=dict(entry.get("binds") or {}),
        nominal=bool(entry.get("override")),
        exit_after=entry.get("exit_after"),
        exit_code=int(entry.get("exit_code") or 0),
    )

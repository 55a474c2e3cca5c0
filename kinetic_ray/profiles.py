"""Profiles: named targets in one JSON file, which keras-team/kinetic reads and writes too."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from kinetic_ray.errors import ConfigError, UsageError

#: What a profile may say. Project to namespace are keras-team/kinetic's, the others ours.
FIELDS = ("backend", "store", "project", "zone", "cluster", "namespace", "local_slices")
#: keras-team/kinetic's, which this version keeps and doesn't use.
KEPT_FIELDS = ("state_backend",)

_NAME_RE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_LOCK_TIMEOUT = 10.0

#: The whole file: {"current": name or null, "profiles": {name: {field: text}}}.
Document = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Profile:
    """One named target.

    Attributes:
        name: Its name.
        fields: What it says, of :data:`FIELDS`.
        unknown: What it says beside that.
    """

    name: str
    fields: Mapping[str, str]
    unknown: tuple[str, ...] = ()

    def describe_unknown(self) -> list[str]:
        """A line for every key that this version doesn't know, with the nearest one that it does."""
        return [f"profile {self.name!r}: unknown key {key!r}; {_nearest(key, FIELDS)}" for key in self.unknown]


@dataclass(frozen=True, slots=True)
class Profiles:
    """The file as it was read.

    Attributes:
        path: Where it is, or would be.
        document: What stands in it.
    """

    path: Path
    document: Document

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.document["profiles"])

    @property
    def current(self) -> str | None:
        """The profile in use; None as well where the file names one that is gone."""
        name = self.document["current"]
        return name if name in self.document["profiles"] else None

    def find(self, name: str, source: str) -> Profile:
        """A profile by its name.

        Args:
            name: Its name.
            source: Where the name came from, for the message: "--profile=", "KINETIC_PROFILE=".

        Raises:
            ConfigError: There is none; names the nearest.
        """
        found = self.document["profiles"].get(name)
        if found is None:
            known = _nearest(name, self.names) if self.names else f"make it: kinetic profile create {name}"
            raise ConfigError(f"{source}{name!r}: no such profile in {self.path}; {known}")
        fields = {key: found[key] for key in FIELDS if found.get(key)}
        return Profile(name, fields, tuple(key for key in found if key not in FIELDS and key not in KEPT_FIELDS))


def read_profiles(path: Path) -> Profiles:
    """Reads the file; one that isn't there holds no profiles.

    Raises:
        ConfigError: It can't be read, or isn't as it has to be; names the file and what is wrong.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return Profiles(path, {"current": None, "profiles": {}})
    except (OSError, UnicodeDecodeError) as exc:
        raise ConfigError(f"{path}: the profiles can't be read: {exc}") from exc
    return Profiles(path, _checked(path, text))


def edit_profiles(path: Path, change: Callable[[Document], Document]) -> Profiles:
    """Changes the file: one writer at a time, and every reader sees it as it was before or as it is afterwards.

    Args:
        path: The file.
        change: Makes the new document of the present one; what it raises leaves the file as it is.

    Raises:
        ConfigError: The file isn't as it has to be, can't be written, or is held by another process.
    """
    from filelock import FileLock, Timeout

    place = Path(os.path.realpath(path))  # a link, into a folder of dotfiles say, stays one
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{place}.lock", timeout=_LOCK_TIMEOUT):
            changed = change(read_profiles(path).document)
            _replace(place, changed)
    except Timeout:
        raise ConfigError(f"{path} is being changed by another process, for {_LOCK_TIMEOUT:g} s already") from None
    except OSError as exc:
        raise ConfigError(f"{path}: the profiles can't be written: {exc}") from exc
    return Profiles(path, changed)


# Changes, as `edit_profiles` takes them.


def with_profile(name: str, fields: Mapping[str, str], *, replace: bool = False) -> Callable[[Document], Document]:
    """Adds a profile; the first one becomes the current one.

    Raises:
        UsageError: Such a name can't be, or is taken and not to be replaced.
    """
    if not _NAME_RE.fullmatch(name):
        raise UsageError(
            f"{name!r} can't be a profile's name: 1 to 64 letters, digits, '-' and '_', the first a letter or digit"
        )

    def change(document: Document) -> Document:
        profiles = document["profiles"]
        if name in profiles and not replace:
            raise UsageError(f"there is a profile {name!r} already; --force replaces it")
        current = document["current"] if profiles else name
        return {**document, "current": current, "profiles": {**profiles, name: dict(fields)}}

    return change


def without_profile(name: str) -> Callable[[Document], Document]:
    """Takes a profile away; if it was the current one, there is none then."""

    def change(document: Document) -> Document:
        rest = {other: fields for other, fields in document["profiles"].items() if other != name}
        current = None if document["current"] == name else document["current"]
        return {**document, "current": current, "profiles": rest}

    return change


def with_current(name: str | None) -> Callable[[Document], Document]:
    """Makes a profile the current one, or none."""

    def change(document: Document) -> Document:
        return {**document, "current": name}

    return change


def _replace(place: Path, document: Document) -> None:
    import json

    mode = place.stat().st_mode & 0o777 if place.exists() else 0o600
    fresh = place.with_name(f"{place.name}.new")  # one name: what a killed writer leaves is written over by the next
    fresh.unlink(missing_ok=True)
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(json.dumps(document, indent=2, ensure_ascii=False) + "\n")
        file.flush()
        os.fchmod(file.fileno(), mode)
        os.fsync(file.fileno())
    fresh.replace(place)


def _checked(path: Path, text: str) -> Document:
    import json

    def wrong(where: str, expected: str) -> ConfigError:
        return ConfigError(f"{path}: {where}: expected {expected}. Mend it, or move the file away")

    try:
        document = json.loads(text)
    except ValueError as exc:
        raise ConfigError(f"{path} is no JSON: {exc}. Mend it, or move the file away") from None
    if not isinstance(document, dict):
        raise wrong("the file", 'an object {"current": ..., "profiles": {...}}')
    current, profiles = document.setdefault("current", None), document.setdefault("profiles", {})
    if current is not None and not isinstance(current, str):
        raise wrong("current", "a profile's name or null")
    if not isinstance(profiles, dict):
        raise wrong("profiles", "an object of profiles by name")
    for name, fields in profiles.items():
        if not isinstance(fields, dict):
            raise wrong(f"profiles.{name}", "an object")
        for key in FIELDS:
            if not isinstance(fields.get(key), str | None):
                raise wrong(f"profiles.{name}.{key}", "a text or null")
    return document


def _nearest(name: str, known: tuple[str, ...]) -> str:
    near = get_close_matches(name, known, n=1)
    return f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(known)}"

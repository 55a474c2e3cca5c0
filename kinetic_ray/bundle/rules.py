"""What of a project is not sent, and why: version control, environments, caches, secrets, what ignore files name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import translate
from pathlib import Path
from typing import Literal

import pathspec

GIT_FILE, OWN_FILE = ".gitignore", ".kineticignore"
#: What the root of a project holds.
MARKS = ("pyproject.toml", "setup.py", ".git")

# Names are compared in lower case: a file system may not tell them apart, and the program that made the file may not.
# fmt: off
_HISTORY = frozenset((".git", ".hg", ".svn", ".bzr"))
_CACHES = frozenset((
    "__pycache__", "node_modules", "site-packages", ".tox", ".nox", ".eggs", ".mypy_cache", ".ruff_cache",
    ".pytest_cache", ".hypothesis", ".ipynb_checkpoints", ".cache", ".idea", ".vscode", ".terraform",
))
_SECRET_FOLDERS = frozenset((
    ".ssh", ".aws", ".azure", ".gnupg", ".kube", ".docker", ".gcloud", ".password-store",
))
_FILES = ("*.pyc", "*.pyo", ".ds_store", "thumbs.db", "*.swp", "*~")
_SECRETS = (
    ".env", ".env.*", "*.env", ".envrc", "*.pem", "*.key", "*.p8", "*.p12", "*.pfx", "*.ppk", "*.jks", "*.keystore",
    "*.kdbx", "id_rsa*", "id_dsa*", "id_ecdsa*", "id_ed25519*",
    ".netrc", "_netrc", ".pypirc", ".npmrc", ".yarnrc.yml", ".boto", ".s3cfg", ".pgpass", ".my.cnf", ".dockercfg",
    ".vault-token", ".git-credentials", ".htpasswd", "kubeconfig", "kubeconfig.y*ml",
    "credentials", "credentials.json", "credentials.toml", "credentials.y*ml", "client_secret*.json", "token.json",
    "kaggle.json", "application_default_credentials.json", "gha-creds-*.json", "service-account*.json",
    "service_account*.json", "serviceaccount*.json", "secret.json", "secrets.json", "secret.toml", "secrets.toml",
    "secret.y*ml", "secrets.y*ml", "*.tfstate", "*.tfstate.backup",
)
_HARMLESS = frozenset((".env.example", ".env.sample", ".env.template", ".env.dist", ".env.defaults"))
# fmt: on
_MARKS_OF_ENVIRONMENTS = ("pyvenv.cfg", "conda-meta")


class Why(StrEnum):
    """Kinds of reasons for which something is not sent."""

    SECRET = "secret"
    HISTORY = "version control"
    ENVIRONMENT = "environment"
    CACHE = "cache"
    GITIGNORE = "gitignore"
    KINETICIGNORE = "kineticignore"
    AVOIDED = "kinetic's own"
    LINK = "link that leaves"
    NOWHERE = "link to nothing"
    SPECIAL = "no file"
    UNREADABLE = "unreadable"


@dataclass(frozen=True, slots=True)
class Reason:
    """Why something is not sent.

    Attributes:
        why: The kind of reason.
        text: The same in words, such as '.gitignore line 3: "*.log"'.
    """

    why: Why
    text: str


def _any_of(patterns: Iterable[str]) -> re.Pattern[str]:
    return re.compile("|".join(translate(pattern) for pattern in patterns))


_IS_SECRET, _IS_LITTER = _any_of(_SECRETS), _any_of(_FILES)
_BY_WHY = {
    Why.SECRET: Reason(Why.SECRET, "its name says that it holds keys or passwords"),
    Why.HISTORY: Reason(Why.HISTORY, "version control"),
    Why.CACHE: Reason(Why.CACHE, "a cache, or made by tools"),
}


def is_secret(name: str) -> bool:
    """Whether a file's name says that it holds keys or passwords.

    Example:
        >>> is_secret(".env"), is_secret("SERVER.PEM"), is_secret(".env.example")
        (True, True, False)
    """
    name = name.lower()
    return name not in _HARMLESS and _IS_SECRET.match(name) is not None


def by_default(path: Path, *, folder: bool) -> bool:
    """Whether something is left out unless a .kineticignore asks for it ("!name")."""
    return default_reason(path, folder=folder) is not None


def default_reason(path: Path, *, folder: bool) -> Reason | None:
    """Why something is left out unless a .kineticignore asks for it; None if it isn't."""
    name = path.name.lower()
    if folder:
        return _folder_reason(path, name)
    if is_secret(name):
        return _BY_WHY[Why.SECRET]
    return _BY_WHY[Why.CACHE] if _IS_LITTER.match(name) else None


def _folder_reason(path: Path, name: str) -> Reason | None:
    if name in _HISTORY:
        return _BY_WHY[Why.HISTORY]
    if name in _CACHES:
        return _BY_WHY[Why.CACHE]
    if name in _SECRET_FOLDERS:
        return _BY_WHY[Why.SECRET]
    if name == ".venv":
        return Reason(Why.ENVIRONMENT, "a virtual environment")
    mark = next((mark for mark in _MARKS_OF_ENVIRONMENTS if (path / mark).exists()), None)
    return None if mark is None else Reason(Why.ENVIRONMENT, f"an environment: it holds {mark}")


@dataclass(frozen=True, slots=True)
class _IgnoreFile:
    """One ignore file.

    Attributes:
        place: Its path, as seen from the root.
        spec: Its patterns.
        lines: The line of each pattern: number and text.
    """

    place: str
    spec: pathspec.GitIgnoreSpec
    lines: tuple[tuple[int, str], ...]

    def reason(self, index: int | None, why: Why) -> Reason:
        number, text = self.lines[index or 0]
        return Reason(why, f"{self.place} line {number}: {text.strip()}")


@dataclass(frozen=True, slots=True)
class _Level:
    """The ignore files of one folder."""

    base: str  # relative to the root, with a trailing slash; may lead upwards
    git: _IgnoreFile
    own: _IgnoreFile


class Rules:
    """The ignore files from a repository's top down to one folder.

    Patterns are git's. A deeper file beats a shallower one, a .kineticignore beats any .gitignore, and both stand for
    all folders below. As with git nothing inside an ignored folder can be asked for; ask for the folder.
    """

    def __init__(self, levels: Sequence[_Level] = ()) -> None:
        self._levels = tuple(levels)

    @staticmethod
    def at_root(root: Path) -> Rules:
        """The rules at a project's root: its own, and those of the repository around it."""
        levels: list[_Level] = []
        for above, folder in enumerate(repository_folders(root)):
            prefix = root.relative_to(folder).as_posix()
            levels.insert(0, _level(folder, "" if prefix == "." else f"^{prefix}/", "../" * above))
        return Rules(levels)

    def below(self, folder: Path, relative: str) -> Rules:
        """The rules inside a folder, given with its path relative to the root."""
        if not ((folder / GIT_FILE).is_file() or (folder / OWN_FILE).is_file()):
            return self
        return Rules((*self._levels, _level(folder, f"{relative}/", f"{relative}/")))

    def own_word(self, relative: str, *, folder: bool) -> bool | None:
        """What the .kineticignore files say: True = leave it out, False = send it, None = nothing."""
        said = self._word(relative, folder, own=True)
        return said if said is None else said is not False

    def reason(self, path: Path, relative: str, *, folder: bool) -> Reason | None:
        """Why a path is left out; None if it is sent."""
        own = self._word(relative, folder, own=True)
        if own is not None:
            return own or None
        return default_reason(path, folder=folder) or self._word(relative, folder, own=False) or None

    def _word(self, relative: str, folder: bool, *, own: bool) -> Reason | Literal[False] | None:
        """What the ignore files of one name say: a reason = leave it out, False = send it, None = nothing."""
        for level in reversed(self._levels):
            name = level.base[1:] + relative if level.base.startswith("^") else relative[len(level.base) :]
            file = level.own if own else level.git
            said = file.spec.check_file(f"{name}/" if folder else name)
            if said.include is not None:
                return said.include and file.reason(said.index, Why.KINETICIGNORE if own else Why.GITIGNORE)
        return None


def repository_folders(root: Path) -> list[Path]:
    """The root and its parents up to the repository's top; the root alone outside of any."""
    folders = [root]
    for folder in (root, *root.parents):
        if folder != root:
            folders.append(folder)
        if (folder / ".git").exists():
            return folders
    return [root]


def _level(folder: Path, base: str, place: str) -> _Level:
    return _Level(base, *(_read(folder / name, place + name) for name in (GIT_FILE, OWN_FILE)))


def _read(path: Path, place: str) -> _IgnoreFile:
    try:
        text = path.read_text("utf-8", errors="replace")
    except OSError:  # there is none, or it is a folder
        text = ""
    lines = tuple((number, line) for number, line in enumerate(text.split("\n"), 1) if line and _is_pattern(line))
    return _IgnoreFile(place, pathspec.GitIgnoreSpec.from_lines(line for _, line in lines), lines)


def _is_pattern(line: str) -> bool:
    """Git passes over a line that is no pattern, such as a lone "!"."""
    try:
        pathspec.GitIgnoreSpec.from_lines([line])
    except ValueError:
        return False
    return True

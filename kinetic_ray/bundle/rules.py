"""What of a project is not sent: version control, environments, caches, secrets, and what its ignore files name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import translate
from pathlib import Path

import pathspec

GIT_FILE, OWN_FILE = ".gitignore", ".kineticignore"

# fmt: off
_FOLDERS = frozenset((
    ".git", ".hg", ".svn", ".bzr",
    "__pycache__", ".venv", "node_modules", "site-packages", ".tox", ".nox", ".eggs", ".mypy_cache", ".ruff_cache",
    ".pytest_cache", ".hypothesis", ".ipynb_checkpoints", ".cache", ".idea", ".vscode", ".terraform",
    ".ssh", ".aws", ".gnupg", ".kube", ".docker", ".gcloud",
))
_FILES = ("*.pyc", "*.pyo", ".DS_Store", "Thumbs.db", "*.swp", "*~")
_SECRETS = (
    ".env", ".env.*", "*.env", "*.pem", "*.key", "*.p12", "*.pfx", "*.jks", "*.keystore", "*.kdbx", "id_rsa*",
    "id_dsa*", "id_ecdsa*", "id_ed25519*", ".netrc", "_netrc", ".pypirc", ".npmrc",
    ".git-credentials", ".htpasswd", "kubeconfig",
    "credentials.json", "client_secret*.json", "application_default_credentials.json", "service-account*.json",
    "service_account*.json", "secrets.toml",
)
_HARMLESS = (".env.example", ".env.sample", ".env.template", ".env.dist")
# fmt: on
_MARKS_OF_ENVIRONMENTS = ("pyvenv.cfg", "conda-meta")


def _any_of(patterns: Iterable[str]) -> re.Pattern[str]:
    return re.compile("|".join(translate(pattern) for pattern in patterns))


_LEFT_OUT = _any_of((*_FILES, *_SECRETS))


def is_secret(name: str) -> bool:
    """Whether a file's name says that it holds keys or passwords."""
    return name not in _HARMLESS and _any_of(_SECRETS).match(name) is not None


def by_default(path: Path, *, folder: bool) -> bool:
    """Whether something is left out unless a .kineticignore asks for it ("!name")."""
    if folder:
        return path.name in _FOLDERS or any((path / mark).exists() for mark in _MARKS_OF_ENVIRONMENTS)
    return path.name not in _HARMLESS and _LEFT_OUT.match(path.name) is not None


@dataclass(frozen=True, slots=True)
class _Level:
    """The ignore files of one folder."""

    base: str  # relative to the root, with a trailing slash; may lead upwards
    git: pathspec.GitIgnoreSpec
    own: pathspec.GitIgnoreSpec


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
        for folder in repository_folders(root):
            prefix = root.relative_to(folder).as_posix()
            levels.insert(0, _level(folder, "" if prefix == "." else f"^{prefix}/"))
        return Rules(levels)

    def below(self, folder: Path, relative: str) -> Rules:
        """The rules inside a folder, given with its path relative to the root."""
        if not ((folder / GIT_FILE).is_file() or (folder / OWN_FILE).is_file()):
            return self
        return Rules((*self._levels, _level(folder, f"{relative}/")))

    def own_word(self, relative: str, *, folder: bool) -> bool | None:
        """What the .kineticignore files say: True = leave it out, False = send it, None = nothing."""
        return self._word(relative, folder, own=True)

    def leaves_out(self, path: Path, relative: str, *, folder: bool) -> bool:
        """Whether a path is left out."""
        own = self.own_word(relative, folder=folder)
        if own is not None:
            return own
        return by_default(path, folder=folder) or self._word(relative, folder, own=False) is True

    def _word(self, relative: str, folder: bool, *, own: bool) -> bool | None:
        for level in reversed(self._levels):
            name = level.base[1:] + relative if level.base.startswith("^") else relative[len(level.base) :]
            spec = level.own if own else level.git
            said = spec.check_file(f"{name}/" if folder else name).include
            if said is not None:
                return said
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


def _level(folder: Path, base: str) -> _Level:
    return _Level(base, _spec(folder / GIT_FILE), _spec(folder / OWN_FILE))


def _spec(path: Path) -> pathspec.GitIgnoreSpec:
    try:
        text = path.read_text("utf-8", errors="replace")
    except OSError:  # there is none, or it is a folder
        text = ""
    return pathspec.GitIgnoreSpec.from_lines(filter(_is_pattern, text.split("\n")))


def _is_pattern(line: str) -> bool:
    """Git passes over a line that is no pattern, such as a lone "!"."""
    try:
        pathspec.GitIgnoreSpec.from_lines([line])
    except ValueError:
        return False
    return True

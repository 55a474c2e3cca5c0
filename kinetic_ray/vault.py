"""Where the values of secrets lie on a machine: one owner-only file each, in an owner-only folder.

Only `kinetic secret` writes them, and only the agent of a host passes them on, into the environment of its ranks: they
go through no store, no argument and no part of Ray.
"""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from kinetic_ray.core.env_vars import check_env_size, check_env_value
from kinetic_ray.core.records import dump_record, load_record
from kinetic_ray.core.secrets import check_key, check_name, parse_ref, variables_of
from kinetic_ray.errors import ConfigError

_ENDING = ".json"
_LOCK = ".lock"


@dataclass(frozen=True, slots=True)
class Entry:
    """What may be told of a secret.

    Attributes:
        name: Its name.
        keys: The variables that it sets.
        stored_at: Unix seconds of its last change.
    """

    name: str
    keys: tuple[str, ...]
    stored_at: float


@dataclass(frozen=True, slots=True)
class Vault:
    """The secrets of one folder.

    Attributes:
        folder: Made when the first one is stored.
    """

    folder: Path

    @staticmethod
    def of(home: Path) -> Vault:
        """That of a root of state (`KINETIC_HOME`)."""
        return Vault(home / "secrets")

    def names(self) -> list[str]:
        """The names of all secrets."""
        try:
            found = sorted(path.name for path in self.folder.iterdir() if path.name.endswith(_ENDING))
        except FileNotFoundError:
            return []
        except OSError as exc:
            raise ConfigError(f"the secrets in {self.folder} can't be listed: {exc.strerror}") from exc
        return [name.removesuffix(_ENDING) for name in found if not name.startswith(".")]

    def entries(self) -> list[Entry]:
        """What may be told of all secrets.

        Raises:
            ConfigError: One can't be read, or others could read it.
        """
        return [Entry(name, tuple(sorted(self._values(name))), self._stat(name).st_mtime) for name in self.names()]

    def version(self, name: str) -> str:
        """Differs whenever a secret has been changed, without a look at it; "" where there is none."""
        try:
            found = self._path(name).stat()
        except OSError:
            return ""
        return f"{found.st_mtime_ns:x}.{found.st_ino:x}"

    def variables(self, references: Iterable[str]) -> dict[str, str]:
        """The variables that secrets set, with their values.

        Raises:
            ConfigError: One is not there, others could read it, or two set one variable.
        """
        wanted = tuple(references)
        there = self.names()
        stored: dict[str, Mapping[str, str]] = {name: {} for name in there}
        stored |= {name: self._values(name) for name in {parse_ref(text).name for text in wanted} & set(there)}
        return variables_of(wanted, stored)

    def check(self, references: Iterable[str]) -> None:
        """Refuses what :meth:`variables` would refuse.

        Raises:
            ConfigError: See there.
        """
        self.variables(references)

    def put(self, name: str, values: Mapping[str, str]) -> None:
        """Stores values of a secret, beside those that it has of other variables.

        Raises:
            UsageError: A name or a value can't be one.
            ConfigError: It can't be written.
        """
        check_name(name)
        for key, value in values.items():
            check_env_value("secret", check_key(key), value)
        with self._locked():
            before = self._values(name) if self._path(name).exists() else {}
            after = {**before, **values}
            check_env_size(after)
            self._write(name, after)

    def remove(self, name: str, keys: Iterable[str] = ()) -> bool:
        """Removes a secret, or some variables of it; False if there was nothing of that."""
        check_name(name)
        gone = frozenset(keys)
        with self._locked():
            if not self._path(name).exists():
                return False
            there = self._values(name) if gone else {}  # one that nobody may read can still go as a whole
            left = {key: value for key, value in there.items() if key not in gone}
            if gone and left == there:
                return False
            if left:
                self._write(name, left)
            else:
                self._path(name).unlink()
        return True

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}{_ENDING}"

    def _stat(self, name: str) -> os.stat_result:
        return self._path(name).stat()

    def _values(self, name: str) -> dict[str, str]:
        path = self._path(name)
        try:
            fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            with os.fdopen(fd, "rb") as file:
                _refuse_if_shared(path, os.fstat(file.fileno()))
                data = file.read()
        except OSError as exc:
            raise ConfigError(f"secret {name!r} can't be read from {self.folder}: {exc.strerror}") from exc
        return dict(load_record("secret", data, where=str(path))["values"])

    def _write(self, name: str, values: Mapping[str, str]) -> None:
        temporary = self.folder / f".{name}.{secrets.token_hex(8)}"
        try:
            fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with os.fdopen(fd, "wb") as file:
                file.write(dump_record("secret", {"values": dict(values)}))
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(self._path(name))
        except OSError as exc:
            raise ConfigError(f"secret {name!r} can't be stored in {self.folder}: {exc.strerror}") from exc
        finally:
            with suppress(OSError):
                temporary.unlink()

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Two that store variables of one secret don't lose each other's."""
        import fcntl  # Windows has none, where clients come as far as their refusal

        try:
            self.folder.parent.mkdir(parents=True, exist_ok=True)
            self.folder.mkdir(mode=0o700, exist_ok=True)
            _refuse_if_shared(self.folder, self.folder.lstat())
            fd = os.open(self.folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as exc:
            raise ConfigError(f"secrets can't be stored in {self.folder}: {exc.strerror}") from exc
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            yield
        finally:
            os.close(fd)


def _refuse_if_shared(path: Path, found: os.stat_result) -> None:
    if found.st_uid != os.getuid() or stat.S_IMODE(found.st_mode) & 0o077:
        raise ConfigError(f"{path}: others than this user could read or change it: chmod go= {path} (or chown it)")

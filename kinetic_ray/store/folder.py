"""The folder store: objects appear in a local folder by link or rename, and no write passes a symbolic link."""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TypeVar
from urllib.parse import unquote_to_bytes

from kinetic_ray.errors import ConfigError
from kinetic_ray.store.place import TEMPORARY

#: Temporary files that nobody has written to for so long were left by a killed process, in seconds.
STALE_AFTER = 3600.0

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
# What a folder has without anyone's doing: not objects, and no reason to refuse an otherwise empty folder.
_NOT_OBJECTS = frozenset({TEMPORARY, "lost+found", ".DS_Store"})
_ABSENT = (FileNotFoundError, NotADirectoryError)
_LINKED = (errno.ENOTDIR, errno.ELOOP)  # what systems say of a link that is to be opened as a folder
_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS)
_TRIES = 16  # each is lost only to a cleanup that removes the same folder in that very moment

T = TypeVar("T")


class FolderPlace:
    """A folder that exists; its path is absolute and free of symbolic links."""

    def __init__(self, root: Path) -> None:
        self._root = os.fspath(root)

    @property
    def url(self) -> str:
        return Path(self._root).as_uri()

    @property
    def read_size(self) -> int:
        return 1 << 20

    @property
    def pace(self) -> float:
        return 0.0

    def stage(self) -> _StagedFile:
        with self._inside([TEMPORARY], make=True) as folder:
            return _StagedFile(self, os.dup(folder))

    def read(self, key: str, offset: int = 0, limit: int | None = None) -> bytes | None:
        try:
            # Non-blocking, so that a pipe in an object's place can't hold the reader up.
            file = os.open(self._path(key), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except _ABSENT:
            return None
        try:
            info = os.fstat(file)
            if not stat.S_ISREG(info.st_mode):
                return None
            rest = max(info.st_size - offset, 0)
            return _read(file, offset, rest if limit is None else min(limit, rest))
        finally:
            os.close(file)

    def size(self, key: str) -> int | None:
        try:
            info = os.lstat(self._path(key))
        except _ABSENT:
            return None
        return info.st_size if stat.S_ISREG(info.st_mode) else None

    def children(self, prefix: str) -> list[str]:
        return [f"{name}/" if is_folder else name for name, is_folder in self._scan(prefix)]

    def walk(self, prefix: str) -> list[str]:
        found: list[str] = []
        waiting = [prefix]
        while waiting:
            above = waiting.pop()
            for name, is_folder in self._scan(above):
                (waiting if is_folder else found).append(f"{above}/{name}" if above else name)
        return found

    def delete(self, key: str) -> None:
        *parents, name = key.split("/")
        try:
            with self._inside(parents, make=False) as parent:
                if _is_folder(name, parent):
                    return
                os.unlink(name, dir_fd=parent)
        except _ABSENT:
            return
        self._prune(parents)

    def delete_tree(self, prefix: str) -> None:
        *parents, name = prefix.split("/")
        doomed = secrets.token_hex(8)
        try:
            # Gone in one step, for every reader; what a kill leaves of it is swept with the temporary files.
            with self._inside(parents, make=False) as parent, self._inside([TEMPORARY], make=True) as aside:
                if not _is_folder(name, parent):
                    return
                os.rename(name, doomed, src_dir_fd=parent, dst_dir_fd=aside)
        except _ABSENT:
            return
        self._prune(parents)
        shutil.rmtree(self._path(f"{TEMPORARY}/{doomed}"), ignore_errors=True)

    def append_path(self, key: str) -> Path | None:
        def make(parent: int, name: str) -> None:
            os.close(os.open(name, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o600, dir_fd=parent))

        self.in_parent(key, make)
        return Path(self._path(key))

    def uri(self, key: str) -> str:
        return self._path(key) if key else self._root

    def sweep(self) -> None:
        """Removes what killed processes left unpublished, and deleted trees."""
        oldest = time.time() - STALE_AFTER
        try:
            with self._inside([TEMPORARY], make=True) as folder, os.scandir(folder) as entries:
                for entry in entries:
                    with suppress(FileNotFoundError):  # another process sweeps too
                        if entry.is_dir(follow_symlinks=False):
                            shutil.rmtree(self._path(f"{TEMPORARY}/{entry.name}"), ignore_errors=True)
                        elif entry.stat(follow_symlinks=False).st_mtime < oldest:
                            os.unlink(entry.name, dir_fd=folder)
        except FileNotFoundError:
            return

    def in_parent(self, key: str, act: Callable[[int, str], T]) -> T:
        """Acts in the key's folder (a descriptor and the last name), made where missing.

        Tries again where a cleanup removes the folder between its making and the act.
        """
        *parents, name = key.split("/")
        for _ in range(_TRIES):
            with suppress(FileNotFoundError), self._inside(parents, make=True) as parent:
                return act(parent, name)
        raise FileNotFoundError(errno.ENOENT, "the folder, or the unpublished file, was removed meanwhile", self._root)

    @contextmanager
    def _inside(self, names: Sequence[str], *, make: bool) -> Iterator[int]:
        """A descriptor of a folder below the root, reached step by step without passing a symbolic link."""
        here = os.open(self._root, os.O_RDONLY | os.O_DIRECTORY)
        try:
            for depth, name in enumerate(names, 1):
                try:
                    below = _step(here, name, make=make)
                except OSError as error:
                    error.filename = self._path("/".join(names[:depth]))
                    raise
                os.close(here)
                here = below
            yield here
        finally:
            os.close(here)

    def _scan(self, prefix: str) -> Iterator[tuple[str, bool]]:
        try:
            with os.scandir(self._path(prefix) if prefix else self._root) as entries:
                for entry in entries:
                    if entry.is_symlink() or (not prefix and entry.name in _NOT_OBJECTS):
                        continue
                    yield entry.name, entry.is_dir(follow_symlinks=False)
        except _ABSENT:
            return

    def _prune(self, parents: Sequence[str]) -> None:
        """Removes the folders that a deletion has emptied: an object store has no empty folders either."""
        for depth in range(len(parents), 0, -1):
            try:
                with self._inside(parents[: depth - 1], make=False) as above:
                    os.rmdir(parents[depth - 1], dir_fd=above)
            except OSError:  # not empty, in use again or gone: an empty folder is no object, so nothing is wrong
                return

    def _path(self, key: str) -> str:
        return f"{self._root}/{key}"


class _StagedFile:
    """A temporary file; it owns the descriptor of its folder."""

    def __init__(self, place: FolderPlace, folder: int) -> None:
        self._place = place
        self._folder = folder
        self._name = f"{os.getpid()}-{secrets.token_hex(8)}"
        self._named = True
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
            self._file = os.open(self._name, flags, 0o600, dir_fd=folder)
        except OSError:
            os.close(folder)
            raise

    def write(self, data: bytes | memoryview) -> None:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(self._file, rest) :]

    def publish(self, key: str, *, replace: bool, durable: bool) -> bool:
        if not replace and self._place.size(key) is not None:
            return False
        if durable:
            os.fsync(self._file)
        return self._place.in_parent(key, partial(self._replace if replace else self._link, durable=durable))

    def discard(self) -> None:
        os.close(self._file)
        if self._named:
            with suppress(FileNotFoundError):
                os.unlink(self._name, dir_fd=self._folder)
        os.close(self._folder)

    def _replace(self, parent: int, name: str, *, durable: bool) -> bool:
        os.replace(self._name, name, src_dir_fd=self._folder, dst_dir_fd=parent)
        self._named = False
        if durable:
            os.fsync(parent)
        return True

    def _link(self, parent: int, name: str, *, durable: bool) -> bool:
        try:
            os.link(self._name, name, src_dir_fd=self._folder, dst_dir_fd=parent, follow_symlinks=False)
        except FileExistsError:
            if _is_folder(name, parent):
                raise IsADirectoryError(errno.EISDIR, "there is a folder of this name", name) from None
            return False
        except OSError as error:
            if error.errno in _NO_LINKS:
                raise OSError(error.errno, "this file system has no hard links, which a store needs") from error
            raise
        if durable:  # the name too must outlive a power loss: whoever is told "created" builds on it
            os.fsync(parent)
        return True


def _step(here: int, name: str, *, make: bool) -> int:
    """Opens the folder `name` below an open one."""
    try:
        return os.open(name, _FOLDER, dir_fd=here)
    except FileNotFoundError:
        if not make:
            raise
    except OSError as error:
        if error.errno in _LINKED and stat.S_ISLNK(os.lstat(name, dir_fd=here).st_mode):
            raise OSError(errno.ELOOP, "is a symbolic link, which a store does not follow") from None
        raise
    with suppress(FileExistsError):
        os.mkdir(name, 0o700, dir_fd=here)
    return os.open(name, _FOLDER, dir_fd=here)


def _is_folder(name: str, parent: int) -> bool:
    return stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode)


def _read(file: int, offset: int, size: int) -> bytes:
    """Reads until `size` bytes or the end: one call of the system may give less."""
    data = os.pread(file, size, offset)
    if len(data) == size:
        return data
    parts = [data]
    while parts[-1] and (size := size - len(parts[-1])):
        offset += len(parts[-1])
        parts.append(os.pread(file, size, offset))
    return b"".join(parts)


def path_of(url: str, given: str = "") -> Path:
    """The path in a "file:" URL.

    Args:
        url: The URL.
        given: How to name it in an error: the option that it was given as; by default the store.

    Raises:
        ConfigError: It names another machine.

    Example:
        >>> path_of("file:///data/my%20store")
        PosixPath('/data/my store')
    """
    path = url.removeprefix("file://").removeprefix("localhost")
    if not path.startswith("/"):
        what = given or f"{url!r} can't be a store"
        raise ConfigError(f"{what}: a file URL has three slashes and an absolute path")
    return Path(os.fsdecode(unquote_to_bytes(path)))


def open_folder(path: Path, *, create: bool) -> FolderPlace:
    """The folder behind a path, made (0700) where missing and swept if `create` is set.

    Raises:
        ConfigError: There is no folder that this process may use.
    """
    try:
        path = path.expanduser().resolve()
        if create:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
        place = FolderPlace(path)
        _check_access(path, write=create)
        if create and not place.children(""):
            # An empty folder is taken over: names in it say who ran what. Some file systems know no modes.
            with suppress(PermissionError):
                path.chmod(0o700)
        if create:
            place.sweep()
    except (OSError, RuntimeError, ValueError) as error:  # RuntimeError: no home, or a loop of links
        raise ConfigError(f"{path} can't be a store: {getattr(error, 'strerror', None) or error}") from error
    return place


def _check_access(path: Path, *, write: bool) -> None:
    if not path.exists():
        raise ConfigError(f"there is no folder {path}: wrong place, or nothing was ever run with this store")
    if not path.is_dir():
        raise ConfigError(f"{path} can't be a store: it is not a folder")
    effective = os.access in os.supports_effective_ids
    if not os.access(path, os.R_OK | os.X_OK, effective_ids=effective):
        raise ConfigError(f"the store {path} can't be read: no permission for user {os.geteuid()}")
    if write and not os.access(path, os.W_OK, effective_ids=effective):
        raise ConfigError(f"the store {path} can't be written: no permission for user {os.geteuid()}, or read-only")

"""The memory store: fsspec's process-wide memory file system, for unit tests; nothing outlives the process."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from kinetic_ray.errors import ConfigError

# One for all, since stores of one name share their objects, and fsspec's own calls are not atomic.
_LOCK = threading.Lock()


class MemoryPlace:
    """A named store in this process; opening the same name again shows the same objects."""

    def __init__(self, name: str) -> None:
        import fsspec

        self._root = f"/{name}"
        self._fs: Any = fsspec.filesystem("memory")

    @property
    def url(self) -> str:
        return f"memory:/{self._root}"

    @property
    def read_size(self) -> int:
        return 1 << 20

    @property
    def pace(self) -> float:
        return 0.0

    def stage(self) -> _StagedBytes:
        return _StagedBytes(self)

    def read(self, key: str, offset: int = 0, limit: int | None = None) -> bytes | None:
        path = self._path(key)
        with _LOCK:
            if not self._fs.isfile(path):
                return None
            data: bytes = self._fs.cat_file(path, offset, None if limit is None else offset + limit)
            return data

    def size(self, key: str) -> int | None:
        path = self._path(key)
        with _LOCK:
            return int(self._fs.info(path)["size"]) if self._fs.isfile(path) else None

    def children(self, prefix: str) -> list[str]:
        path = self._path(prefix)
        with _LOCK:
            if self._fs.isfile(path) or not self._fs.exists(path):
                return []
            entries = self._fs.ls(path, detail=True)
        names = ((entry["name"].rpartition("/")[2], entry["type"]) for entry in entries)
        return [f"{name}/" if kind == "directory" else name for name, kind in names]

    def walk(self, prefix: str) -> list[str]:
        with _LOCK:
            return [path.removeprefix(f"{self._root}/") for path in self._below(prefix)]

    def delete(self, key: str) -> None:
        path = self._path(key)
        with _LOCK:
            if self._fs.isfile(path):
                self._fs.rm_file(path)

    def delete_tree(self, prefix: str) -> None:
        with _LOCK:
            for path in self._below(prefix):
                self._fs.rm_file(path)

    def append_path(self, key: str) -> Path | None:  # noqa: ARG002 - of the seam
        return None

    def uri(self, key: str) -> str:
        return f"{self.url}/{key}".removesuffix("/")

    def publish(self, key: str, data: bytes, *, replace: bool) -> bool:
        """Puts an object, whole; the staged object's last step."""
        path = self._path(key)
        with _LOCK:
            if not replace and self._fs.isfile(path):
                return False
            self._fs.pipe_file(path, data)
            return True

    def _below(self, prefix: str) -> list[str]:
        path = self._path(prefix)
        return [found for found in self._fs.find(path) if found.startswith(f"{path}/")]

    def _path(self, key: str) -> str:
        return f"{self._root}/{key}" if key else self._root


class _StagedBytes:
    def __init__(self, place: MemoryPlace) -> None:
        self._place = place
        self._data = bytearray()

    def write(self, data: bytes | memoryview) -> None:
        self._data += data

    def publish(self, key: str, *, replace: bool, durable: bool) -> bool:  # noqa: ARG002 - nothing here is durable
        return self._place.publish(key, bytes(self._data), replace=replace)

    def discard(self) -> None:
        self._data = bytearray()


def open_memory(name: str) -> MemoryPlace:
    """The memory store of a name.

    Raises:
        ConfigError: No name, or one with parts: stores lie side by side.
    """
    if not name or "/" in name or name.startswith("."):
        raise ConfigError(f"{'memory://' + name!r} can't be a store: expected memory://NAME without further slashes")
    return MemoryPlace(name)

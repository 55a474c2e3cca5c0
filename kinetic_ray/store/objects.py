"""Objects by key over any medium: the store's interface, with digests and with errors that name what to do."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import final

from kinetic_ray.core.outcome import Blob
from kinetic_ray.errors import DataError, StoreError, UsageError
from kinetic_ray.store.files import chunks_of, new_file, reader_of
from kinetic_ray.store.place import MissingKey, Place, Staged, blob_key, check_key, check_prefix, refused

#: What every store has from its first moment on: its name and the version of its layout.
FORMAT_KEY = "format.json"

Keys = list[str]  # inside Store, `list` is its method


@final
class Store:
    """Objects by key, as :func:`open_store` gives it. Safe to use from several threads, and processes but for memory.

    Keys are relative names with "/" between the parts; no key is another one's prefix. A reader sees an object whole
    or not at all, whatever kills its writer. All methods raise UsageError for a name that can't be a key, and
    StoreError where the medium refuses.

    Attributes:
        url: The canonical address: equal for equal stores, accepted by `open_store` in any process.
        pace: Seconds that who watches lets pass between two looks, after a while: requests to a bucket are paid for.

    Example:
        >>> from kinetic_ray.store import open_store
        >>> store = open_store("memory://doc-store")
        >>> store.create("jobs/a/spec.json", b"{}"), store.create("jobs/a/spec.json", b"late")
        (True, False)
        >>> store.list("jobs/a"), store.get("jobs/a/spec.json")
        (['jobs/a/spec.json'], b'{}')
        >>> blob = store.put_blob(b"payload")
        >>> store.get_blob(blob)
        b'payload'
    """

    def __init__(self, place: Place) -> None:
        self._place = place
        self.url, self.pace = place.url, place.pace

    def __repr__(self) -> str:
        return f"Store({self.url!r})"

    # Small objects.

    def create(self, key: str, data: bytes) -> bool:
        """Creates an object unless there is one.

        Of racing writers exactly one gets True. The bytes reach the disk before the object appears, and its name
        before this returns: a power loss leaves it whole or absent, and never takes back what was acknowledged.

        Returns:
            False if the key was taken; its object stays as it was.
        """
        return self._publish(check_key(key), data, replace=False, durable=True)

    def put(self, key: str, data: bytes) -> None:
        """Creates or replaces an object, for what may be lost: heartbeats, hints. Not forced to the disk."""
        self._publish(check_key(key), data, replace=True, durable=False)

    def get(self, key: str) -> bytes:
        """The object's bytes.

        Raises:
            MissingKey: There is none; also a KeyError.
        """
        data = self.find(key)
        if data is None:
            raise self._missing(key)
        return data

    def find(self, key: str) -> bytes | None:
        """The object's bytes, or None."""
        with self._explained(check_key(key)):
            return self._place.read(key)

    def exists(self, key: str) -> bool:
        return self._size(check_key(key)) is not None

    def require(self) -> None:
        """Tells a store that is there, and lacks an object, from one that is away: not mounted, say.

        Raises:
            StoreError: It is away.
        """
        if self._size(FORMAT_KEY) is None:
            raise StoreError(f"the store {self.uri('')} is away or was removed: it has no {FORMAT_KEY}")

    def size(self, key: str) -> int:
        """The object's size in bytes.

        Raises:
            MissingKey: There is none.
        """
        size = self._size(check_key(key))
        if size is None:
            raise self._missing(key)
        return size

    def read_range(self, key: str, offset: int, limit: int | None = None) -> bytes:
        """A part of an object that may be growing.

        Args:
            key: The object.
            offset: Where to begin, in bytes from the start.
            limit: At most so many bytes; None reads to the end.

        Returns:
            b"" past the end.

        Raises:
            MissingKey: There is no object.
        """
        if offset < 0 or (limit is not None and limit < 0):
            raise UsageError(f"a range of {key!r} can't begin at {offset} with {limit} bytes: both count from 0 up")
        with self._explained(check_key(key)):
            data = self._place.read(key, offset, limit)
        if data is None:
            raise self._missing(key)
        return data

    def open_object(self, key: str) -> io.BufferedReader:
        """An object as a file to read, which holds no more of it than a piece.

        Raises:
            MissingKey: There is none.
        """
        return reader_of(partial(self.read_range, key), self.size(key))

    # Looking and removing.

    def list(self, prefix: str) -> Keys:
        """Full keys of what lies directly below a prefix, sorted; those of folders end in "/". [] if there is nothing.

        A folder may show before its first object, or just after its last.
        """
        prefix = check_prefix(prefix)
        with self._explained(prefix):
            names = self._place.children(prefix)
        return sorted(f"{prefix}/{name}" if prefix else name for name in names)

    def walk(self, prefix: str) -> Keys:
        """Full keys of all objects below a prefix, sorted."""
        prefix = check_prefix(prefix)
        with self._explained(prefix):
            return sorted(self._place.walk(prefix))

    def delete(self, key: str) -> None:
        """Removes an object; nothing happens if there is none."""
        with self._explained(check_key(key)):
            self._place.delete(key)

    def delete_tree(self, prefix: str) -> None:
        """Removes all objects below a prefix; nothing happens if there are none."""
        prefix = check_key(prefix.removesuffix("/"))  # "" would be the whole store
        with self._explained(prefix):
            self._place.delete_tree(prefix)

    # Content-addressed and large objects.

    def put_blob(self, source: bytes | Path) -> Blob:
        """Stores bytes under their digest; sends nothing if they are there.

        Args:
            source: The bytes, or a file, which is read once: what is stored always fits its digest, even if the file
                changes meanwhile.

        Raises:
            DataError: The file can't be read.
        """
        if isinstance(source, Path):
            return self._put_file(source)
        blob = Blob(hashlib.sha256(source).hexdigest(), len(source))
        if self._size(key := blob_key(blob)) != blob.size:  # an object of the wrong size is torn: replaced
            self._publish(key, source, replace=True, durable=True)
        return blob

    def get_blob(self, blob: Blob) -> bytes:
        """The bytes of a blob, verified.

        Raises:
            DataError: They are missing, or are not what was stored.
        """
        data = self.find(key := blob_key(blob))
        if data is None:
            self.require()
            raise DataError(f"{key} is missing from the store {self.url}: removed by another program?")
        if not blob.matches(data):
            raise self._damaged(key, blob, len(data))
        return data

    def fetch_blob(self, blob: Blob, target: Path) -> None:
        """Copies a blob into a local file, verified; the file appears whole, or not at all.

        Args:
            blob: What to fetch.
            target: The file; its folder is made where missing, a file that is there is replaced.

        Raises:
            DataError: The stored bytes are missing, or are not what was stored.
        """
        key = blob_key(blob)
        if (size := self._size(key)) != blob.size:
            raise self._damaged(key, blob, size)
        with new_file(target, blob.size) as file:
            digest = hashlib.sha256()
            for chunk in self._chunks(key, blob.size):
                digest.update(chunk)
                file.write(chunk)
            if digest.hexdigest() != blob.sha256:
                raise self._damaged(key, blob, blob.size)

    def write_object(self, key: str, chunks: Iterable[bytes]) -> Blob:
        """Streams an object that may be large, unless there is one.

        Returns:
            Its digest and size. An object with the same content counts as this one, so repeating is safe.

        Raises:
            StoreError: The key holds other content.
        """
        with self._stage(check_key(key)) as staged:
            blob = self._fill(staged, key, chunks)
            with self._explained(key, blob.size):
                published = staged.publish(key, replace=False, durable=True)
        if not published and not self.verify_object(key, blob):
            raise StoreError(f"{key} is in the store {self.url} already, with other content: it is never overwritten")
        return blob

    def put_file(self, key: str, source: Path) -> None:
        """Creates or replaces an object with the content of a file.

        Raises:
            DataError: The file can't be read.
        """
        with self._stage(check_key(key)) as staged:
            blob = self._fill(staged, key, chunks_of(source))
            with self._explained(key, blob.size):
                staged.publish(key, replace=True, durable=True)

    def fetch_object(self, key: str, target: Path) -> None:
        """Copies an object into a local file, which appears whole; see :meth:`fetch_blob`.

        Raises:
            MissingKey: There is none.
        """
        size = self.size(key)
        with new_file(target, size) as file:
            file.writelines(self._chunks(key, size))

    def verify_object(self, key: str, blob: Blob) -> bool:
        """Reads an object back: whether it is there and has this content."""
        if self._size(check_key(key)) != blob.size:
            return False
        digest = hashlib.sha256()
        for chunk in self._chunks(key, blob.size):
            digest.update(chunk)
        return digest.hexdigest() == blob.sha256

    # Places outside.

    def append_path(self, key: str) -> Path | None:
        """A local file behind this key to append to (O_APPEND), made (0600) where absent.

        Returns:
            None where the store is not a local folder.
        """
        with self._explained(check_key(key)):
            return self._place.append_path(key)

    def uri(self, key: str) -> str:
        """Where a key lies as a person would open it: a path for a folder, a URL else. "" is the store itself."""
        return self._place.uri(check_prefix(key))

    def _publish(self, key: str, data: bytes, *, replace: bool, durable: bool) -> bool:
        with self._stage(key) as staged, self._explained(key, len(data)):
            staged.write(data)
            return staged.publish(key, replace=replace, durable=durable)

    def _put_file(self, path: Path) -> Blob:
        name = f"the content of {path}"
        with self._stage(name) as staged:
            blob = self._fill(staged, name, chunks_of(path))
            if self._size(key := blob_key(blob)) != blob.size:
                with self._explained(key, blob.size):
                    staged.publish(key, replace=True, durable=True)
        return blob

    @contextmanager
    def _stage(self, name: str) -> Iterator[Staged]:
        with self._explained(name):
            staged = self._place.stage()
        try:
            yield staged
        finally:
            with self._explained(name):
                staged.discard()

    def _fill(self, staged: Staged, name: str, chunks: Iterable[bytes | memoryview]) -> Blob:
        digest, size = hashlib.sha256(), 0
        for chunk in chunks:  # outside of what is explained below: a source's own errors are not the store's
            digest.update(chunk)
            size += len(chunk)
            with self._explained(name, size):
                staged.write(chunk)
        return Blob(digest.hexdigest(), size)

    def _chunks(self, key: str, size: int) -> Iterator[bytes]:
        """The first bytes of an object that has as many."""
        offset = 0
        while offset < size and (chunk := self._read_chunk(key, offset)):
            yield chunk
            offset += len(chunk)

    def _read_chunk(self, key: str, offset: int) -> bytes | None:
        with self._explained(key):
            return self._place.read(key, offset, self._place.read_size)

    def _size(self, key: str) -> int | None:
        with self._explained(key):
            return self._place.size(key)

    def _missing(self, key: str) -> MissingKey:
        return MissingKey(f"no object {key!r} in the store {self.url}")

    def _damaged(self, key: str, blob: Blob, size: int | None) -> DataError:
        if size is None:
            return DataError(f"{key} is missing from the store {self.url}: removed by another program?")
        what = f"has {size} bytes instead of {blob.size}" if size != blob.size else "differs from its digest"
        return DataError(f"{key} {what}: damaged. Remove {self.uri(key)} and submit again, which stores it anew")

    @contextmanager
    def _explained(self, name: str, needed: int | None = None) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise refused(error, f"the store {self._place.uri('')}", name, needed) from error

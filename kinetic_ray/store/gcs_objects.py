"""Objects of one bucket by Google Cloud Storage's JSON interface: the six requests that a store makes."""

from __future__ import annotations

import errno
import json
import secrets
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

from kinetic_ray.store.gcs_wire import Answer, Wire

_OK, _PARTIAL, _MISSING, _CONDITION, _PAST_END = (200, 204), 206, 404, 412, 416
_PAGE = "1000"  # names in one answer: the most that there are
#: Under this name an object tells who made it: a creation whose answer was lost is known again by it.
_WRITER = "kinetic-writer"


@dataclass(frozen=True, slots=True)
class Content:
    """What an object is to hold.

    Attributes:
        chunks: Makes the bytes, again for each try.
        size: How many.
        md5: Their MD5, in base64: the server refuses what arrives differently.
    """

    chunks: Callable[[], Iterable[bytes]]
    size: int
    md5: str


class Objects:
    """The objects of a bucket, by their full names. What the server refuses is raised as OSError."""

    def __init__(self, wire: Wire, address: str, bucket: str) -> None:
        self._wire = wire
        self._bucket = bucket
        self._objects = f"{address}/storage/v1/b/{bucket}/o"
        self._upload = f"{address}/upload/storage/v1/b/{bucket}/o"

    def write(self, name: str, content: Content, *, replace: bool) -> bool:
        """Makes an object, whole, in one request.

        Not by a resumable upload: what broke off is sent again from the start, since the bytes lie here.

        Returns:
            False if there is one and `replace` isn't set: of several writers exactly one gets True.
        """
        writer, cut = secrets.token_hex(16), secrets.token_hex(16)
        resource = {"name": name, "md5Hash": content.md5, "metadata": {_WRITER: writer}}
        head = _part(cut, "application/json; charset=UTF-8", json.dumps(resource).encode() + b"\r\n")
        head += _part(cut, "application/octet-stream", b"")
        tail = f"\r\n--{cut}--\r\n".encode()

        def body() -> Iterator[bytes]:
            yield head
            yield from content.chunks()
            yield tail

        query = {"uploadType": "multipart", "fields": "name", **({} if replace else {"ifGenerationMatch": 0})}
        headers = {
            "Content-Type": f"multipart/related; boundary={cut}",
            "Content-Length": str(len(head) + content.size + len(tail)),
        }
        answer = self._wire.send("POST", f"{self._upload}?{urlencode(query)}", body, headers)
        if answer.status == _CONDITION:
            return answer.is_repeated and self._writer(name) == writer
        self._check(answer)
        return True

    def read(self, name: str, offset: int, limit: int | None) -> bytes | None:
        """Bytes from `offset` on; b"" past the end, None if there is no object."""
        if limit == 0:
            return None if self.size(name) is None else b""
        is_whole = offset == 0 and limit is None
        last = "" if limit is None else offset + limit - 1
        headers = {} if is_whole else {"Range": f"bytes={offset}-{last}"}
        answer = self._wire.send("GET", f"{self._object(name)}?alt=media", headers=headers)
        if answer.status == _MISSING:
            return None
        if answer.status == _PAST_END:
            return b""
        self._check(answer)
        if is_whole or answer.status == _PARTIAL:
            return answer.data
        return answer.data[offset:][:limit]  # a server that knows no ranges sends all

    def size(self, name: str) -> int | None:
        """Bytes, or None if there is no object."""
        found = self._resource(name, "size")
        return None if found is None else int(found["size"])

    def names(self, prefix: str, *, deep: bool) -> Iterator[str]:
        """Names that begin with a prefix; unless `deep`, up to the next "/", with it."""
        query = {"prefix": prefix, "fields": "prefixes,items(name),nextPageToken", "maxResults": _PAGE}
        if not deep:
            query["delimiter"] = "/"
        while True:
            answer = self._wire.send("GET", f"{self._objects}?{urlencode(query)}")
            self._check(answer)
            page = answer.json()
            yield from page.get("prefixes", ())
            yield from (item["name"] for item in page.get("items", ()))
            if not page.get("nextPageToken"):
                return
            query["pageToken"] = page["nextPageToken"]

    def delete(self, name: str) -> None:
        """Removes an object if there is one."""
        answer = self._wire.send("DELETE", self._object(name))
        if answer.status != _MISSING:
            self._check(answer)

    def _writer(self, name: str) -> str | None:
        found = self._resource(name, "metadata")
        return None if found is None else found.get("metadata", {}).get(_WRITER)

    def _resource(self, name: str, fields: str) -> dict[str, Any] | None:
        answer = self._wire.send("GET", f"{self._object(name)}?{urlencode({'fields': fields})}")
        if answer.status == _MISSING:
            return None
        self._check(answer)
        return answer.json()

    def _object(self, name: str) -> str:
        return f"{self._objects}/{quote(name, safe='')}"

    def _check(self, answer: Answer) -> None:
        if answer.status not in (*_OK, _PARTIAL):
            raise _refusal(answer, self._bucket)


def _part(cut: str, kind: str, data: bytes) -> bytes:
    return f"--{cut}\r\nContent-Type: {kind}\r\n\r\n".encode() + data


def _refusal(answer: Answer, bucket: str) -> OSError:
    """A refusal in words that say what to do."""
    words = f" (HTTP {answer.status}: {answer.words()})"
    if answer.status == _MISSING:
        return FileNotFoundError(errno.ENOENT, f"there is no bucket {bucket!r}: make it, or name another{words}")
    if answer.status == 401:
        return PermissionError(errno.EACCES, f"the credentials are not accepted{words}")
    if answer.status == 403:
        advice = f"roles/storage.objectUser on gs://{bucket} is what it takes"
        return PermissionError(errno.EACCES, f"no permission: {advice}{words}")
    return OSError(errno.EIO, f"the storage refuses the request{words}")

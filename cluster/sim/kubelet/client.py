"""The few calls of the API server that a kubelet makes, on plain JSON."""

from __future__ import annotations

import asyncio
import json
import ssl
import sys
from collections.abc import AsyncIterator, Callable
from typing import Protocol

import aiohttp

from cluster.sim.kubelet.shapes import Json, fine_stamp

MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
_PATIENCE, _PAUSE = 120, 0.5
_LONGEST_LINE = 2**25


class ApiError(Exception):
    """The API server said no."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status


class Api(Protocol):
    """What a kubelet needs of the API server."""

    async def call(self, method: str, path: str, body: Json | None = None, kind: str = ...) -> Json | None:
        """Make one call; None if there is no such thing (any more)."""


def log(*words: object) -> None:
    """Tell what happens, on standard output."""
    print(fine_stamp(), *words, file=sys.stdout, flush=True)


class HttpApi:
    """The API server over HTTPS. A server that is being restarted is waited for."""

    def __init__(self, url: str, token: str, authority: str) -> None:
        self._url = url
        self._headers = {"Authorization": f"Bearer {token}"}
        self._tls = ssl.create_default_context(cafile=authority)
        self._http: aiohttp.ClientSession | None = None

    def _session(self) -> aiohttp.ClientSession:
        if self._http is None:
            connector = aiohttp.TCPConnector(ssl=self._tls, limit=64)
            self._http = aiohttp.ClientSession(connector=connector, headers=self._headers, read_bufsize=_LONGEST_LINE)
        return self._http

    async def close(self) -> None:
        if self._http is not None:
            await self._http.close()

    async def call(
        self, method: str, path: str, body: Json | None = None, kind: str = "application/json"
    ) -> Json | None:
        """Make one call, again while the server can't be reached; None if there is no such thing.

        Raises:
            ApiError: It was refused, or nobody has answered for two minutes.
        """
        wrong: Exception = ApiError(0, "never tried")
        for _ in range(int(_PATIENCE / _PAUSE)):
            try:
                return await self._once(method, path, body, kind)
            except (aiohttp.ClientError, TimeoutError) as unreachable:
                wrong = unreachable
            except ApiError as refused:
                if refused.status not in (429, 500, 502, 503, 504):
                    raise
                wrong = refused
            await asyncio.sleep(_PAUSE)
        raise ApiError(503, f"{method} {path}: no answer: {wrong}")

    async def _once(self, method: str, path: str, body: Json | None, kind: str) -> Json | None:
        data = None if body is None else json.dumps(body)
        timeout = aiohttp.ClientTimeout(total=30)
        headers = {"Content-Type": kind}
        async with self._session().request(
            method, self._url + path, data=data, headers=headers, timeout=timeout
        ) as answer:
            text = await answer.text()
            if answer.status == 404:
                return None
            if answer.status >= 300:
                raise ApiError(answer.status, f"{method} {path}: {text[:400]}")
            found: Json | None = json.loads(text) if text else None
            return found

    async def watch(self, path: str, tell: Callable[[str, Json], None], synced: Callable[[], None]) -> None:
        """Tell of everything there is, then of every change, for ever: ADDED, MODIFIED, DELETED.

        Args:
            path: A list of things.
            tell: What hears of each.
            synced: Called after each full list.
        """
        known: dict[str, Json] = {}
        while True:
            try:
                listed = await self._once("GET", path, None, "application/json")
                if listed is not None:
                    known = _compare(known, listed, tell)
                    synced()
                    await self._follow(path, listed["metadata"]["resourceVersion"], known, tell)
            except (aiohttp.ClientError, ApiError, TimeoutError, ValueError) as wrong:
                log("watch", path, repr(wrong)[:200])
                await asyncio.sleep(_PAUSE)

    async def _follow(self, path: str, version: str, known: dict[str, Json], tell: Callable[[str, Json], None]) -> None:
        async for event in self._events(path, version):
            if event["type"] == "ERROR":  # too old: the caller lists again
                return
            if event["type"] == "BOOKMARK":
                continue
            uid = event["object"]["metadata"]["uid"]
            known[uid] = event["object"]
            if event["type"] == "DELETED":
                del known[uid]
            tell(event["type"], event["object"])

    async def _events(self, path: str, version: str) -> AsyncIterator[Json]:
        url = f"{self._url}{path}?watch=1&allowWatchBookmarks=true&resourceVersion={version}"
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=10)
        async with self._session().get(url, timeout=timeout) as answer:
            async for line in answer.content:
                yield json.loads(line)


def _compare(known: dict[str, Json], listed: Json, tell: Callable[[str, Json], None]) -> dict[str, Json]:
    fresh = {one["metadata"]["uid"]: one for one in listed.get("items") or []}
    for uid in [uid for uid in known if uid not in fresh]:
        tell("DELETED", known[uid])
    for uid, one in fresh.items():
        tell("MODIFIED" if uid in known else "ADDED", one)
    return fresh

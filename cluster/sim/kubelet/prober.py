"""Asks containers how they are, and runs their hooks."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

import aiohttp

from cluster.sim.kubelet import probes
from cluster.sim.kubelet.probes import Action, Answer, Command, Connect, Fetch, Probe, Sleep, Tally, Verdict
from cluster.sim.kubelet.processes import Process

_SHORTEST_PERIOD = 0.2


async def perform(action: Action, process: Process, http: aiohttp.ClientSession, seconds: float) -> Answer:
    """Do what a probe or a hook says."""
    if isinstance(action, Command):
        return await process.run(action.argv, seconds)
    if isinstance(action, Fetch):
        return await _fetch(action, http, seconds)
    if isinstance(action, Sleep):
        await asyncio.sleep(min(action.seconds, seconds))
        return Answer(True)
    return await _connect(action, seconds)


async def _fetch(fetch: Fetch, http: aiohttp.ClientSession, seconds: float) -> Answer:
    limit = aiohttp.ClientTimeout(total=seconds)
    try:
        async with http.get(fetch.url, headers=fetch.headers, timeout=limit, allow_redirects=False) as answer:
            if answer.status < 400:
                return Answer(True)
            return Answer(False, f"HTTP probe failed with statuscode: {answer.status}")
    except TimeoutError:
        return Answer(False, f'Get "{fetch.url}": context deadline exceeded (Client.Timeout exceeded)')
    except (OSError, aiohttp.ClientError, ValueError) as wrong:
        return Answer(False, f'Get "{fetch.url}": {_said(wrong)}')


async def _connect(connect: Connect, seconds: float) -> Answer:
    try:
        _, writer = await asyncio.wait_for(asyncio.open_connection(connect.host, connect.port), seconds)
    except TimeoutError:
        return Answer(False, f"dial tcp {connect.host}:{connect.port}: i/o timeout")
    except OSError as wrong:
        return Answer(False, f"dial tcp {connect.host}:{connect.port}: {_said(wrong)}")
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
    return Answer(True)


def _said(wrong: Exception) -> str:
    refused = isinstance(wrong, ConnectionRefusedError | aiohttp.ClientConnectorError)
    return "connect: connection refused" if refused else str(wrong)


class Prober:
    """Asks one container the same question again and again."""

    def __init__(
        self, probe: Probe, ask: Callable[[], Awaitable[Answer]], scale: float, failed: Callable[[Answer], None]
    ) -> None:
        """Take what is asked, and how.

        Args:
            probe: The question.
            ask: Asks once.
            scale: Factor for delay and period.
            failed: Told of every bad answer.
        """
        self._probe = probe
        self._ask = ask
        self._scale = scale
        self._failed = failed

    async def until_decided(self, tally: Tally | None = None) -> Verdict:
        """Ask until the answers mean something; begins at once where there is a tally to go on from."""
        if tally is None:
            await asyncio.sleep(self._probe.delay * self._scale)
        tally = tally or Tally()
        while True:
            answer = await self._ask()
            tally = tally.after(answer)
            if not answer.good:
                self._failed(answer)
            verdict = probes.judge(self._probe, tally)
            if verdict is not Verdict.UNDECIDED:
                return verdict
            await self._pause()

    async def _pause(self) -> None:
        await asyncio.sleep(max(self._probe.period * self._scale, _SHORTEST_PERIOD))

    async def for_ever(self, decided: Callable[[Verdict], None]) -> None:
        """Ask for ever; tell of each verdict."""
        tally: Tally | None = None
        while True:
            decided(await self.until_decided(tally))
            tally = Tally()
            await self._pause()

"""One job of ours as Ray has it: posted, looked at, stopped, and given an end once no driver of it runs."""

from __future__ import annotations

import asyncio
import contextlib
import shlex
import sys
import time
from asyncio import to_thread
from collections.abc import Callable
from typing import Any, TypeVar

from kinetic_ray.backends.local.job import Job, Patience
from kinetic_ray.backends.local.records import close_job, close_lost, is_finished, surely
from kinetic_ray.backends.local.rest import TERMINAL, ApiError, JobsApi
from kinetic_ray.core.state import JobStatus, Reason
from kinetic_ray.errors import SubmissionError

_MESSAGE_CHARS = 4000
_POLL_S = 0.1

T = TypeVar("T")


class RayJob:
    """Speaks of one job to Ray's Jobs API, from threads."""

    def __init__(self, api: JobsApi, job: Job, patience: Patience) -> None:
        self._api = api
        self._job = job
        self._patience = patience

    async def post(self) -> None:
        """Has Ray start its driver, which it may not be ready for just yet.

        Raises:
            SubmissionError: Ray doesn't take it.
        """
        words = [sys.executable, "-m", "kinetic_ray.runner", self._job.journal.store.url, self._job.job_id]
        deadline = time.monotonic() + self._patience.accept
        while True:
            try:
                await to_thread(self._api.submit, shlex.join(words), self._job.job_id)
                return
            except ApiError as exc:
                if await self._runs_already():
                    return
                passing = exc.is_passing or exc.status == 400  # 400: one of that id was there, and is removed now
                if not passing or time.monotonic() > deadline:
                    raise SubmissionError(f"{self._job.job_id}: Ray does not take it: {exc}") from exc
            await asyncio.sleep(_POLL_S)

    async def _runs_already(self) -> bool:
        """Whether Ray has the job, from a submission whose answer was lost, say; one that has ended is removed."""
        try:
            found = await to_thread(self._api.job, self._job.job_id)
            if found is not None and found["status"] in TERMINAL:
                await to_thread(self._api.delete, self._job.job_id)
                return False
        except ApiError:
            return False
        return found is not None

    async def stop_soon(self) -> None:
        """Has Ray stop a driver before it is told itself: else Ray's list of jobs would call its end a failure."""
        if not self._job.told_ray:
            self._job.told_ray = True
            telling = asyncio.ensure_future(to_thread(self._api.stop, self._job.job_id))
            telling.add_done_callback(lambda done: done.cancelled() or done.exception())  # the driver is told anyway
            await asyncio.wait([telling], timeout=self._patience.tell)

    async def has_ended(self) -> bool:
        """Whether Ray says that no driver of it runs; what it says of its end goes to the job."""
        try:
            found = await to_thread(self._api.job, self._job.job_id)
        except ApiError:
            return False
        if found is not None:
            self._job.stopped = found["status"] == "STOPPED"
            self._job.message = str(found.get("message") or "")[-_MESSAGE_CHARS:] if found["status"] in TERMINAL else ""
        return found is None or found["status"] in TERMINAL

    async def settle(self) -> None:
        """Sees to it that a job without a driver has an end in its journal, unless it was cleaned up."""
        job, cancelled = self._job, (JobStatus.STOPPED, Reason.CANCELLED)
        if await self._surely(is_finished):
            job.message = ""
            return
        if job.cancelled or not await self._ends_within(self._patience.notice):
            with contextlib.suppress(ApiError):
                await to_thread(self._api.stop, job.job_id)
            await self._ends_within(self._patience.stop)
        elif job.stopped:
            await self._surely(close_job, *cancelled, "stopped by `ray job stop`")
            return
        await self._surely(close_lost, f"its driver has gone. {job.message}".strip())

    async def _surely(self, act: Callable[..., T], *args: Any) -> T:
        """Waits long for a store that is away: a job whose end can't be written has none."""
        return await surely(self._patience.store, act, self._job.journal, *args)

    async def _ends_within(self, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if await self.has_ended():
                return True
            await asyncio.sleep(_POLL_S)
        return False

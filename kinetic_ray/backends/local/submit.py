"""The submit loop: at most so many drivers at once, each one Ray job; every job that comes here gets an end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from asyncio import to_thread
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from kinetic_ray.backends.local.head import HeadReport
from kinetic_ray.backends.local.hub import Hub, push
from kinetic_ray.backends.local.job import Job, Patience
from kinetic_ray.backends.local.rayjob import RayJob
from kinetic_ray.backends.local.records import close_job, close_lost, is_finished, is_unwanted, open_shared, surely
from kinetic_ray.backends.local.rest import JobsApi
from kinetic_ray.core.spec import JobSpec
from kinetic_ray.core.state import JobStatus, Reason
from kinetic_ray.errors import KineticError, StoreError
from kinetic_ray.journal import JobJournal

_LOG = logging.getLogger(__name__)

MAX_DRIVERS = 8
_REMEMBERED = 2000

T = TypeVar("T")


class HeadLike(Protocol):
    """What the loop needs of the head."""

    @property
    def state(self) -> str:
        """Either "starting", "up" or "failed"."""

    async def report(self) -> HeadReport:
        """Waits until it is up."""


class SubmitLoop:
    """All jobs of a cluster. Lives in one event loop; stores and the Jobs API are spoken to from threads."""

    def __init__(
        self,
        head: HeadLike,
        hub: Hub,
        token: str,
        foresee: Callable[[JobSpec], None],
        *,
        max_drivers: int = MAX_DRIVERS,
        patience: Patience | None = None,
    ) -> None:
        """Starts empty.

        Args:
            head: The cluster's head; jobs wait for it.
            hub: Who is told when a driver has gone.
            token: The cluster's token.
            foresee: Told of each job whose driver is about to start, so that its hosts start beside it.
            max_drivers: How many drivers may run at once; each costs about a hundred MB.
            patience: How long things may take.
        """
        self.max_drivers = max_drivers
        self._patience = patience or Patience()
        self._foresee = foresee
        self._head = head
        self._hub = hub
        self._token = token
        self._jobs: dict[str, Job] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._attending: asyncio.Task[None] | None = None

    # What others ask.

    async def submit(self, store_url: str, job_id: str) -> None:
        """Takes a job over; does nothing for one that it has.

        Raises:
            KineticError: The store or the job can't be read.
        """
        if self._known(job_id):
            return
        journal = JobJournal(await to_thread(open_shared, store_url), job_id)
        spec = await to_thread(journal.spec)
        if not self._known(job_id):
            self._jobs[job_id] = Job(job_id, journal, spec)
            self._fill()

    async def cancel(self, store_url: str, job_id: str) -> None:
        """Ends a job, whose cancel record is written; one that nobody drives is closed here and now."""
        job = self._jobs.get(job_id)
        if job is not None and job.state in ("submitting", "live"):
            job.cancelled = True
            job.changed.set()
            return
        journal = JobJournal(await to_thread(open_shared, store_url), job_id)
        async with job.closing if job is not None else contextlib.nullcontext():
            await to_thread(close_job, journal, JobStatus.STOPPED, Reason.CANCELLED, "cancelled before it was started")
        if job is not None and job.state == "waiting":
            job.state = "gone"

    def observe(self, job_id: str) -> tuple[str, str]:
        """The state of a job and a word about it; "unknown" for one that never came here."""
        job = self._jobs.get(job_id)
        return ("unknown", "") if job is None else (job.state, job.message or self._why(job))

    def arrive(self, job_id: str, epoch: int, stream: asyncio.StreamWriter) -> None:
        """A driver has said hello."""
        job = self._jobs.get(job_id)
        if job is not None and epoch >= job.epoch and job.state != "gone":
            job.driver, job.epoch, job.driven, job.state, job.ending = stream, epoch, True, "live", False
            job.changed.set()

    def leave(self, job_id: str, stream: asyncio.StreamWriter) -> None:
        """A driver's line has closed."""
        job = self._jobs.get(job_id)
        if job is not None and job.driver is stream:
            job.driver = None
            job.changed.set()

    def open_jobs(self) -> list[str]:
        """Jobs that have not ended."""
        return [job.job_id for job in self._jobs.values() if job.state != "gone"]

    def to_list(self) -> list[dict[str, Any]]:
        """As `status` shows them."""
        return [job.to_dict() for job in self._jobs.values()]

    def stores(self) -> list[str]:
        """Every store that a job came from."""
        return sorted({job.journal.store.url for job in self._jobs.values()})

    async def cancel_all(self, why: str) -> None:
        """Writes cancel records for all that has not ended, and waits until it has.

        A job whose store is away is let go as it is: that must not hold up the end of the cluster.
        """
        for job in [self._jobs[job_id] for job_id in self.open_jobs()]:
            try:
                await to_thread(job.journal.request_cancel, {"by": why, "at": time.time()})
                await self.cancel(job.journal.store.url, job.job_id)
            except (KineticError, OSError) as exc:
                _LOG.warning("%s is let go without an end: %s", job.job_id, exc)
                self._let_go(job)
        while self._tasks:
            await asyncio.wait(tuple(self._tasks))

    def _let_go(self, job: Job) -> None:
        job.state = "gone"
        for task in self._tasks:
            if task.get_name() == job.job_id:
                task.cancel()

    async def close(self) -> None:
        """Lets go of everything, as it is."""
        tasks = [*self._tasks, *([self._attending] if self._attending else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def give_up(self, why: str) -> None:
        """Ends every job that has not ended, because nothing will drive it any more."""
        open_jobs = [self._jobs[job_id] for job_id in self.open_jobs()]
        await self.close()
        for job in open_jobs:
            with contextlib.suppress(KineticError, OSError):
                await to_thread(close_lost, job.journal, why)
            job.state = "gone"

    # The queue.

    def _known(self, job_id: str) -> bool:
        return job_id in self._jobs and self._jobs[job_id].state != "gone"

    def _fill(self) -> None:
        free = max(self.max_drivers - sum(job.has_driver for job in self._jobs.values()), 0)
        waiting = sorted((job for job in self._jobs.values() if job.state == "waiting"), key=lambda job: job.order)
        for job in waiting[:free]:
            job.state = "submitting"
            task = asyncio.get_running_loop().create_task(self._drive(job), name=job.job_id)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        if len(waiting) > free and (self._attending is None or self._attending.done()):
            self._attending = asyncio.get_running_loop().create_task(self._attend())
        self._forget()

    async def _attend(self) -> None:
        """While jobs wait their turn, looks for their cancel records: the word that goes with one may be lost."""
        while waiting := [job for job in self._jobs.values() if job.state == "waiting"]:
            for job in waiting:
                with contextlib.suppress(KineticError, OSError):  # at the next look, then
                    if await to_thread(is_unwanted, job.journal) and job.state == "waiting":
                        await self.cancel(job.journal.store.url, job.job_id)
            await asyncio.sleep(self._patience.attend)

    def _forget(self) -> None:
        gone = [job_id for job_id, job in self._jobs.items() if job.state == "gone"]
        for job_id in gone[: max(len(gone) - _REMEMBERED, 0)]:
            del self._jobs[job_id]

    def _why(self, job: Job) -> str:
        if job.state == "waiting":
            return f"{self.max_drivers} of {self.max_drivers} drivers run: it starts when one of them ends"
        if job.state == "submitting" and self._head.state != "up":
            return "the embedded cluster is starting"
        return ""

    # One job.

    async def _drive(self, job: Job) -> None:
        try:
            await self._run(job)
        except Exception as exc:  # noqa: BLE001 - the loop goes on, whatever one job runs into
            _LOG.exception("%s", job.job_id)
            job.message = f"{type(exc).__name__}: {exc}"
            self._begin_end(job)
            patience = 0.0 if isinstance(exc, StoreError) else self._patience.store  # else it was waited for already
            with contextlib.suppress(KineticError, OSError):
                await surely(patience, close_lost, job.journal, job.message)
        finally:
            job.state = "gone"
        self._hub.publish("driver_gone", job_id=job.job_id, epoch=job.epoch)
        self._fill()

    async def _run(self, job: Job) -> None:
        if await self._surely(is_finished, job.journal):
            return
        self._foresee(job.spec)
        api = await self._api_unless_cancelled(job)
        if api is None:
            told = "cancelled before it was started"
            await self._surely(close_job, job.journal, JobStatus.STOPPED, Reason.CANCELLED, told)
            return
        ray_job = RayJob(api, job, self._patience)
        if not job.cancelled and not await self._surely(job.journal.cancel_requested):
            await ray_job.post()
            await self._until_gone(ray_job, job)
            while await self._is_succeeded(job):
                await self._until_gone(ray_job, job)
        await ray_job.settle()

    def _begin_end(self, job: Job) -> None:
        """Others may run while its end is written, which takes long where its store is away."""
        job.ending = True
        self._fill()

    async def _api_unless_cancelled(self, job: Job) -> JobsApi | None:
        """Ray's Jobs API once the head is up; None where the job is cancelled before that."""
        reporting = asyncio.ensure_future(self._head.report())
        try:
            while not reporting.done() and not job.cancelled:
                job.changed.clear()
                changing = asyncio.ensure_future(job.changed.wait())
                await asyncio.wait({reporting, changing}, return_when=asyncio.FIRST_COMPLETED)
                changing.cancel()
            return JobsApi(reporting.result().dashboard, self._token) if reporting.done() else None
        finally:
            reporting.cancel()

    async def _until_gone(self, ray_job: RayJob, job: Job) -> None:
        """Waits until the job's driver has gone, or Ray says that it never came."""
        stop_at = None
        while not (job.driven and job.driver is None):
            if job.cancelled and stop_at is None:
                stop_at = time.monotonic() + self._patience.cancel
            if job.cancelled and job.driver is not None:
                await ray_job.stop_soon()
                push(job.driver, {"event": "cancel"})  # again at each look: it does no harm, and none is lost
            if stop_at is not None and time.monotonic() > stop_at:
                break
            if job.driver is None and await ray_job.has_ended() and job.driver is None:  # none came meanwhile
                break
            job.changed.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(job.changed.wait(), self._patience.look)
        self._begin_end(job)

    async def _is_succeeded(self, job: Job) -> bool:
        """Whether a newer driver, which has fenced the one that went, says hello in time: closing would fence it."""
        if job.cancelled or not job.driven or await self._surely(job.journal.newest_claim) <= job.epoch:
            return False
        if await self._surely(is_finished, job.journal):
            return False
        deadline = time.monotonic() + self._patience.notice
        while job.driver is None and (left := deadline - time.monotonic()) > 0:
            job.changed.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(job.changed.wait(), left)
        return job.driver is not None

    async def _surely(self, act: Callable[..., T], *args: Any) -> T:
        """Waits long for a store that is away: a job whose end can't be written has none."""
        return await surely(self._patience.store, act, *args)

"""The driver: takes one job from the queue to its end, and leaves nothing behind."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from functools import partial
from typing import Any

from ray.exceptions import RayActorError, RayError, RayTaskError

from kinetic_ray.core.policy import Action, AttemptEnd, FailurePolicy, decide
from kinetic_ray.core.state import EventKind, JobStatus, Reason
from kinetic_ray.errors import KineticError, StoreError
from kinetic_ray.journal import Fenced
from kinetic_ray.runner.book import Overdue, reading_of
from kinetic_ray.runner.broker import find_broker
from kinetic_ray.runner.echo import Echo
from kinetic_ray.runner.gang import Gang
from kinetic_ray.runner.inbox import HostLost, HostsGone, Inbox, Stop, StopAsked, Stopped, TimedOut
from kinetic_ray.runner.liveline import Liveline
from kinetic_ray.runner.opening import OpenJob
from kinetic_ray.runner.queue import Lease, Slice
from kinetic_ray.runner.slices import Host, Misplaced, Placement, hosts_of
from kinetic_ray.runner.tasks import Start, plan_of, tasks_of, ticket_of
from kinetic_ray.runner.titles import Title
from kinetic_ray.runner.versions import refused_for_versions
from kinetic_ray.store.patience import BUDGET, retried

#: Seconds until granted hosts must have been placed: they are up, and a predecessor's processes need time to go.
_PLACED_WITHIN = 120.0
#: How long word of a lost host is waited for when an agent dies before the run.
_LOOK_AROUND = 2.0
_POLL = 30.0
#: How long the broker's first answer is waited for, which it gives at once unless the machine is overloaded.
_FIRST_WORD = 30.0
_AGAIN = 0.5
_GOODBYE = 5.0
_LOG = logging.getLogger(__name__)


class Exit(IntEnum):
    """Exit codes: zero only for a job that succeeded, so that Ray's own list of jobs agrees with ours."""

    SUCCEEDED = 0
    NOT_SUCCEEDED = 1  # failed or cancelled, which is recorded
    USAGE = 64
    BROKEN = 70  # nothing is recorded: the driver itself could not go on
    FENCED = 75  # a newer driver has the job
    TERMINATED = 143


_EXITS = {Stop.FENCED: Exit.FENCED, Stop.TERMINATE: Exit.TERMINATED, Stop.BROKEN: Exit.BROKEN}


@dataclass(frozen=True, slots=True)
class Ending:
    """How the job ends."""

    status: JobStatus
    reason: Reason | None = None
    message: str = ""
    rank: int | None = None
    attempt: int | None = None

    def to_event(self) -> dict[str, Any]:
        fields = {"status": str(self.status), "reason": str(self.reason or ""), "message": self.message}
        more = {"rank": self.rank, "attempt": self.attempt}
        return fields | {name: value for name, value in more.items() if value is not None}

    def to_text(self) -> str:
        words = str(self.status) if self.reason is None else f"{self.status}, {self.reason}"
        return f"{words}: {self.message}" if self.message else words


class Over(Exception):
    """Raised where the job ends whatever its failure policy says."""

    def __init__(self, reason: Reason, message: str, rank: int | None = None, attempt: int | None = None) -> None:
        super().__init__(message)
        self.ending = Ending(JobStatus.FAILED, reason, message, rank, attempt)


class Driver:
    """Drives one job, once."""

    def __init__(self, job: OpenJob, inbox: Inbox, supervisor: str, *, simulated: bool) -> None:
        """Does nothing yet.

        Args:
            job: The claimed job.
            inbox: Where everything arrives.
            supervisor: Socket of the embedded cluster's supervisor.
            simulated: Whether the cluster's chips are CPU devices.
        """
        self._job = job
        self._inbox = inbox
        self._recorder = job.recorder
        self._echo = Echo(job.journal.store, job.journal.keys, job.epoch)
        self._supervisor = supervisor
        self._simulated = simulated
        self._policy = FailurePolicy()
        self._broker: Any = None
        self._liveline: Liveline | None = None
        self._placement: Placement | None = None
        self._gang: Gang | None = None
        self._deadline: float | None = None

    def run(self) -> Exit:
        """From here to the end of the job; returns the process's exit code."""
        try:
            self._liveline = Liveline(self._supervisor, self._job.spec.job_id, self._job.epoch)
            self._liveline.follow(self._inbox, self._job.journal.cancel_requested)
            ending = self._ending()
            self._recorder.add(EventKind.ENDED, **ending.to_event())
            self._recorder.close()
            self._settle()
            self._echo.say(f"{self._job.spec.func_name} ({self._job.spec.job_id}) {ending.to_text()}")
        except Stopped as stopped:
            return self._say(_EXITS[stopped.asked.stop], str(stopped))
        except Fenced as fenced:
            return self._say(Exit.FENCED, str(fenced))
        finally:
            self._leave()
        return Exit.SUCCEEDED if ending.status is JobStatus.SUCCEEDED else Exit.NOT_SUCCEEDED

    def _ending(self) -> Ending:
        try:
            return self._drive()
        except Over as over:
            return over.ending
        except Stopped as stopped:
            asked = stopped.asked.stop
            if asked is Stop.CANCEL or (asked is Stop.TERMINATE and self._is_cancelled(_GOODBYE)):
                return Ending(JobStatus.STOPPED, Reason.CANCELLED, "cancelled")
            raise

    def _is_cancelled(self, patience: float) -> bool:
        """Whether the cancel record is there; no, if the store is away for longer: nobody may end it unasked."""
        try:
            return retried(self._job.journal.cancel_requested, patience)
        except StoreError as exc:
            _LOG.warning("whether it was cancelled can't be looked up: %s", exc)
            return False

    def _drive(self) -> Ending:
        if self._is_cancelled(BUDGET):
            return Ending(JobStatus.STOPPED, Reason.CANCELLED, "cancelled before it started")
        if told := refused_for_versions(self._job.spec.client, self._warn):
            return Ending(JobStatus.FAILED, Reason.SETUP_ERROR, told)
        lease = self._queue()
        history: list[AttemptEnd] = []
        while True:
            end = self._attempt(lease, len(history) + 1)
            match decide(self._policy, history, end):
                case Action.SUCCEED:
                    return Ending(JobStatus.SUCCEEDED, attempt=end.attempt)
                case Action.FAIL:
                    return Ending(JobStatus.FAILED, end.reason, end.message, end.rank, end.attempt)
                case Action.RESTART:
                    fields = {"reason": str(end.reason or ""), "message": end.message, "rank": end.rank}
                    self._recorder.add(EventKind.ATTEMPT_FAILED, attempt=end.attempt, **fields)
                    why = f"{end.reason}: {end.message}" if end.reason else end.message
                    self._echo.say(f"attempt {end.attempt} failed, attempt {end.attempt + 1} follows. {why}")
            history.append(end)

    def _warn(self, line: str) -> None:
        self._recorder.add(EventKind.WARNED, message=line)

    # Queue.

    def _queue(self) -> Lease:
        """Waits for its turn, at most `capacity_timeout`; but for a first word of the queue in any case."""
        ticket = ticket_of(self._job.spec, self._job.epoch)
        bound, begun = self._job.spec.capacity_timeout, time.monotonic()
        seen = ""
        while True:
            # What is bounded is the wait for hosts, not how long a busy machine takes to say whether there are any.
            deadline = None if bound is None else begun + (bound if seen else max(bound, _FIRST_WORD))
            self._broker = self._broker or find_broker(self._supervisor)
            acquire = self._broker.acquire.options(name=f"{self._job.spec.func_name} ({ticket.job_id}): acquire")
            asked = {0: acquire.remote(ticket.to_dict(), seen, _POLL)}
            try:
                answer = self._inbox.gather(asked, deadline)[0]
            except TimedOut:
                why = seen or "the slice broker has not answered"
                raise Over(Reason.UNSCHEDULABLE, f"no room within capacity_timeout={bound:g} s: {why}") from None
            except RayActorError as exc:  # it restarts, and keeps our place no longer than it lived
                _LOG.warning("the slice broker is away: %s", exc)
                self._broker = None
                self._inbox.pause(_AGAIN)
                continue
            match answer["state"]:
                case "granted":
                    slices = tuple(Slice(one["name"], tuple(one["nodes"])) for one in answer["slices"])
                    self._recorder.add(EventKind.GRANTED, slices=[one.name for one in slices])
                    return Lease(ticket, slices)
                case "refused":
                    raise Over(Reason.UNSCHEDULABLE, answer["reason"])
                case "fenced":
                    raise Stopped(StopAsked(Stop.FENCED, "a newer driver holds the job's place in the queue"))
            if answer["reason"] != seen:
                seen = answer["reason"]
                self._recorder.add(EventKind.QUEUED, message=seen)

    # One attempt.

    def _attempt(self, lease: Lease, number: int) -> AttemptEnd:
        hosts = hosts_of(lease)
        try:
            gang = self._gang or self._open_gang(lease, hosts, number)
            start = self._start(gang, number)
        except (HostsGone, TimedOut, Misplaced, RayError) as exc:
            return self._setup_failure(number, hosts, exc)
        spec, store = self._job.spec, self._job.journal.store
        outputs = spec.output_dir or store.uri(self._job.journal.keys.outputs)
        tasks = tasks_of(spec, start, gang.hosts, store_url=store.url, output_dir=outputs, simulated=self._simulated)
        self._recorder.add(EventKind.ATTEMPT_STARTED, attempt=number)
        self._recorder.do(partial(self._job.journal.index, spec, JobStatus.RUNNING))
        if self._deadline is None and spec.timeout is not None:
            self._deadline = time.monotonic() + spec.timeout
        try:
            with self._echo.attempt(number):
                return gang.run(tasks, self._deadline)
        except Overdue as overdue:
            text = f"timeout={spec.timeout:g} s ran out: {overdue}. What still ran was stopped: allow more, or do less"
            raise Over(Reason.DEADLINE_EXCEEDED, text, overdue.rank, number) from None

    def _open_gang(self, lease: Lease, hosts: tuple[Host, ...], number: int) -> Gang:
        title = Title(self._job.spec.func_name, self._job.spec.job_id, self._job.epoch, number)
        self._placement = Placement(lease)
        self._gang = Gang(title, self._placement, hosts, self._inbox, self._recorder)
        plan = plan_of(self._job.spec, self._job.env, simulated=self._simulated)
        self._gang.open(plan, self._job.journal.store.url, time.monotonic() + _PLACED_WITHIN)
        return self._gang

    def _start(self, gang: Gang, number: int) -> Start:
        """Fresh ports for every attempt: a late rank of an older one finds nobody there."""
        alone, one_slice = len(gang.hosts) == 1, self._job.spec.num_slices == 1
        coordinator = "" if alone else gang.address()
        slices_coordinator = "" if one_slice else gang.address()
        return Start(self._job.epoch, number, coordinator, slices_coordinator)

    def _setup_failure(self, number: int, hosts: tuple[Host, ...], exc: Exception) -> AttemptEnd:
        """What it means that the hosts could not be made ready."""
        nodes = {host.node_id: host for host in hosts if host.node_id}
        lost = exc.lost if isinstance(exc, HostsGone) else None
        if isinstance(exc, RayActorError):
            lost = self._inbox.await_loss(frozenset(nodes), time.monotonic() + _LOOK_AROUND)
        if lost is not None:
            return _lost_end(number, nodes[lost.node_id], lost)
        if isinstance(exc, TimedOut):
            where = ", ".join(sorted({host.slice_name for host in hosts if host.slice_name})) or "the CPUs"
            text = f"{where} granted, but not placed within {_PLACED_WITHIN:g} s: something else holds those hosts"
            return AttemptEnd(number, ok=False, reason=Reason.UNSCHEDULABLE, message=text)
        cause = exc.cause if isinstance(exc, RayTaskError) else exc
        text = f"the hosts could not be made ready: {cause}"
        return AttemptEnd(number, ok=False, reason=Reason.SETUP_ERROR, message=text)

    # The end.

    def _settle(self) -> None:
        try:
            retried(self._job.journal.settle, _GOODBYE)
        except StoreError as exc:  # the supervisor does it once this process is gone
            _LOG.warning("the store is away, so what follows the end is left: %s", exc)

    def _say(self, code: Exit, why: str) -> Exit:
        _LOG.warning("the driver of %s stops without a verdict: %s", self._job.spec.job_id, why)
        return code

    def _leave(self) -> None:
        """Takes everything down, step by step; what can't be done now is done by Ray when this process is gone."""
        steps: list[Callable[[], object]] = []
        if self._gang is not None:
            steps.append(self._gang.close)
        if self._placement is not None:
            steps.append(self._placement.remove)
        if self._broker is not None:
            steps.append(self._release)
        if self._liveline is not None:
            steps.append(self._liveline.close)
        steps += [self._recorder.close, self._recorder.withdraw]
        steps.append(self._echo.close)  # nobody waits for the echo: all is given back by then
        for step in steps:
            try:
                step()
            except Fenced:
                continue  # said already, by whoever met it first
            except (RayError, KineticError, OSError) as exc:
                _LOG.warning("while leaving: %s: %s", type(exc).__name__, exc)

    def _release(self) -> None:
        import ray

        done = self._broker.release.remote(self._job.spec.job_id, self._job.epoch)
        ray.wait([done], timeout=_GOODBYE)


def _lost_end(number: int, host: Host, lost: HostLost) -> AttemptEnd:
    reason, words = reading_of(lost)
    text = f"rank {host.rank} ({host.where}): {words}"
    return AttemptEnd(number, ok=False, reason=reason, message=text, rank=host.rank)

"""A backend without a cluster: each job's ranks run one after another in a thread of this process."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from kinetic_ray.backends.base import Liveness, Need, Observation
from kinetic_ray.core.accelerators import Accelerator, parse_accelerator
from kinetic_ray.core.names import JobKeys
from kinetic_ray.core.outcome import Outcome
from kinetic_ray.core.spec import JobSpec
from kinetic_ray.core.state import Event, EventKind, JobStatus, RankPhase, Reason
from kinetic_ray.journal import DriverLog, Fenced, JobJournal
from kinetic_ray.payload import load_call
from kinetic_ray.runner.capture import describe_error, dump_exception, dump_value, reason_of
from kinetic_ray.store import open_store
from kinetic_ray.vault import Vault

_PREFIX = "kinetic-thread-backend-"


class ThreadBackend:
    """Runs jobs in threads, with the records that a driver writes.

    For tests of programs that submit jobs: no Ray, no other process, `memory://` stores work. What it does not give:
    isolation, the variables of `env_vars` and `secrets`, printed logs, `context()` of the rank, and the end of a
    function that is running when its job is cancelled (the job is STOPPED once the function has returned).

    Example:
        >>> import kinetic_ray as kinetic
        >>> @kinetic.run(accelerator="cpu", backend="kinetic_ray.testing.thread_backend:ThreadBackend")
        ... def double(x: int) -> int:
        ...     return 2 * x
        >>> double(21)
        42
    """

    def __init__(self, home: Path) -> None:
        self._home = home

    def check(self, need: Need) -> None:
        """Everything fits, but for secrets that are not there."""
        Vault.of(self._home).check(need.secrets)

    def submit(self, store_url: str, job_id: str) -> None:
        journal = JobJournal(open_store(store_url, create=False), job_id)
        if self._thread_of(job_id) is None and not journal.state().is_terminal:
            threading.Thread(target=_Driver(journal).run, name=_PREFIX + job_id, daemon=True).start()

    def observe(self, store_url: str, job_id: str) -> Observation:
        if self._thread_of(job_id) is not None:
            return Observation(Liveness.LIVE)
        epoch = JobJournal(open_store(store_url, create=False), job_id).newest_claim()
        return Observation(Liveness.GONE if epoch else Liveness.UNKNOWN)

    def cancel(self, store_url: str, job_id: str) -> None:
        """The thread looks for the record itself."""

    def list(self) -> Mapping[str, Liveness]:
        names = [thread.name for thread in threading.enumerate() if thread.name.startswith(_PREFIX)]
        return {name.removeprefix(_PREFIX): Liveness.LIVE for name in names}

    def dashboard_url(self) -> str | None:
        return None

    def _thread_of(self, job_id: str) -> threading.Thread | None:
        return next((thread for thread in threading.enumerate() if thread.name == _PREFIX + job_id), None)


class _Driver:
    """One job from its claim to its end."""

    def __init__(self, journal: JobJournal) -> None:
        self._journal = journal
        self._keys = JobKeys(journal.job_id)
        self._spec = journal.spec()
        self._log: DriverLog = journal.claim({"role": "thread"})

    def run(self) -> None:
        with suppress(Fenced):  # the job was cancelled or cleaned up meanwhile
            self._drive()
        self._journal.settle()

    def _drive(self) -> None:
        accelerator = _accelerator_of(self._spec)
        hosts = [_host(rank, accelerator) for rank in range(accelerator.hosts * self._spec.num_slices)]
        self._append(EventKind.DRIVER_STARTED)
        self._append(EventKind.GRANTED, slices=sorted({host["slice"] for host in hosts if host["slice"]}))
        self._append(EventKind.PLACED, hosts=hosts)
        self._append(EventKind.ATTEMPT_STARTED, attempt=1)
        failed = None
        for host in hosts:
            if failed is None and not self._journal.cancel_requested():
                outcome = self._rank(host["rank"])
                failed = None if outcome.ok else outcome
        self._end(failed)

    def _rank(self, rank: int) -> Outcome:
        phase = RankPhase.LOAD
        try:
            get = self._journal.store.get_blob
            function, args, kwargs = load_call(get(self._spec.payload), fetch=get)
            phase = RankPhase.CALL
            self._append(EventKind.RANK_PHASE, rank=rank, phase=str(phase))
            value = function(*args, **kwargs)
            phase = RankPhase.STORE
            outcome = self._stored(rank, dump_value(value).chunks())
        except BaseException as exc:  # noqa: BLE001 - the user's function may raise anything, SystemExit as well
            outcome = self._failed(rank, phase, exc)
        self._journal.publish_outcome(self._log.epoch, 1, outcome)
        told = {"ok": outcome.ok, "reason": outcome.reason, "message": outcome.message}
        self._append(EventKind.RANK_ENDED, rank=rank, **told)
        return outcome

    def _stored(self, rank: int, chunks: Iterable[bytes]) -> Outcome:
        blob = self._journal.store.write_object(self._keys.value(self._log.epoch, 1, rank), chunks)
        return Outcome(rank, True, phase=str(RankPhase.FINISH), value=blob)

    def _failed(self, rank: int, phase: RankPhase, exc: BaseException) -> Outcome:
        error = describe_error(exc)
        data = dump_exception(exc)
        if data is not None:
            key = self._keys.error(self._log.epoch, 1, rank)
            error = replace(error, pickled=self._journal.store.write_object(key, [data]))
        message = f"{error.type_name}: {error.message}"
        return Outcome(rank, False, str(reason_of(exc, phase)), str(phase), message, error=error)

    def _end(self, failed: Outcome | None) -> None:
        if failed is not None:
            told: dict[str, Any] = {"reason": failed.reason, "message": failed.message, "rank": failed.rank}
            self._append(EventKind.ENDED, status=str(JobStatus.FAILED), attempt=1, **told)
        elif self._journal.cancel_requested():
            self._append(EventKind.ENDED, status=str(JobStatus.STOPPED), reason=str(Reason.CANCELLED), attempt=1)
        else:
            self._append(EventKind.ENDED, status=str(JobStatus.SUCCEEDED), attempt=1)

    def _append(self, kind: EventKind, **fields: Any) -> None:
        self._log.append(Event(kind, time.time(), fields))


def _accelerator_of(spec: JobSpec) -> Accelerator:
    hosts = None if spec.accelerator.startswith("tpu") else spec.hosts
    return parse_accelerator(spec.accelerator, chips_per_host=spec.chips_per_host, hosts=hosts)


def _host(rank: int, accelerator: Accelerator) -> dict[str, Any]:
    slice_index, worker_id = divmod(rank, accelerator.hosts)
    name = f"{accelerator.name}-{slice_index}" if accelerator.kind == "tpu" else ""
    return {"rank": rank, "slice": name, "worker_id": worker_id, "node_id": "thread"}

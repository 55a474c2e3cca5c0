"""Jobs as a driver would have recorded them, in a store, for tests of what reads them; and a backend that answers."""

import hashlib
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import cloudpickle

from kinetic_ray.backends.base import Liveness, Need, Observation
from kinetic_ray.core.names import make_id
from kinetic_ray.core.outcome import Blob, ErrorInfo, Outcome
from kinetic_ray.core.spec import JobSpec
from kinetic_ray.core.state import Event, EventKind, JobStatus, Reason
from kinetic_ray.journal import DriverLog, JobJournal
from kinetic_ray.payload.versions import fingerprint
from kinetic_ray.store import Store, open_store

BACKEND = "tests.unit.cli_jobs:LiveBackend"


class LiveBackend:
    """Says of every job that a driver works on it, and stops one as the supervisor does."""

    def __init__(self, home: Path) -> None:
        self.home = home

    def check(self, need: Need) -> None:
        return

    def submit(self, store_url: str, job_id: str) -> None:
        return

    def observe(self, store_url: str, job_id: str) -> Observation:
        return Observation(Liveness.LIVE)

    def cancel(self, store_url: str, job_id: str) -> None:
        journal = JobJournal(open_store(store_url), job_id)
        journal.close(JobStatus.STOPPED, Reason.CANCELLED, "cancelled", time.time())

    def list(self) -> Mapping[str, Liveness]:
        return {}

    def dashboard_url(self) -> str | None:
        return None


class DownBackend(LiveBackend):
    """Says of every job that nothing drives it."""

    def observe(self, store_url: str, job_id: str) -> Observation:
        return Observation(Liveness.DOWN)


class FoundBackend(LiveBackend):
    """Knows nothing of a job at first, as a supervisor that was just started."""

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self._asked = 0

    def observe(self, store_url: str, job_id: str) -> Observation:
        self._asked += 1
        return Observation(Liveness.UNKNOWN if self._asked == 1 else Liveness.LIVE)


@dataclass(frozen=True)
class Recorder:
    """Writes whole jobs into a store."""

    store: Store
    drivers: dict[str, DriverLog] = field(default_factory=dict)

    def pending(self, number: int = 1, **fields: Any) -> JobJournal:
        """A job that was only submitted, `number` minutes after the epoch of these tests."""
        created = 1_700_000_000 + 60 * number
        job_id = make_id("job", created * 1000, number.to_bytes(10, "big"))
        spec = JobSpec(
            job_id=job_id,
            func_name="train",
            created_at=float(created),
            accelerator="tpu-v6e-16",
            payload=Blob("0" * 64, 1),
            client=fingerprint(),
        )
        journal = JobJournal(self.store, job_id)
        journal.create(replace(spec, **fields), {})
        return journal

    def running(
        self, number: int = 1, *, ranks: int = 4, logs: Mapping[int, bytes] | None = None, **fields: Any
    ) -> JobJournal:
        """A job whose ranks all run; `logs` is what each has printed."""
        journal = self.pending(number, **fields)
        log = self.drivers[journal.job_id] = journal.claim({"role": "test"})
        at = journal.spec().created_at + 10
        hosts = [{"rank": r, "slice": "tpu-v6e-16-0", "worker_id": r, "node_id": f"n{r}"} for r in range(ranks)]
        log.append(
            Event(EventKind.DRIVER_STARTED, at),
            Event(EventKind.GRANTED, at, {"slices": ["tpu-v6e-16-0"]}),
            Event(EventKind.PLACED, at, {"hosts": hosts}),
            Event(EventKind.ATTEMPT_STARTED, at, {"attempt": 1}),
            *(Event(EventKind.RANK_PHASE, at, {"rank": r, "phase": "call"}) for r in range(ranks)),
        )
        for rank, data in (logs or {}).items():
            self.store.create(journal.keys.log(1, 1, rank), data)
        journal.index(journal.spec(), JobStatus.RUNNING)
        return journal

    def ended(self, journal: JobJournal, status: JobStatus, **fields: Any) -> JobJournal:
        """Ends a running job, by the driver that runs it; `fields` are those of the event, e.g. reason and rank."""
        at = journal.spec().created_at + 52
        facts = {"status": str(status), "attempt": 1, "reason": "", "message": "", **fields}
        log = self.drivers.get(journal.job_id)
        if log is None or log.epoch != journal.newest_claim():
            log = journal.claim({"role": "test"})
        log.append(Event(EventKind.ENDED, at, facts))
        journal.settle()
        return journal

    def succeeded(self, number: int = 1, value: object = 0.97, **fields: Any) -> JobJournal:
        """A job with a value."""
        journal = self.running(number, **fields)
        data = cloudpickle.dumps(value)
        self.store.create(journal.keys.value(1, 1, 0), data)
        blob = Blob(hashlib.sha256(data).hexdigest(), len(data))
        journal.publish_outcome(1, 1, Outcome(0, ok=True, value=blob))
        return self.ended(journal, JobStatus.SUCCEEDED)

    def failed(
        self,
        number: int = 1,
        error: Exception | None = None,
        reason: str = "UserError",
        data: bytes | None = None,
        **fields: Any,
    ) -> JobJournal:
        """A job whose rank 2 raised; `data` is what it pickled the error as."""
        return self.fail(self.running(number, **fields), error or ValueError("bad [bold] batch"), reason, data)

    def fail(
        self, journal: JobJournal, error: Exception, reason: str = "UserError", data: bytes | None = None, **end: Any
    ) -> JobJournal:
        """Ends a running job with an error of its rank 2; `end` are fields of the event."""
        data = cloudpickle.dumps(error) if data is None else data
        self.store.create(journal.keys.error(1, 1, 2), data)
        blob = Blob(hashlib.sha256(data).hexdigest(), len(data))
        name, module = type(error).__name__, type(error).__module__
        info = ErrorInfo(name, module, str(error), f"Traceback (remote)\n{name}: {error}", blob)
        message = f"{name}: {error}"
        outcome = Outcome(2, ok=False, reason=reason, phase="call", message=message, error=info)
        journal.publish_outcome(1, 1, outcome)
        return self.ended(journal, JobStatus.FAILED, **{"reason": reason, "message": message, "rank": 2, **end})

"""Listing jobs of a store that has ten thousand of them."""

import json
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import kinetic_ray as kinetic
from benchmarks.harness import Contender, Limit, interleave, table, timed
from benchmarks.programs import run_python
from kinetic_ray.core.names import make_id
from kinetic_ray.core.spec import JobSpec
from kinetic_ray.core.state import Event, EventKind, JobStatus, RankPhase, Reason
from kinetic_ray.journal import JobJournal
from kinetic_ray.payload.versions import fingerprint
from kinetic_ray.store import Store, open_store

AIM = 1.0  # seconds
_OPEN = 100  # of the newest jobs one in two has not ended
_APART = 60.0  # seconds between two jobs
_ENDS = (
    *((JobStatus.SUCCEEDED, None),) * 7,
    (JobStatus.FAILED, Reason.USER_ERROR),
    (JobStatus.FAILED, Reason.OUT_OF_MEMORY),
    (JobStatus.STOPPED, Reason.CANCELLED),
)
_COMMAND = "kinetic jobs list --state FAILED"
_BY_HAND = "every spec.json read by hand"


def run(rounds: int, size: int) -> str:
    """Times `list_jobs` with each of its filters, and the command, in a store that the records' own writers made."""
    with tempfile.TemporaryDirectory(prefix="krl", dir=_place()) as folder:
        made = timed(lambda: make_jobs(open_store(folder), size))()
        lists = {
            "list_jobs()": _listing(folder),
            'state="FAILED"': _listing(folder, state="FAILED"),
            'state="RUNNING"': _listing(folder, state="RUNNING"),
            'name="evaluate"': _listing(folder, name="evaluate"),
            'tag="nightly"': _listing(folder, tag="nightly"),
            'since="24h"': _listing(folder, since="24h"),
            'state, name, tag and since="48h"': _listing(
                folder, state="SUCCEEDED", name="train", tag="nightly", since="48h"
            ),
        }
        contenders = [Contender(name, timed(act)) for name, act in lists.items()]
        contenders.append(Contender(_COMMAND, timed(lambda: _command(folder))))
        contenders.append(Contender(_BY_HAND, timed(lambda: _read_by_hand(Path(folder)))))
        samples = interleave(contenders, rounds)
        found = ", ".join(str(len(act())) for act in lists.values())
    limits = [Limit(name, AIM) for name in (*lists, _COMMAND)]
    notes = f"  jobs found: {found}; the store was written in {made:.0f} s"
    return f"{table(f'a list of {size} jobs', samples, limits)}\n{notes}"


def _place() -> str:
    """In memory where there is such a folder: writing so many records safely to a disk takes minutes."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else "/tmp"


def _listing(folder: str, **filters: Any) -> Callable[[], list[Any]]:
    return lambda: kinetic.list_jobs(store=folder, **filters)


def _command(folder: str) -> str:
    return run_python("-m", "kinetic_ray", "jobs", "list", "--state", "FAILED", KINETIC_STORE=folder)


def _read_by_hand(folder: Path) -> list[str]:
    return [json.loads(path.read_text())["body"]["func_name"] for path in folder.glob("jobs/*/spec.json")]


def make_jobs(store: Store, count: int) -> None:
    """Writes the records of so many jobs, a minute apart; some of the newest have not ended."""
    now, versions = time.time(), fingerprint()
    payload = store.put_blob(b"nothing")
    for number in range(count):
        created = now - (count - number) * _APART
        job_id = make_id("job", int(created * 1000), number.to_bytes(10, "big"))
        name, tags = ("train", "evaluate", "export")[number % 3], ("nightly",) if number % 5 == 0 else ()
        spec = JobSpec(job_id, name, created, "cpu", payload, versions, tags=tags)
        JobJournal(store, job_id).create(spec, {})
        has_ended = count - number > _OPEN or number % 2
        if has_ended or number % 4:  # the others wait for a driver still
            _drive(JobJournal(store, job_id), spec, _ENDS[number % len(_ENDS)] if has_ended else None)


def _drive(journal: JobJournal, spec: JobSpec, end: tuple[JobStatus, Reason | None] | None) -> None:
    """Writes what a driver does; of a job that runs where no end is given."""
    log, at = journal.claim({"role": "driver"}), spec.created_at
    begun = (
        Event(EventKind.DRIVER_STARTED, at + 1),
        Event(EventKind.PLACED, at + 2, {"hosts": [{"rank": 0}]}),
        Event(EventKind.ATTEMPT_STARTED, at + 2, {"attempt": 1}),
        Event(EventKind.RANK_PHASE, at + 3, {"rank": 0, "phase": str(RankPhase.CALL)}),
    )
    log.append(*begun)
    log.beat()
    if end is None:
        journal.index(spec, JobStatus.RUNNING)
        return
    status, reason = end
    log.append(Event(EventKind.ENDED, at + 30, {"status": str(status), "reason": str(reason or ""), "attempt": 1}))
    journal.settle()

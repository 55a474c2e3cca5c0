"""Merged events (decision 0015): the name and the bytes of the object stay as they are."""

import os
from pathlib import Path

from kinetic_ray.core.names import make_id
from kinetic_ray.core.outcome import Blob
from kinetic_ray.core.spec import Fingerprint, JobSpec
from kinetic_ray.core.state import Event, EventKind
from kinetic_ray.journal import JobJournal
from kinetic_ray.store import open_store

GOLDEN = Path(__file__).parent / "events-merged-v1.json"
JOB = make_id("job", 1, bytes(10))
EVENTS = [
    Event(EventKind.PROGRESSED, 1_700_000_000.5 + n, {"step": n, "total": 64, "metrics": {"loss": 0.5}})
    for n in range(64)
]


def test_what_is_merged_today_is_what_was_merged_then(tmp_path: Path) -> None:
    journal = JobJournal(open_store(tmp_path / "store"), JOB)
    journal.create(JobSpec(JOB, "f", 1.0, "cpu", Blob("ab" * 32, 3), Fingerprint("3.11", "2.60", "3", "0")), {})
    log = journal.claim({})
    for event in EVENTS:
        log.append(event)
    log.merge()
    key = f"jobs/{JOB}/drivers/000001/events/0000000001-0000000064.json"
    if os.environ.get("REGENERATE_GOLDEN") == "1":
        GOLDEN.write_bytes(journal.store.get(key))
    assert journal.store.get(key) == GOLDEN.read_bytes()


def test_what_was_merged_then_is_read(tmp_path: Path) -> None:
    journal = JobJournal(open_store(tmp_path / "store"), JOB)
    journal.create(JobSpec(JOB, "f", 1.0, "cpu", Blob("ab" * 32, 3), Fingerprint("3.11", "2.60", "3", "0")), {})
    journal.claim({})
    journal.store.create(journal.keys.merged(1, 1, 64), GOLDEN.read_bytes())
    (log,) = journal.epochs()
    assert list(log.events) == EVENTS

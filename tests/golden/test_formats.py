"""Durable formats: what an earlier release wrote is read, and today's writers write the very same bytes.

`jobs-v1/` is a whole store: a job that ended after its driver was replaced, one that was cancelled while it waited,
and one that waits. It never changes. A release that changes a format raises the version of that record, goes on
reading the old one, and adds a folder beside it. Until the first release, `REGENERATE_GOLDEN=1 pytest tests/golden`
writes it anew.
"""

import hashlib
import json
import os
import shutil
from pathlib import Path

import pytest

from kinetic_ray.core.accelerators import all_accelerators, parse_accelerator
from kinetic_ray.core.names import make_id
from kinetic_ray.core.outcome import Blob, ErrorInfo, Outcome
from kinetic_ray.core.records import VERSIONS, dump_record
from kinetic_ray.core.spec import BundleRef, Fingerprint, JobSpec
from kinetic_ray.core.state import Event, EventKind, JobState, JobStatus, Progress, RankState, Stage
from kinetic_ray.journal import Fenced, JobJournal, list_entries, pending_jobs
from kinetic_ray.store import open_store

HERE = Path(__file__).parent
STORE = HERE / "jobs-v1"
ACCELERATORS = HERE / "accelerators-v1.txt"
REGENERATE = os.environ.get("REGENERATE_GOLDEN") == "1"

# Fixed inputs.

RAN, STOPPED, WAITS = (make_id("job", 1_700_000_000_000 + ms, bytes(range(10))) for ms in (0, 1, 2))
CLIENT = Fingerprint("3.11.9", "2.60.0", "3.1.0", "0.1.0")
PAYLOAD, BUNDLE, VALUE, ERROR = b"the pickled call", b"the archive", b"the pickled value", b"the pickled exception"


def _blob(data: bytes) -> Blob:
    return Blob(hashlib.sha256(data).hexdigest(), len(data))


RAN_SPEC = JobSpec(
    job_id=RAN,
    func_name="Trainer.step",
    created_at=1_700_000_000.25,
    accelerator="tpu-v6e-8",
    payload=_blob(PAYLOAD),
    client=CLIENT,
    bundle=BundleRef(_blob(BUNDLE), (".", "src"), "notebooks"),
    chips_per_host=4,
    num_slices=1,
    hosts=2,
    gather="all",
    runtime="jax",
    timeout=3600.0,
    capacity_timeout=60.5,
    cpus=2.0,
    memory=1 << 34,
    env_names=("HF_TOKEN",),
    env_id="0123456789abcdef",
    output_dir="file:///out",
    name="Größe 7",
    tags=("a", "b"),
    priority=-1,
    owner="ann",
)
STOPPED_SPEC = JobSpec(STOPPED, "evaluate", 1_700_000_001.0, "cpu", _blob(PAYLOAD), CLIENT)
WAITS_SPEC = JobSpec(WAITS, "sweep", 1_700_000_002.0, "cpu", _blob(PAYLOAD), CLIENT, env_names=("A",), env_id="ff00")

FAILURE = Outcome(
    rank=0,
    ok=False,
    reason="UserError",
    phase="call",
    message="ValueError: a file that isn't UTF-8: \udcff",
    error=ErrorInfo("ValueError", "builtins", "no", "Traceback (most recent call last): …", _blob(ERROR), "<value>"),
    exit_code=1,
    log_tail="step 1\nstep 2\n",
)
SUCCESS = Outcome(rank=0, ok=True, phase="finish", value=_blob(VALUE), exit_code=0)
KILLED = Outcome(rank=1, ok=False, reason="ProcessDied", phase="call", message="killed by signal 9", exit_code=-9)
HOSTS = [{"rank": rank, "slice": "tpu-v6e-8-0", "worker_id": rank, "node_id": f"{rank:02x}" * 4} for rank in range(2)]


def _event(kind: EventKind, second: float, **fields: object) -> Event:
    return Event(kind, 1_700_000_000.0 + second, fields)


FIRST_DRIVER = (
    (_event(EventKind.DRIVER_STARTED, 1), _event(EventKind.QUEUED, 1.5, message="all slices are busy")),
    (
        _event(EventKind.GRANTED, 2, slices=["tpu-v6e-8-0"]),
        _event(EventKind.PLACED, 3, hosts=HOSTS),
        _event(EventKind.ATTEMPT_STARTED, 4, attempt=1),
    ),
    (_event(EventKind.ATTEMPT_FAILED, 5, attempt=1, reason="UserError", message="rank 0: no", rank=0, collateral=[1]),),
)
SECOND_DRIVER = (
    (
        _event(EventKind.DRIVER_STARTED, 10),
        _event(EventKind.PLACED, 10.5, hosts=HOSTS),
        _event(EventKind.ATTEMPT_STARTED, 11, attempt=2),
        _event(EventKind.RANK_PHASE, 12, rank=0, phase="call"),
    ),
    (
        _event(EventKind.RANK_PHASE, 12.5, rank=1, phase="call"),
        _event(EventKind.PROGRESSED, 13, step=7, total=10, metrics={"loss": 0.125, "norm": float("inf")}),
        _event(EventKind.WARNED, 14, message="rank 1 is silent"),
        _event(EventKind.RANK_ENDED, 15, rank=0, ok=True),
        _event(EventKind.RANK_ENDED, 16, rank=1, ok=False, reason="PeerLost", message="peer"),
        _event(EventKind.ENDED, 17, status="SUCCEEDED", reason="", message="", rank=None, attempt=2),
    ),
)
#: Written by the first driver after the second had adopted: never said.
LATE = _event(EventKind.ENDED, 18, status="FAILED", reason="Hang", message="late", rank=1, attempt=1)

# What they mean.

RAN_STATE = JobState(
    status=JobStatus.SUCCEEDED,
    stage=Stage.ENDED,
    epoch=2,
    attempt=2,
    ranks=(
        RankState(0, "tpu-v6e-8-0", 0, "00000000", "call", ended=True, ok=True),
        RankState(1, "tpu-v6e-8-0", 1, "01010101", "call", ended=True, reason="PeerLost", message="peer"),
    ),
    slices=("tpu-v6e-8-0",),
    progress=Progress(7, 10, {"loss": 0.125, "norm": float("inf")}, 1_700_000_013.0),
    started_at=1_700_000_004.0,
    ended_at=1_700_000_017.0,
    warnings=("rank 1 is silent",),
)
STOPPED_STATE = JobState(
    status=JobStatus.STOPPED,
    stage=Stage.ENDED,
    reason="Cancelled",
    message="cancelled by ann",
    epoch=1,
    ended_at=1_700_000_020.0,
)


def _write_store(folder: Path) -> None:
    """Everything that a release writes, through the writers that it uses."""
    store = open_store(folder)
    for content in (PAYLOAD, BUNDLE, ERROR):
        store.put_blob(content)
    ran, stopped, waits = (JobJournal(store, job_id) for job_id in (RAN, STOPPED, WAITS))
    ran.create(RAN_SPEC, {"HF_TOKEN": "secret"})
    first = ran.claim({"role": "driver", "host": "laptop", "pid": 7})
    for segment in FIRST_DRIVER:
        first.append(*segment)
    ran.publish_outcome(1, 1, FAILURE)
    ran.publish_outcome(1, 1, KILLED)
    second = ran.claim({"role": "driver", "host": "laptop", "pid": 8})
    second.beat()
    second.beat()
    with pytest.raises(Fenced):
        first.append(LATE)
    late = {"first": 1 + sum(map(len, FIRST_DRIVER)), "events": [LATE.to_dict()]}
    store.create(ran.keys.segment(1, late["first"]), dump_record("events", late))
    store.write_object(ran.keys.value(2, 2, 0), [VALUE])
    ran.publish_outcome(2, 2, SUCCESS)
    for segment in SECOND_DRIVER:
        second.append(*segment)
    ran.settle()
    stopped.create(STOPPED_SPEC, {})
    stopped.request_cancel({"at": 1_700_000_019.0, "by": "ann"})
    stopped.close(JobStatus.STOPPED, "Cancelled", "cancelled by ann", 1_700_000_020.0)
    waits.create(WAITS_SPEC, {"A": "1"})


def _content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_writers_write_the_same_bytes(tmp_path: Path) -> None:
    _write_store(tmp_path / "store")
    written = _content(tmp_path / "store")
    if REGENERATE:
        shutil.rmtree(STORE, ignore_errors=True)
        for name, data in written.items():
            (STORE / name).parent.mkdir(parents=True, exist_ok=True)
            (STORE / name).write_bytes(data)
    golden = _content(STORE)
    assert sorted(written) == sorted(golden)
    assert written == golden


def test_there_is_a_golden_record_of_every_kind() -> None:
    records = [
        json.loads(data)
        for name, data in _content(STORE).items()
        if name.startswith("jobs/") and name.endswith(".json")
    ]
    elsewhere = {"secret"}  # lies in no store: test_secret_formats.py
    assert {record["kind"] for record in records} == set(VERSIONS) - elsewhere
    assert {record["version"] for record in records} == {1}


@pytest.fixture
def golden(tmp_path: Path) -> Path:
    """A copy, since reading may tidy up."""
    return Path(shutil.copytree(STORE, tmp_path / "golden"))


def test_an_old_store_is_read(golden: Path) -> None:
    store = open_store(golden, create=False)
    assert [(entry.job_id, entry.state, entry.func_name) for entry in list_entries(store)] == [
        (WAITS, "PENDING", "sweep"),
        (STOPPED, "STOPPED", "evaluate"),
        (RAN, "SUCCEEDED", "Trainer.step"),
    ]
    assert [journal.job_id for journal in pending_jobs(store)] == [WAITS]
    assert store.get_blob(RAN_SPEC.payload) == PAYLOAD
    assert _content(golden) == _content(STORE)


def test_an_old_job_is_read(golden: Path) -> None:
    journal = JobJournal(open_store(golden), RAN)
    assert journal.spec() == RAN_SPEC
    assert journal.state() == RAN_STATE
    assert journal.outcome(1, 1, 0) == FAILURE
    assert journal.outcome(1, 1, 1) == KILLED
    assert journal.outcome(2, 2, 0) == SUCCESS
    assert journal.store.verify_object(journal.keys.value(2, 2, 0), _blob(VALUE))
    assert (journal.heartbeat(1), journal.heartbeat(2), journal.newest_claim()) == (0, 2, 2)
    assert not journal.cancel_requested()
    events = journal.epochs()[0].events
    assert events == (*(event for segment in FIRST_DRIVER for event in segment), LATE)


def test_an_old_cancelled_job_is_read(golden: Path) -> None:
    journal = JobJournal(open_store(golden), STOPPED)
    assert journal.cancel_requested()
    assert journal.spec() == STOPPED_SPEC
    assert journal.state() == STOPPED_STATE


def test_an_old_waiting_job_goes_on(golden: Path) -> None:
    journal = JobJournal(open_store(golden), WAITS)
    assert journal.env(journal.spec()) == {"A": "1"}
    log = journal.claim({"pid": 9})
    log.append(_event(EventKind.DRIVER_STARTED, 30), _event(EventKind.ENDED, 31, status="SUCCEEDED"))
    journal.settle()
    assert journal.state().status is JobStatus.SUCCEEDED
    assert list(pending_jobs(journal.store)) == []


def test_old_accelerator_names_mean_the_same() -> None:
    """Specs, slices and pools carry canonical names: new ones may come, none may change."""
    if REGENERATE:
        ACCELERATORS.write_text("".join(f"{row.describe()}\n" for row in all_accelerators()))
    lines = ACCELERATORS.read_text().splitlines()
    assert len(lines) > 100
    assert [parse_accelerator(line.partition(":")[0]).describe() for line in lines] == lines

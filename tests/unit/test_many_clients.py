"""Many clients on one job, each doing what it likes: they agree on its end, and what is cleaned up stays so."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

import kinetic_ray as kinetic
from kinetic_ray.config import Target
from kinetic_ray.core.names import make_id
from kinetic_ray.core.outcome import Outcome
from kinetic_ray.core.spec import JobSpec
from kinetic_ray.core.state import JobStatus
from kinetic_ray.jobs import JobHandle
from kinetic_ray.journal import JobJournal
from kinetic_ray.payload import dump_call
from kinetic_ray.payload.versions import fingerprint
from kinetic_ray.store import Store, open_store
from kinetic_ray.testing.thread_backend import ThreadBackend
from tests.unit.cli_jobs import BACKEND, Recorder
from tests.waiting import wait_until

CLIENTS = 72
TIMEOUT = 60.0
GATES: dict[str, threading.Event] = {}


def _gated(name: str) -> int:
    from tests.unit.test_many_clients import GATES

    assert GATES[name].wait(TIMEOUT)
    return 42


class Bench:
    """One job on a thread backend that returns once its gate is open."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.backend = ThreadBackend(Path("/unused"))
        self.job_id = make_id("job", 1, uuid.uuid4().bytes[:10])
        self.journal = JobJournal(store, self.job_id)
        self.gate = GATES[self.job_id] = threading.Event()

    def record(self) -> None:
        payload = self.store.put_blob(dump_call(_gated, (self.job_id,)))
        spec = JobSpec(self.job_id, "gated", 1.0, "cpu", payload, fingerprint(), env_id="e")
        self.journal.create(spec, {"TOKEN": "secret"})

    def handle(self) -> JobHandle[int]:
        return JobHandle(
            self.job_id, Target("unused", self.store.url, Path("/unused")), store=self.store, backend=self.backend
        )

    def at_rest(self) -> bool:
        return self.job_id not in self.backend.list()


class Client:
    """Does things in an order of its own, and keeps what it has seen of the job's status."""

    def __init__(self, bench: Bench, seed: int, acts: list[str]) -> None:
        self._bench = bench
        self._random = random.Random(seed)
        self._acts = acts
        self._handle = bench.handle()
        self.seen: list[JobStatus] = []
        self.values: list[Any] = []

    def run(self) -> None:
        for _ in range(8):
            act = self._random.choice(self._acts)
            getattr(self, f"_{act}")()

    def _look(self) -> None:
        self.seen.append(self._handle.status())

    def _list(self) -> None:
        assert {job.job_id for job in kinetic.list_jobs(store=self._bench.store.url)} <= {self._bench.job_id}

    def _attach(self) -> None:
        try:
            found = kinetic.attach(self._bench.job_id, store=self._bench.store.url)
        except kinetic.UsageError:
            self._is_gone()
        else:
            assert found == self._handle

    def _wait(self) -> None:
        self._expect(lambda: self.seen.append(self._handle.wait(timeout=0.05)))

    def _result(self) -> None:
        self._expect(lambda: self.values.append(self._handle.result(timeout=0.05)))

    def _exception(self) -> None:
        def ask() -> None:
            error = self._handle.exception(timeout=0.05)
            if error is not None:
                raise error

        self._expect(ask)

    def _open(self) -> None:
        self._bench.gate.set()

    def _cancel(self) -> None:
        self._bench.gate.set()  # a thread can't be stopped, so it is let go
        self._handle.cancel()
        self.seen.append(self._handle.status())
        assert self.seen[-1].is_terminal

    def _cleanup(self) -> None:
        self._bench.gate.set()
        self._handle.cleanup()
        self._is_gone()

    def _is_gone(self) -> None:
        self.seen.append(self._handle.status())
        assert self.seen[-1] is JobStatus.NOT_FOUND

    def _expect(self, act: Callable[[], None]) -> None:
        try:
            act()
        except TimeoutError:
            return
        except kinetic.JobCancelled:
            self.seen.append(JobStatus.STOPPED)
        except (
            kinetic.JobLost,
            kinetic.UsageError,
            kinetic.DataError,
            kinetic.StoreError,
        ):  # cleaned up, perhaps amid its reading
            self._is_gone()


@pytest.fixture(params=["memory", "folder"])
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Bench:
    where = f"memory://{uuid.uuid4()}" if request.param == "memory" else tmp_path / "store"
    return Bench(open_store(where))


QUIET = ["look", "list", "attach", "wait", "result", "exception"]


@pytest.mark.parametrize(
    "acts",
    [[*QUIET, "open"], [*QUIET, "open", "cancel"], [*QUIET, "cancel", "cleanup"], ["result", "cancel", "cleanup"]],
    ids=["they wait", "some cancel", "some clean up", "hardly anyone waits"],
)
@pytest.mark.parametrize("seed", range(2))
def test_all_agree(bench: Bench, acts: list[str], seed: int) -> None:
    bench.record()
    bench.backend.submit(bench.store.url, bench.job_id)
    clients = [Client(bench, 1000 * seed + number, acts) for number in range(CLIENTS)]
    with ThreadPoolExecutor(CLIENTS) as pool:
        for done in [pool.submit(client.run) for client in clients]:
            done.result()
    for client in clients:
        _check_one(client.seen)
        assert set(client.values) <= {42}
    ends = {status for client in clients for status in client.seen if status.is_terminal} - {JobStatus.NOT_FOUND}
    assert len(ends) <= 1  # whether it was cancelled in time or not, nobody saw both
    if any(client.values for client in clients):
        assert ends <= {JobStatus.SUCCEEDED}
    bench.gate.set()
    bench.handle().cleanup()
    wait_until(bench.at_rest, TIMEOUT, "the end of the job's thread")
    assert [key for key in bench.store.walk("") if not key.startswith("blobs/")] == ["format.json"]


def _check_one(seen: list[JobStatus]) -> None:
    """What one client saw, in order: an end is followed by that end, or by nothing at all."""
    ended = False
    for before, after in pairwise(seen):
        ended = ended or before.is_terminal
        if ended:
            assert after in (before, JobStatus.NOT_FOUND), seen


def test_a_client_killed_amid_a_cleanup_leaves_what_the_next_one_finishes(bench: Bench) -> None:
    bench.record()
    log = bench.journal.claim({})
    log.append()
    bench.journal.store.delete(bench.journal.keys.spec)  # as far as it came
    assert bench.handle().status() is JobStatus.NOT_FOUND
    bench.handle().cancel()
    bench.handle().cleanup()
    assert bench.handle().status() is JobStatus.NOT_FOUND
    assert [key for key in bench.store.walk("") if not key.startswith("blobs/")] == ["format.json"]


PROCESSES = """
import os, sys, traceback
import kinetic_ray as kinetic
import tests.unit.cli_jobs  # once, not in each of them

kinetic.attach

def wait():
    try:
        return kinetic.attach(sys.argv[1], store=sys.argv[2]).result() != 42
    except BaseException:
        traceback.print_exc()
        return 2

children = []
for _ in range(int(sys.argv[3])):
    child = os.fork()
    if not child:
        os._exit(wait())
    children.append(child)
print("they wait", flush=True)
sys.exit(max(os.waitpid(child, 0)[1] for child in children) != 0)
"""


@pytest.mark.slow
def test_as_many_processes_agree(tmp_path: Path) -> None:
    recorder = Recorder(open_store(tmp_path / "store"))
    journal = recorder.running()
    command = [sys.executable, "-c", PROCESSES, journal.job_id, recorder.store.url, str(CLIENTS)]
    env = {**os.environ, "KINETIC_BACKEND": BACKEND, "KINETIC_HOME": str(tmp_path / "home")}
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as clients:
        assert clients.stdout is not None
        assert clients.stdout.readline() == "they wait\n"
        blob = recorder.store.write_object(journal.keys.value(1, 1, 0), [cloudpickle.dumps(42)])
        journal.publish_outcome(1, 1, Outcome(0, ok=True, value=blob))
        recorder.ended(journal, JobStatus.SUCCEEDED)
        said, _ = clients.communicate()
    assert clients.returncode == 0, said

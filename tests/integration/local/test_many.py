"""Many clusters: several at once, one after the other, and drivers that are killed by the dozen; nothing is left.

KINETIC_TEST_CYCLES is how often a cluster lives in :func:`test_lives_one_after_the_other_leave_nothing`, 10 by default.
"""

import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest

import kinetic_ray as kinetic
from kinetic_ray.backends.local import backend, guard
from kinetic_ray.backends.local.paths import Runtime, runtime_of
from tests import leaks
from tests.integration.local import clusters, probes
from tests.waiting import wait_until

_CYCLES = int(os.environ.get("KINETIC_TEST_CYCLES", "10"))
pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(max(900, 90 * _CYCLES))]
_KILLED_AT_ONCE = 2  # as many as run at once on a machine of two CPUs
_CLUSTERS = 3
_GONE_S = 15.0


@kinetic.run(accelerator="cpu")
def twice(number: int) -> int:
    """Some work."""
    return 2 * number


@kinetic.run(accelerator="cpu")
def meet(folder: str, name: str, others: int) -> int:
    """Returns when as many others as that are in the same folder at the same time."""
    import threading
    import time
    from pathlib import Path

    Path(folder, name).touch()
    deadline = time.monotonic() + 300
    while len(list(Path(folder).iterdir())) < others and time.monotonic() < deadline:
        threading.Event().wait(0.05)
    return len(list(Path(folder).iterdir()))


@kinetic.run(accelerator="cpu")
def linger(flag: str) -> str:
    """Starts a process in a session of its own, tells both numbers, waits to be ended."""
    import os
    import signal
    import subprocess
    import sys
    from pathlib import Path

    below = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"], start_new_session=True)
    Path(flag + ".new").write_text(f"{os.getpid()} {below.pid}")
    Path(flag + ".new").rename(flag)
    signal.pause()
    return "unreachable"


class Life:
    """What there is of a cluster, to look for afterwards."""

    def __init__(self, home: Path, temporary: Path) -> None:
        self._runtime: Runtime = runtime_of(home)
        self._temporary = temporary
        self._shared = leaks.shared_memory()
        self._pids: set[int] = set()

    def look(self) -> None:
        """Notes its processes."""
        self._pids |= {process.pid for process in probes.below(self._runtime)}
        assert len(self._pids) > 10
        assert len(probes.ports(self._runtime)) > 5

    def left(self) -> list[str]:
        """What is still there; the number of a process may be somebody else's by now."""
        alive = guard.parents().keys() & self._pids
        found = [f"process {pid}" for pid in sorted(alive) if _is_of(pid, self._runtime)]
        found += [f"process {process.pid}" for process in clusters.processes(self._runtime)]
        for one in psutil.net_connections("inet"):
            if one.status == psutil.CONN_LISTEN and one.pid and _is_of(one.pid, self._runtime):
                found.append(f"port {one.laddr.port}")
        found += [str(path) for path in (self._runtime.root,) if path.exists()]
        found += [str(path) for path in self._temporary.iterdir()]
        return found + [f"/dev/shm/{name}" for name in leaks.abandoned_shared_memory(self._shared)]


def _is_of(pid: int, runtime: Runtime) -> bool:
    try:
        return str(runtime.root) in " ".join(psutil.Process(pid).environ().values())
    except psutil.Error:
        return False


@pytest.fixture
def temporary(test_homes: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder for temporary files of all that starts in the test, so that what is left of them can be told."""
    folder = Path(tempfile.mkdtemp(prefix="t", dir=test_homes))
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder


def test_lives_one_after_the_other_leave_nothing(own_cluster: Path, temporary: Path) -> None:
    for cycle in range(_CYCLES):
        life = Life(own_cluster, temporary)
        job = twice.run_async(cycle)
        assert job.result(timeout=120) == 2 * cycle
        if cycle % 5 == 0:
            assert clusters.slices(runtime_of(own_cluster), "tpu-v6e-8")["slices"]
        life.look()
        assert backend.stop(own_cluster, force=True)
        assert life.left() == [], cycle


@pytest.fixture
def homes(test_homes: Path) -> Iterator[list[Path]]:
    """Homes of clusters that are stopped here."""
    with ExitStack() as ending:
        found = [Path(tempfile.mkdtemp(prefix="krt", dir=test_homes)) for _ in range(_CLUSTERS)]
        for home in found:
            ending.callback(backend.stop, home, force=True)
        yield found


def test_clusters_run_their_jobs_side_by_side(
    homes: list[Path], temporary: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lives = [Life(home, temporary) for home in homes]
    jobs = []
    for home in homes:
        monkeypatch.setenv("KINETIC_HOME", str(home))
        jobs.append(meet.run_async(str(tmp_path), home.name, len(homes)))
    assert [job.result(timeout=400) for job in jobs] == [len(homes)] * len(homes)
    found = [{port.number for port in probes.ports(runtime_of(home))} for home in homes]
    assert len(set.union(*found)) == sum(len(ports) for ports in found)
    for home, life, job in zip(homes, lives, jobs, strict=True):
        life.look()
        assert [one["submission_id"] for one in clusters.api_of(home)._ask("GET", "")] == [job.job_id]
    assert backend.stop(homes[0], force=True)  # its driver may still be about to end
    monkeypatch.setenv("KINETIC_HOME", str(homes[1]))
    assert twice.run(4) == 8  # the others go on
    for home in homes[1:]:
        assert backend.stop(home, force=True)
    assert [life.left() for life in lives] == [[]] * len(lives)


def test_drivers_that_are_killed_leave_no_rank(own_cluster: Path, temporary: Path, tmp_path: Path) -> None:
    for round_ in range(max(1, _CYCLES * 2 // 5 // _KILLED_AT_ONCE)):
        flags = [tmp_path / f"{round_}.{number}" for number in range(_KILLED_AT_ONCE)]
        jobs = [linger.run_async(str(flag)) for flag in flags]
        for flag in flags:
            wait_until(flag.exists, 180, "a job to run")
        pids = {int(pid) for flag in flags for pid in flag.read_text().split()}
        drivers = _drivers(own_cluster, {job.job_id for job in jobs})
        assert len(drivers) == len(jobs)
        assert pids <= guard.parents().keys()
        for driver in drivers:
            driver.kill()
        wait_until(lambda pids=pids: not pids & guard.parents().keys(), _GONE_S, "the ranks of killed drivers to end")
        for job in jobs:
            wait_until(lambda job=job: job.status().is_terminal, 60, "the job to have an end")
            assert job.phase().reason == "DriverLost"


def _drivers(home: Path, job_ids: set[str]) -> list[psutil.Process]:
    found = []
    for process in probes.below(runtime_of(home)):
        try:
            words = process.cmdline()
        except psutil.Error:
            continue
        if words[1:3] == ["-m", "kinetic_ray.runner"] and words[-1] in job_ids:
            found.append(process)
    return found

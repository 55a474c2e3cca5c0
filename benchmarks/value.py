"""A job whose value is large: seconds until it is stored, until another process has it, and the memory for both."""

import itertools
import os
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import kinetic_ray as kinetic
from benchmarks.cluster import jobs_client, run_raw_job
from benchmarks.harness import Aim, Contender, interleave, table
from benchmarks.programs import peak_memory, run_python

STORED, FETCHED = "kinetic, until the job has ended", "kinetic, attach and result() in a new process"
RAW_STORED, RAW_FETCHED = "a raw Ray job that pickles it into a file", "pickle.load in a new process"
_PEAK = "from benchmarks.programs import peak_memory; print(time.perf_counter() - begun, peak_memory())"
_FETCH = f"""
import sys, time
import numpy
import kinetic_ray as kinetic
begun = time.perf_counter()
value = kinetic.attach(sys.argv[1]).result()
assert value.nbytes == int(sys.argv[2])
{_PEAK}
"""
_LOAD = f"""
import pickle, sys, time
import numpy
begun = time.perf_counter()
with open(sys.argv[1], "rb") as file:
    value = pickle.load(file)
assert value.nbytes == int(sys.argv[2])
{_PEAK}
"""
_LOOK_AGAIN = 0.002  # seconds between two looks at the rank's memory

Peaks = dict[str, int]


@kinetic.remote
def give(size: int, pid_file: str) -> object:
    """Gives so many bytes."""
    import numpy as np

    Path(pid_file).write_text(str(os.getpid()))
    return np.ones(size, dtype=np.uint8)


def run(rounds: int, size: int) -> str:
    """Compares `run_async` and a `result()` elsewhere with a raw Ray job that leaves a pickle in a file."""
    peaks: Peaks = {}
    with tempfile.TemporaryDirectory(prefix="krv", dir="/tmp") as folder:
        ours, raw = _Ours(Path(folder), size, peaks), _Raw(Path(folder), size, peaks)
        contenders = [
            Contender(STORED, ours.store),
            Contender(FETCHED, ours.fetch),
            Contender(RAW_STORED, raw.store),
            Contender(RAW_FETCHED, raw.fetch),
        ]
        samples = _in_pairs(contenders, rounds)
        ours.end()
    lines = [f"  memory at most, {who}: {peak / size:.2f}x of the value" for who, peak in peaks.items()]
    aims = [Aim(STORED, RAW_STORED, 1.3), Aim(FETCHED, RAW_FETCHED, 1.3)]
    return "\n".join([table(f"a value of {size / 1e9:g} GB", samples, aims), *lines])


def _in_pairs(contenders: list[Contender], rounds: int) -> dict[str, list[float]]:
    """Stores, then fetches what was stored: so pairs take turns."""
    pairs = [contenders[:2], contenders[2:]]
    samples: dict[str, list[float]] = {contender.name: [] for contender in contenders}
    for number in range(rounds):
        for pair in pairs[number % 2 :] + pairs[: number % 2]:
            for name, seconds in interleave(pair, 1, warm_up=0).items():
                samples[name].extend(seconds)
    return samples


def _note(peaks: Peaks, who: str, peak: int) -> None:
    peaks[who] = max(peaks.get(who, 0), peak)


class _Ours:
    def __init__(self, folder: Path, size: int, peaks: Peaks) -> None:
        self._folder, self._size, self._peaks = folder, size, peaks
        self._numbers = itertools.count()
        self._job: kinetic.JobHandle[object] | None = None

    def store(self) -> float:
        self.end()
        pid_file = self._folder / f"pid-{next(self._numbers)}"
        watch = _Watch(pid_file)
        begun = time.perf_counter()
        self._job = give.run_async(self._size, str(pid_file))
        self._job.wait()
        seconds = time.perf_counter() - begun
        _note(self._peaks, "kinetic's rank", watch.peak())
        return seconds

    def fetch(self) -> float:
        assert self._job is not None
        seconds, peak = run_python("-c", _FETCH, self._job.job_id, str(self._size)).split()
        _note(self._peaks, "kinetic's client", int(peak))
        return float(seconds)

    def end(self) -> None:
        """Removes the job and its value."""
        if self._job is not None:
            self._job.cleanup()


class _Raw:
    def __init__(self, folder: Path, size: int, peaks: Peaks) -> None:
        self._folder, self._size, self._peaks = folder, size, peaks
        self._client = jobs_client()
        self._value = folder / "raw-value"

    def store(self) -> float:
        told = self._folder / "raw-told"
        told.unlink(missing_ok=True)
        begun = time.perf_counter()
        peak = run_raw_job(self._client, "benchmarks.raw_value", str(self._size), str(self._value), result=told)
        seconds = time.perf_counter() - begun
        _note(self._peaks, "the raw job", int(peak))
        return seconds

    def fetch(self) -> float:
        seconds, peak = run_python("-c", _LOAD, str(self._value), str(self._size)).split()
        _note(self._peaks, "who loads the pickle", int(peak))
        return float(seconds)


class _Watch:
    """The most memory of a process that writes its id into a file, until it ends."""

    def __init__(self, pid_file: Path) -> None:
        self._pid_file = pid_file
        self._peak = 0
        self._given_up = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def peak(self) -> int:
        """Bytes, once the process has ended, or a while after this was asked."""
        self._thread.join(10)
        self._given_up.set()
        return self._peak

    def _look(self) -> None:
        pid = self._until(lambda: int(self._pid_file.read_text()))
        while pid and not self._given_up.wait(_LOOK_AGAIN):
            try:
                self._peak = max(self._peak, peak_memory(pid))
            except (OSError, ValueError):  # it has ended
                return

    def _until(self, ask: Callable[[], int]) -> int:
        while not self._given_up.wait(_LOOK_AGAIN):
            try:
                return ask()
            except (OSError, ValueError):  # not written yet
                continue
        return 0

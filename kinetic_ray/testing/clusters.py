"""Embedded clusters for tests, with what can befall a cluster."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kinetic_ray.backends.local import backend, client, guard, residents
from kinetic_ray.backends.local.paths import runtime_of
from kinetic_ray.errors import UsageError
from kinetic_ray.jobs import JobHandle
from kinetic_ray.settings import SETTINGS
from kinetic_ray.testing.processes import driver_process, rank_process

#: Settings that would lead calls elsewhere.
_OURS = (
    *("home", "backend", "store", "profile", "profiles_file", "output_dir"),
    *("local_slices", "local_idle_s", "local_memory_mb"),
)
_START_S, _ANSWER_S = 300.0, 30.0


class LocalCluster:
    """An embedded cluster of a test's own, apart from any other on the machine.

    Calls go to it inside :meth:`active`; :func:`local_cluster` and the fixtures see to that, and to its end.

    Attributes:
        home: Its KINETIC_HOME; jobs and logs are in `home / "store"`.
    """

    def __init__(self, home: Path, slices: Mapping[str, int] | None = None) -> None:
        """Starts nothing yet.

        Args:
            home: Where its state is.
            slices: The pool that it has, e.g. {"tpu-v6e-16": 2}; None = any shape on demand.
        """
        self.home = home
        self._slices = slices
        self._held_up: dict[threading.Timer, Callable[[], None]] = {}

    # Its life.

    @contextmanager
    def active(self) -> Iterator[LocalCluster]:
        """Makes it the one to which the calls of this process go, and of those that it starts."""
        names = {SETTINGS[name].env for name in _OURS}
        before = {name: os.environ.pop(name) for name in names if name in os.environ}
        os.environ["KINETIC_HOME"] = str(self.home)
        if self._slices is not None:
            os.environ["KINETIC_LOCAL_SLICES"] = json.dumps(dict(self._slices))
        try:
            yield self
        finally:
            _leave()
            for name in names:
                os.environ.pop(name, None)
            os.environ.update(before)

    def start(self) -> None:
        """Starts it, inside :meth:`active`, and waits until its head is up; slices start when they are asked for."""
        self.home.mkdir(parents=True, exist_ok=True)
        client.ensure(self.home)
        backend.environment(self.home)

    def stop(self) -> None:
        """Ends it with all that it runs, and waits for that."""
        _leave()
        for timer in tuple(self._held_up):
            timer.cancel()
            self._go_on(timer)
        backend.stop(self.home, force=True)

    def status(self) -> dict[str, Any]:
        """What `kinetic local status --json` tells."""
        return self._tell({"op": "status"})

    def slices(self) -> dict[str, str]:
        """The slices there are, and the state of each: starting, up, going, silent, lost, stopping."""
        return {one["name"]: one["state"] for one in self.status()["slices"]}

    def start_slices(self, accelerator: str, count: int = 1) -> list[str]:
        """Starts slices before a job asks for them, and waits until they are up; gives their names.

        Raises:
            UsageError: So many can't ever be there.
        """
        request = {"op": "slices", "accelerator": accelerator, "chips_per_host": 0, "count": count}
        return [one["name"] for one in self._tell(request, _START_S)["slices"]]

    # What befalls it.

    def preempt(
        self,
        target: str,
        *,
        grace: float | None = None,
        silent: bool = False,
        return_after: float | None = None,
    ) -> dict[str, Any]:
        """Takes a slice, or one host of it, away, as `kinetic local preempt` does; returns at once.

        Args:
            target: A slice ("tpu-v6e-16-0") or a host ("tpu-v6e-16-0.2"), with which its slice goes.
            grace: Seconds between the notice, at which ranks get SIGTERM, and the end; 25 if not given.
            silent: No notice: the hosts stop answering.
            return_after: Seconds from the end until a fixed pool has the slice again, 5 if not given.

        Raises:
            UsageError: There is no such slice or host; the message lists what there is.
        """
        asked = {"target": target, "grace": grace, "silent": silent, "return_after": return_after}
        return self._tell({"op": "preempt", **asked})

    def kill_host(self, host: str) -> None:
        """Kills a host at once and without a word, as a crash does; its slice goes with it."""
        guard.end(self._host(host)[1])

    def kill_rank(self, job: JobHandle[Any], rank: int = 0) -> None:
        """Kills a rank's process, as the kernel does where memory is short.

        Raises:
            UsageError: It has none now; `wait_for(job, "call", rank=...)` waits for one.
        """
        rank_process(job, rank).kill()

    def kill_driver(self, job: JobHandle[Any]) -> None:
        """Kills the process that drives a job.

        Raises:
            UsageError: It has none now.
        """
        driver_process(job).kill()

    def delay_host(self, host: str, seconds: float) -> None:
        """Holds a host up: nothing on it runs or answers for so long. Returns at once.

        Ray takes a host that is silent for more than about 6 s for dead.
        """
        folder, pid = self._host(host)
        residents.freeze(folder, pid)
        self._later(seconds, lambda: residents.thaw(folder, pid))

    def delay_rank(self, job: JobHandle[Any], seconds: float, rank: int = 0) -> None:
        """Holds a rank's process up; what it has started goes on. Returns at once.

        Raises:
            UsageError: It has none now; `wait_for(job, "fetch", rank=...)` waits for one.
        """
        process = rank_process(job, rank)
        process.suspend()
        self._later(seconds, lambda: process.resume() if process.is_running() else None)

    def _tell(self, request: Mapping[str, object], timeout: float = _ANSWER_S) -> dict[str, Any]:
        """What its supervisor answers.

        Raises:
            UsageError: It doesn't run, or refuses.
        """
        answer = client.ask(self.home, request, timeout)
        if answer is None:
            raise UsageError(f"the cluster of {self.home} doesn't run: start() it, inside of active()")
        return answer

    def _host(self, name: str) -> tuple[Path, int]:
        """The folder and the guard of a host.

        Raises:
            UsageError: No such host is up.
        """
        hosts = {
            f"{one['name']}.{host['worker_id']}": host["pid"]
            for one in self.status()["slices"]
            for host in one["hosts"]
            if host["state"] == "up"
        }
        if name not in hosts:
            raise UsageError(f"no host {name!r}: there are {', '.join(sorted(hosts)) or 'none now'}")
        return runtime_of(self.home).hosts / name, hosts[name]

    def _later(self, seconds: float, act: Callable[[], None]) -> None:
        timer = threading.Timer(seconds, lambda: self._go_on(timer))
        timer.daemon = True
        self._held_up[timer] = act
        timer.start()

    def _go_on(self, timer: threading.Timer) -> None:
        act = self._held_up.pop(timer, None)
        if act is not None:
            act()


def _leave() -> None:
    """Has this process leave Ray, if it has joined a cluster of ours for `.remote()`."""
    ray = sys.modules.get("ray")
    if ray is not None and ray.is_initialized():
        from kinetic_ray.calls.connect import disconnect

        disconnect()


@contextmanager
def local_cluster(slices: Mapping[str, int] | None = None, *, home: Path | None = None) -> Iterator[LocalCluster]:
    """An embedded cluster that lives as long as the block; calls in the block go to it.

    Args:
        slices: The pool that it has, e.g. {"tpu-v6e-16": 2}; None = any shape on demand, up to 16 hosts.
        home: Where its state, its jobs and their logs are kept; None = a new folder that is removed at the end.

    Example:
        >>> with local_cluster({"tpu-v6e-16": 1}) as cluster:  # doctest: +SKIP
        ...     job = train.run_async()
        ...     wait_for(job, "call")
        ...     cluster.preempt("tpu-v6e-16-0")
        ...     job.wait()
    """
    place = Path(tempfile.mkdtemp(prefix="kinetic-test-")) if home is None else home
    cluster = LocalCluster(place, slices)
    try:
        with cluster.active():
            try:
                cluster.start()
                yield cluster
            finally:
                cluster.stop()
    finally:
        if home is None:
            shutil.rmtree(place, ignore_errors=True)

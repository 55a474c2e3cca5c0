"""The host agent: one per host of a gang, the driver's hands there.

A plain class; the driver makes a Ray actor of it. Its methods take and give JSON types and may run concurrently.
"""

from __future__ import annotations

import logging
import os
import shutil
import socket
import sys
import tempfile
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from kinetic_ray.errors import ConfigError, UsageError
from kinetic_ray.runner.births import Way, ways_to_begin
from kinetic_ray.runner.hosted import HostedRank
from kinetic_ray.runner.link import ZygoteLink
from kinetic_ray.runner.ports import PortKeeper
from kinetic_ray.runner.task import RUNTIMES, HostPlan, RankTask
from kinetic_ray.store import Store, open_store

_LOG = logging.getLogger(__name__)


class HostAgent:
    """Prepares a host, starts and ends its rank, tells how that went."""

    def __init__(self, title: str = "") -> None:
        """Does nothing yet.

        Args:
            title: What Ray shows for this actor.
        """
        self._title = title
        self._ports = PortKeeper()
        self._ranks: dict[int, HostedRank] = {}
        self._fenced = 0
        self._zygote: ZygoteLink | None = None
        self._stores: dict[str, Store] = {}
        self._lock = threading.Lock()  # of the attempts, never held for long
        self._zygote_lock = threading.Lock()

    def __repr__(self) -> str:
        return self._title or f"HostAgent({os.getpid()})"

    def describe(self) -> dict[str, Any]:
        """Which host this is, by its environment and Ray's."""
        return {
            "node_id": _node_id(),
            "slice_name": os.environ.get("TPU_NAME", ""),
            "worker_id": int(os.environ.get("TPU_WORKER_ID") or 0),
            "chips": _chips(),
            "pid": os.getpid(),
            "host": socket.gethostname(),
        }

    def prepare(self, plan: dict[str, Any]) -> dict[str, Any]:
        """Has a zygote for the plan: the one that is there if its plan is equal, else a new one.

        Raises:
            UsageError: An unknown runtime.
            ConfigError: The runtime can't be imported here.
        """
        wanted = HostPlan.from_dict(plan)
        if wanted.runtime not in RUNTIMES:
            raise UsageError(f"unknown runtime {wanted.runtime!r}: one of {', '.join(RUNTIMES)}")
        started = time.monotonic()
        with self._zygote_lock:
            zygote = self._zygote_for(wanted)
        seconds = time.monotonic() - started
        return {"ready": True, "seconds": seconds, "pid": zygote.pid, "forks": zygote.forks}

    def free_port(self) -> int:
        """A port that stays free for a coordinator of this host, and that no earlier attempt here has used."""
        return self._ports.take()

    def start(self, task: dict[str, Any]) -> dict[str, Any]:
        """Starts a rank; an older attempt that still runs is fenced first. The same attempt twice is started once.

        Raises:
            UsageError: The attempt is fenced already, or `prepare` was not called.
        """
        asked = RankTask.from_dict(task)
        self.fence(asked.attempt - 1)
        with self._zygote_lock:
            found = self._known(asked)
            if found is None:
                found = self._start(asked)
                with self._lock:
                    self._ranks[asked.attempt] = found
        return {"pid": found.pid}

    def next(self, attempt: int, timeout: float) -> list[dict[str, Any]]:
        """What an attempt has said since the last call; waits up to `timeout` seconds.

        The message about the end is the last, and is repeated at every later call.

        Raises:
            UsageError: The attempt was never started here.
        """
        with self._lock:
            found = self._ranks.get(attempt)
        if found is None:
            raise UsageError(f"attempt {attempt} was never started on this host")
        return found.feed.take(timeout)

    def announce_end(self, attempt: int) -> None:
        """This host is about to be taken away: an attempt that runs gets SIGTERM, as pods get it from Kubernetes."""
        with self._lock:
            found = self._ranks.get(attempt)
        if found is not None:
            found.terminate()

    def fence(self, attempt: int) -> None:
        """Ends this and every earlier attempt with all their processes; returns when they are gone."""
        with self._lock:
            self._fenced = max(self._fenced, attempt)
            old = [found for number, found in self._ranks.items() if number <= attempt]
        for found in old:
            found.fence()

    def stop(self) -> None:
        """Ends everything on this host: the rank, the zygote, the working folder."""
        with self._lock:
            self._fenced = max([self._fenced, *self._ranks])
        with self._zygote_lock:
            self._drop_zygote()
        for found in list(self._ranks.values()):
            found.feed.await_end()
        self._ports.release()

    def _known(self, asked: RankTask) -> HostedRank | None:
        with self._lock:
            if asked.attempt <= self._fenced:
                raise UsageError(f"attempt {asked.attempt} of {asked.job_id} is fenced on this host: start a later one")
            return self._ranks.get(asked.attempt)

    def _start(self, asked: RankTask) -> HostedRank:
        if self._zygote is None:
            raise UsageError("start() before prepare(): this host has no zygote")
        zygote = self._zygote_for(self._zygote.plan)  # another one, should it have died
        for old in zygote.scratch.iterdir():  # only one attempt lives at a time
            shutil.rmtree(old, ignore_errors=True)
        folder = zygote.scratch / f"{asked.attempt}-{asked.rank}"
        folder.mkdir()
        env = {"KINETIC_NODE_ID": _node_id(), **asked.env}
        return HostedRank(replace(asked, work_dir=str(folder), env=env), self._store(asked.store_url), zygote)

    def _store(self, url: str) -> Store:
        if url not in self._stores:
            self._stores[url] = open_store(url, create=False)
        return self._stores[url]

    def _zygote_for(self, plan: HostPlan) -> ZygoteLink:
        if self._zygote is None or not self._zygote.alive or self._zygote.plan != plan:
            self._drop_zygote()
            self._zygote = _new_zygote(plan)
        return self._zygote

    def _drop_zygote(self) -> None:
        if self._zygote is not None:
            self._zygote.close()
            shutil.rmtree(self._zygote.scratch, ignore_errors=True)
            self._zygote = None


def _new_zygote(plan: HostPlan) -> ZygoteLink:
    *others, last = ways_to_begin(plan, os.environ)
    for way in others:
        try:
            return _begin(plan, way)
        except (OSError, ConfigError) as exc:
            _LOG.warning("no zygote by way of the %s, so by %s: %s", way.name, last.name, exc)
    return _begin(plan, last)


def _begin(plan: HostPlan, way: Way) -> ZygoteLink:
    """A folder for each try: a zygote that comes too late removes its own."""
    # In the folder of a simulated cluster, whose end is also the end of what a killed host has left.
    scratch = Path(tempfile.mkdtemp(prefix="kinetic-", dir=os.environ.get("RAY_TMPDIR")))
    try:
        return ZygoteLink(plan, scratch, way.begin, way.patience)
    except BaseException:
        shutil.rmtree(scratch, ignore_errors=True)
        raise


def _node_id() -> str:
    """The Ray node that this process belongs to; "" outside of Ray."""
    if "ray" not in sys.modules:
        return ""
    import ray

    return str(ray.get_runtime_context().get_node_id()) if ray.is_initialized() else ""


def _chips() -> int:
    """Chips that Ray assigned to the node; 0 where there are none."""
    if not _node_id():
        return 0
    import ray

    mine = next((node for node in ray.nodes() if node["NodeID"] == _node_id()), None)
    return int(mine["Resources"].get("TPU", 0)) if mine else 0

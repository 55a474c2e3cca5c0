"""The host agent: one per host of a gang, the driver's hands there.

A plain class; the driver makes a Ray actor of it. Its methods take and give JSON types and may run concurrently.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from dataclasses import replace
from typing import Any

from kinetic_ray.errors import KineticError, UsageError
from kinetic_ray.runner.hosted import HostedRank
from kinetic_ray.runner.hosting import ZygoteKeeper, describe_host, fresh_folder, node_id
from kinetic_ray.runner.link import NotReady
from kinetic_ray.runner.ports import PortKeeper
from kinetic_ray.runner.shipping import append_to_log
from kinetic_ray.runner.task import HostPlan, RankTask
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
        self._announced = 0
        self._zygotes = ZygoteKeeper()
        self._stores: dict[str, Store] = {}
        self._lock = threading.Lock()  # of the attempts, never held for long
        self._zygote_lock = threading.Lock()

    def __repr__(self) -> str:
        return self._title or f"HostAgent({os.getpid()})"

    def describe(self) -> dict[str, Any]:
        """Which host this is, by its environment and Ray's."""
        return describe_host()

    def prepare(self, plan: dict[str, Any], log: tuple[str, str] | None = None) -> dict[str, Any]:
        """Has a zygote for the plan: the one that is there if its plan is equal, else a new one.

        Args:
            plan: A HostPlan's dict.
            log: Where a failure is told as well, beside what the zygote has said: a store's URL, and a log's key there.

        Raises:
            UsageError: An unknown runtime.
            ConfigError: The runtime can't be imported here, or the host lacks what the plan names.
            OSError: No process can be started here.
        """
        wanted = HostPlan.from_dict(plan)
        started = time.monotonic()
        with self._zygote_lock:
            try:
                zygote = self._zygotes.zygote_for(wanted)
            except (KineticError, OSError) as exc:
                self._log_failure(exc, log)
                raise
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
                    is_going = self._announced == asked.attempt
                if is_going:
                    found.terminate()
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
        """This host is about to be taken away: an attempt that runs or is about to gets SIGTERM, as pods do on GKE."""
        with self._lock:
            self._announced = attempt
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
            self._zygotes.drop()
        for found in list(self._ranks.values()):
            found.feed.await_end()
        self._ports.release()

    def _known(self, asked: RankTask) -> HostedRank | None:
        with self._lock:
            if asked.attempt <= self._fenced:
                raise UsageError(f"attempt {asked.attempt} of {asked.job_id} is fenced on this host: start a later one")
            return self._ranks.get(asked.attempt)

    def _start(self, asked: RankTask) -> HostedRank:
        if self._zygotes.plan is None:
            raise UsageError("start() before prepare(): this host has no zygote")
        zygote = self._zygotes.zygote_for(self._zygotes.plan)  # another one, should it have died
        folder = fresh_folder(zygote, f"{asked.attempt}-{asked.rank}", with_code=asked.bundle is not None)
        env = {"KINETIC_NODE_ID": node_id(), **asked.env}
        return HostedRank(replace(asked, work_dir=str(folder), env=env), self._store(asked.store_url), zygote)

    def _log_failure(self, exc: Exception, log: tuple[str, str] | None) -> None:
        """Nothing else will ever write to the log of a rank that can't be started."""
        if log is None:
            return
        url, key = log
        words = exc.words if isinstance(exc, NotReady) else ""
        gap = "" if not words or words.endswith("\n") else "\n"
        told = str(exc).partition("; it said:\n")[0] if words else str(exc)
        try:
            append_to_log(self._store(url), key, f"{words}{gap}kinetic: {told}\n")
        except (KineticError, OSError) as broken:  # the failure itself is told by its exception
            _LOG.warning("the log %s can't be written: %s", key, broken)

    def _store(self, url: str) -> Store:
        if url not in self._stores:
            self._stores[url] = open_store(url, create=False)
        return self._stores[url]

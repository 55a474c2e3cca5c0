"""The supervisor of an embedded cluster: owns the head, the simulated hosts, the submit loop and the socket.

It lives exactly as long as its head: when the head dies or nothing has happened for a while, it ends all and itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import secrets
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from kinetic_ray.backends.local import env, guard, leftovers, pool, preempt
from kinetic_ray.backends.local.ending import lost_by_an_end
from kinetic_ray.backends.local.head import Head
from kinetic_ray.backends.local.hub import Hub, push
from kinetic_ray.backends.local.launch import Launcher
from kinetic_ray.backends.local.need import check_need
from kinetic_ray.backends.local.nursery import Nursery
from kinetic_ray.backends.local.paths import Runtime, runtime_of
from kinetic_ray.backends.local.server import Answer, Request, Server, until_closed
from kinetic_ray.backends.local.slices import Slices
from kinetic_ray.backends.local.submit import SubmitLoop
from kinetic_ray.core.accelerators import parse_accelerator
from kinetic_ray.core.spec import JobSpec
from kinetic_ray.errors import ConfigError, KineticError, SubmissionError, UsageError
from kinetic_ray.version import __version__

_LOG = logging.getLogger(__name__)

_IDLE_SLICE_S = 300.0
_LOCK_S = 90.0
_LAST_WORDS_S = 2.0
_THREADS = 32  # each waits for a store or for the Jobs API


class Unschedulable(KineticError):
    """What was asked for never fits; on the wire its name tells that from what only has to wait."""


class Supervisor:
    """One embedded cluster."""

    def __init__(self, runtime: Runtime, home: str) -> None:
        self._runtime = runtime
        self._home = home
        self._started = time.monotonic()
        self._idle_s = env.idle_seconds()
        self._used_at = time.monotonic()
        self._stopping = asyncio.Event()
        self._stopped = asyncio.Event()
        self._answering = 0
        self._clients: set[asyncio.StreamWriter] = set()
        self._quiet = asyncio.Event()
        self._quiet.set()
        token = _new_token(runtime)
        self._limits = pool.Limits(pool.parse_pool(env.local_slices()))
        self._hub = Hub()
        self._launcher = Launcher(runtime.node_logs)
        self._head = Head(runtime, self._launcher)
        self._nursery = Nursery(runtime, self._launcher)
        self._slices = Slices(runtime, self._launcher, self._head, self._hub, self._limits, self._nursery)
        self._broker_says: dict[str, Any] = {}
        self._jobs = SubmitLoop(self._head, self._hub, token, self._foresee)
        operations = {
            "hello": self._hello,
            "status": self._status,
            "submit": self._submit,
            "observe": self._observe,
            "cancel": self._cancel,
            "slices": self._ask_slices,
            "leases": self._lease,
            "preempt": self._preempt,
            "check": self._check,
            "env": self._env,
            "stop": self._stop,
        }
        counted = {name: self._counted(operation) for name, operation in operations.items()}
        self._server = Server(counted, {"driver": self._driver, "events": self._events, "client": self._client})

    async def run(self) -> None:
        """Serves until it is stopped, idle, or without a head; leaves nothing running."""
        loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(_THREADS, thread_name_prefix="blocking"))
        for signum in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(signum, self._stopping.set)
        loop.add_signal_handler(signal.SIGCHLD, self._launcher.collect_orphans)
        await self._server.listen(self._runtime.sock)
        self._write_info()
        keeping = [loop.create_task(self._keep_head()), loop.create_task(self._keep_time())]
        await self._stopping.wait()
        _LOG.info("stopping")
        self._launcher.closing = True
        for task in keeping:
            task.cancel()
        await asyncio.gather(*keeping, return_exceptions=True)
        await self._shut_down()

    async def _keep_head(self) -> None:
        try:
            await self._head.start()
            _LOG.info("head up after %.2f s", time.monotonic() - self._started)
            if self._head.launched is not None:
                await asyncio.wait([self._head.launched.ended])
            why = "the embedded cluster's head died (`ray stop`, say, ends every Ray cluster of its user)"
        except ConfigError as exc:
            why = str(exc)
        _LOG.error("%s", why)
        await self._jobs.give_up(why)
        self._stopping.set()

    async def _keep_time(self) -> None:
        """Stops what is idle: slices first, then everything."""
        while True:
            await asyncio.sleep(min(1.0, self._idle_s / 4))
            if self._answering or self._clients or self._jobs.open_jobs():
                self._used_at = time.monotonic()
                continue
            # Not while jobs run: a broker that has lost count of its leases must not cost one of them its slice.
            self._slices.stop_idle(min(_IDLE_SLICE_S, self._idle_s))
            if time.monotonic() - self._used_at > self._idle_s:
                _LOG.info("idle for %g s", self._idle_s)
                self._stopping.set()

    async def _shut_down(self) -> None:
        self._server.close()
        for writer in self._clients:  # they leave Ray while it can still answer them
            writer.close()
        await self._jobs.close()
        ending = [self._slices.close(), self._nursery.close()]
        if self._head.launched is not None:
            ending.append(self._launcher.stop(self._head.launched))
        await asyncio.gather(*ending)
        await self._launcher.end_orphans()
        # Whatever a node that was just starting has forked behind our back.
        await asyncio.to_thread(leftovers.end_members, self._runtime)
        await asyncio.to_thread(leftovers.empty, self._runtime)
        self._stopped.set()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._quiet.wait(), _LAST_WORDS_S)

    def _write_info(self) -> None:
        info = {"pid": os.getpid(), "home": self._home, "version": __version__, "prefix": sys.prefix}
        self._runtime.info.write_text(json.dumps(info))

    # Operations.

    def _counted(self, operation: Callable[[Request], Awaitable[Answer]]) -> Callable[[Request], Awaitable[Answer]]:
        async def counted(request: Request) -> Answer:
            self._answering += 1
            self._quiet.clear()
            try:
                return await operation(request)
            finally:
                # Counted until the answer is on its way, which takes another turn of the loop.
                asyncio.get_running_loop().call_later(0.02, self._answered)

        return counted

    def _answered(self) -> None:
        self._answering -= 1
        self._used_at = time.monotonic()
        if not self._answering:
            self._quiet.set()

    async def _hello(self, _request: Request) -> Answer:
        return {"pid": os.getpid(), "version": __version__, "pool": self._pool(), "stopping": self._stopping.is_set()}

    async def _status(self, _request: Request) -> Answer:
        report = self._head.now
        return {
            "pid": os.getpid(),
            "version": __version__,
            "home": self._home,
            "socket": str(self._runtime.sock),
            "ray_address": report.gcs_address if report else None,
            "dashboard_url": f"http://{report.dashboard}" if report else None,
            "uptime": round(time.monotonic() - self._started, 3),
            "head": self._head.state,
            "head_pid": self._head.launched.pid if self._head.launched else None,
            "nursery_pid": self._nursery.pid,
            "slices": self._slices.to_list(),
            "jobs": self._jobs.to_list(),
            "stores": self._jobs.stores(),
            "pool": self._pool(),
            "max_drivers": self._jobs.max_drivers,
            **self._broker_says,
        }

    async def _submit(self, request: Request) -> Answer:
        await self._jobs.submit(request["store"], request["job_id"])
        if self._stopping.is_set():  # it came too late: nothing here would drive it
            raise SubmissionError("the embedded cluster is just stopping")
        return {}

    async def _observe(self, request: Request) -> Answer:
        state, message = self._jobs.observe(request["job_id"])
        return {"state": state, "message": message}

    async def _cancel(self, request: Request) -> Answer:
        await self._jobs.cancel(request["store"], request["job_id"])
        return {}

    async def _ask_slices(self, request: Request) -> Answer:
        accelerator = parse_accelerator(request["accelerator"], chips_per_host=request.get("chips_per_host") or None)
        count = int(request["count"])
        if why := pool.refusal(self._limits, accelerator, count):
            raise Unschedulable(why)
        starts = bool(request.get("start", True))
        return await self._slices.request(accelerator, count, request.get("exclude"), start=starts)

    async def _lease(self, request: Request) -> Answer:
        self._slices.lease(request["names"])
        self._broker_says = {part: request[part] for part in ("leases", "queue") if request.get(part)}
        return {}

    async def _preempt(self, request: Request) -> Answer:
        asked = preempt.read(request, self._slices.shapes())
        self._slices.take_away(asked)
        return asked.to_dict()

    async def _check(self, request: Request) -> Answer:
        check_need(self._limits, request)
        return {}

    async def _env(self, _request: Request) -> Answer:
        report = await self._head.report()
        return {"env": env.ray_environment(report.gcs_address, report.dashboard)}

    async def _stop(self, request: Request) -> Answer:
        if (why := lost_by_an_end(self._jobs.open_jobs(), len(self._clients))) and not request.get("force"):
            raise UsageError(why)
        while self._jobs.open_jobs():  # others may come meanwhile
            await self._jobs.cancel_all("kinetic local stop --force")
        self._stopping.set()
        await self._stopped.wait()
        return {"pid": os.getpid()}

    def _foresee(self, spec: JobSpec) -> None:
        """Has the hosts that a driver will ask for start while the driver does."""
        accelerator = parse_accelerator(spec.accelerator, chips_per_host=spec.chips_per_host)
        if accelerator.kind == "tpu" and not pool.refusal(self._limits, accelerator, spec.num_slices):
            self._slices.foresee(accelerator, spec.num_slices)

    def _pool(self) -> dict[str, int] | None:
        fixed = self._limits.pool
        return None if fixed is None else {name: count for (name, _chips), count in sorted(fixed.items())}

    # Streams.

    async def _driver(self, request: Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        job_id = str(request["job_id"])
        self._jobs.arrive(job_id, int(request["epoch"]), writer)
        await self._listen(reader, writer)
        self._jobs.leave(job_id, writer)

    async def _events(self, _request: Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        push(writer, {"event": "following"})  # one who comes back has missed what was told meanwhile, and looks again
        await self._listen(reader, writer)

    async def _client(self, _request: Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """A process that has joined Ray: while it is there, its refs and actors are, so nothing is idle."""
        self._clients.add(writer)
        try:
            await until_closed(reader)
        finally:
            self._clients.discard(writer)
            self._used_at = time.monotonic()

    async def _listen(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._hub.join(writer)
        try:
            await until_closed(reader)
        finally:
            self._hub.leave(writer)


def _new_token(runtime: Runtime) -> str:
    """A token of the cluster's own, readable by this user alone."""
    token = secrets.token_hex(32)
    descriptor = os.open(runtime.token, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(token)
    return token


def _detach() -> None:
    """Leaves the caller's session; the caller's process goes on at once."""
    if os.fork():
        os._exit(0)
    os.setsid()
    env.keep_umask(os.umask(0o077))
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nothing, descriptor)


def _open_log(runtime: Runtime) -> None:
    log = os.open(runtime.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")


def main(argv: Sequence[str]) -> int:
    """Runs the supervisor of the home in `argv` in the background."""
    runtime = runtime_of(Path(argv[0]))
    _detach()
    if leftovers.take_lock(runtime, _LOCK_S) is None:
        return 0
    guard.adopt_orphans()
    os.chdir(runtime.root)
    leftovers.clear(runtime)
    for folder in (runtime.node_logs, runtime.sockets, runtime.hosts, runtime.ray):
        folder.mkdir(mode=0o700)
    _open_log(runtime)
    try:
        asyncio.run(_run(runtime, argv[0]))
    except BaseException:  # noqa: BLE001 - the edge of a process
        _LOG.exception("the supervisor broke")
        guard.end_descendants(os.getpid())
        leftovers.empty(runtime, runtime.log)  # the only thing that tells why
        os._exit(1)
    leftovers.empty(runtime)
    leftovers.remove(runtime)
    os._exit(0)  # nothing is left to do, and a client waits for this


async def _run(runtime: Runtime, home: str) -> None:
    await Supervisor(runtime, home).run()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

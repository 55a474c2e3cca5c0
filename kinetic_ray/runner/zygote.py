"""The zygote of a host: a clean process that has imported a runtime and forks one child per attempt.

Executed as `python -m kinetic_ray.runner.zygote FD RUNTIME SCRATCH` by the host agent, which holds the other end of the
socket FD. It never initialises a device, and it is single-threaded whenever it forks. Requests, one JSON line each:

    {"op": "start"} with two descriptors, the child's control socket and its log: {"pid": n}, at the end
        {"exit": n, "code": c}
    {"op": "kill", "pid": n}: the same end, code -9

It adopts the orphans of its child and ends them with it; one child lives at a time, so whatever is left is its.
The end of the socket is the end of the agent: the zygote then kills what it started, removes SCRATCH and exits. For
that it must outlive the agent by a moment, so it is nobody's child: a Ray worker kills its children when told to end.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import select
import shutil
import signal
import socket
import sys
from typing import Any, NoReturn

from kinetic_ray.bundle.editable import in_place_beside_us
from kinetic_ray.core.extras import install_hint
from kinetic_ray.payload.versions import fingerprint
from kinetic_ray.runner.lines import Lines
from kinetic_ray.runner.process import (
    adopt_orphans,
    fork_is_safe,
    kill_descendants,
    kill_group_quietly,
    kill_quietly,
)

#: What every child imports, that which it does so late included.
_OUR_MODULES = (
    "kinetic_ray.runner.child",
    "kinetic_ray.runner.calls.serving",
    "kinetic_ray.store.folder",
    "cloudpickle",
)

#: What the children of a runtime need. Nothing here may start a thread or touch a device.
RUNTIME_MODULES = {"plain": (), "jax": ("jax", "jax.numpy")}

#: What they would import while they compile for the first time; other versions may not have it.
_WARM_MODULES = {"plain": (), "jax": ("jax.experimental.multihost_utils", "jaxlib.mlir.dialects.mhlo")}


class Zygote:
    """The request loop."""

    def __init__(self, link: socket.socket, scratch: str) -> None:
        self._link = Lines(link)
        self._socket = link
        self._scratch = scratch
        self._wake, self._waker = os.pipe()
        self._told_to_end = False
        self._child: int | None = None
        self._forks = fork_is_safe()

    def run(self) -> None:
        """Serves until the agent is gone, then ends all that it started."""
        self._arm()
        try:
            self._link.send({"ready": True, "pid": os.getpid(), "forks": self._forks})
            while self._serve_once():
                pass
        except BrokenPipeError:  # the agent went while we answered it
            return
        finally:
            self._end()

    def _serve_once(self) -> bool:
        watched: list[Any] = [self._socket, self._wake]
        ready, _, _ = select.select(watched, [], [])
        if self._wake in ready:
            os.read(self._wake, 4096)
            self._reap()
            if self._told_to_end:
                return False
        return self._socket not in ready or self._serve()

    def _arm(self) -> None:
        """Signals only wake the loop, which then looks for itself."""
        os.set_blocking(self._waker, False)
        signal.set_wakeup_fd(self._waker, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, self._end_soon)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        adopt_orphans()

    def _end_soon(self, *_: object) -> None:
        self._told_to_end = True

    def _serve(self) -> bool:
        """Answers every request that has arrived: several may come in one piece, which wakes the loop once."""
        going = self._answer()
        while going and self._link.has_message:
            going = self._answer()
        return going

    def _answer(self) -> bool:
        request = self._link.receive()
        if request is None:
            return False
        if request["op"] == "start":
            control, log = self._link.take_fds(2)
            self._child = self._fork(control, log) if self._forks else self._spawn(control, log)
            os.close(control)
            os.close(log)
            self._link.send({"pid": self._child})
        elif request["op"] == "kill" and request["pid"] == self._child:
            kill_quietly(request["pid"])
        return True

    def _fork(self, control: int, log: int) -> int:
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            self._become_child(control, log, parent)
        return pid

    def _become_child(self, control: int, log: int, parent: int) -> NoReturn:
        """In the child: lets go of everything that is the zygote's, then runs the rank."""
        code = 70
        try:
            signal.set_wakeup_fd(-1)
            os.close(self._wake)
            os.close(self._waker)
            self._socket.close()
            from kinetic_ray.runner.child import run_child

            code = run_child(control, log, parent)
        finally:
            os._exit(code)

    def _spawn(self, control: int, log: int) -> int:
        """Where a fork isn't safe (macOS; a runtime that leaves threads): a new interpreter, which imports again."""
        for fd in (control, log):
            os.set_inheritable(fd, True)
        command = [sys.executable, "-P", "-m", "kinetic_ray.runner.child", str(control), str(log)]
        command += [str(os.getpid())]
        return os.posix_spawn(sys.executable, command, os.environ)

    def _reap(self) -> None:
        code = None
        while (ended := _next_ended()) is not None:
            pid, status = ended
            if pid == self._child:
                code = status
        if code is not None:
            child, self._child = self._child, None
            if sys.platform != "linux" and child is not None:
                kill_group_quietly(child)  # orphans don't come to us there; those in another session are lost
            self._sweep()
            self._link.send({"exit": child, "code": code})

    def _sweep(self) -> None:
        """Ends whatever a child has left behind."""
        while _has_children():
            kill_descendants()
            select.select([self._wake], [], [], 0.05)
            while _next_ended() is not None:
                pass

    def _end(self) -> None:
        if self._child is not None:
            kill_quietly(self._child)
        self._sweep()
        shutil.rmtree(self._scratch, ignore_errors=True)


def _next_ended() -> tuple[int, int] | None:
    """(pid, exit code) of a child that has ended and wasn't asked about yet."""
    try:
        pid, status = os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return None
    return (pid, os.waitstatus_to_exitcode(status)) if pid else None


def _has_children() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def import_runtime(runtime: str) -> None:
    """Imports what the children of a runtime need, ours included."""
    for name in (*_OUR_MODULES, *RUNTIME_MODULES[runtime]):
        importlib.import_module(name)
    for name in _WARM_MODULES[runtime]:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    fingerprint(sys.modules.keys() & {"numpy", *RUNTIME_MODULES[runtime]})  # so that children know these versions
    in_place_beside_us()  # and where these are


def import_trouble(exc: ImportError) -> str:
    """What an import has failed with, and the command that brings what is missing."""
    told = f"{type(exc).__name__}: {exc}"
    hint = install_hint(exc.name) if isinstance(exc, ModuleNotFoundError) else ""
    return f"{told}: {hint}" if hint else told


def main(argv: list[str]) -> None:
    """The process's life."""
    if os.fork():
        os._exit(0)  # see the module's last sentence
    link = socket.socket(fileno=int(argv[0]))
    os.set_inheritable(link.fileno(), False)
    try:
        import_runtime(argv[1])
    except ImportError as exc:
        failure: dict[str, Any] = {"ready": False, "error": import_trouble(exc)}
        Lines(link).send(failure)
        return
    gc.collect()
    gc.freeze()  # a collection in a child would write to, and so copy, every page that it shares with us
    Zygote(link, argv[2]).run()


if __name__ == "__main__":
    main(sys.argv[1:])

"""The nursery of an embedded cluster: it has imported a runtime, and every host's zygote is forked from it.

Executed as `python -P -m kinetic_ray.runner.nursery SOCKET RUNTIME PARENT` by the supervisor, and ends with it. A host
agent connects to SOCKET and sends one line of JSON, {"env": {...}, "scratch": "folder"}, with three descriptors: the
zygote's end of its socket pair, standard output, standard error. The zygote's first word on its own socket is the
answer; a request that can't be served is told by the end of that socket, and the agent then starts a zygote itself.

What a module reads from the environment while it is imported can't be set afterwards: a request whose environment
differs from the nursery's own, but for names that no import here reads, is not served.
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import socket
import sys
import traceback
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NoReturn

from kinetic_ray import wire
from kinetic_ray.payload.versions import packages_stamp
from kinetic_ray.runner.births import zygote_env
from kinetic_ray.runner.lines import Lines
from kinetic_ray.runner.process import die_with_parent, fork_is_safe, take_after
from kinetic_ray.runner.task import HostPlan
from kinetic_ray.runner.zygote import Zygote, import_runtime

#: Exit code of a nursery that can't be of use here, now or later; of one whose successor can.
NO_USE, OUTDATED = 0, 75
_NICENESS = 15  # Ray's own for its workers: hosts that start come first
_BACKLOG = 128
_REQUEST_TIMEOUT = 5.0
_FDS = 3
#: What may differ: it is read when devices are first used (XLA_FLAGS, TPU_), or when Ray and kinetic_ray run.
_READ_LATE = ("KINETIC_", "RAY_", "SPT_NOENV", "TPU_", "XLA_FLAGS")
_READ_AT_IMPORT = frozenset({"TPU_LIBRARY_PATH"})  # all the same


class Nursery:
    """The request loop. Single-threaded, one request after the other; a zygote takes milliseconds."""

    def __init__(self, listener: socket.socket, own: Mapping[str, str], packages: str) -> None:
        """Begins to serve.

        Args:
            listener: Its socket.
            own: The environment in which it has imported its runtime, as it was before.
            packages: What was installed before.
        """
        self._listener = listener
        self._own = own
        self._packages = packages
        #: jax sets some itself, as it would in a zygote that imports it.
        self._imported = {name: value for name, value in os.environ.items() if own.get(name) != value}

    def serve(self) -> int:
        """Serves until it is killed, or is of no more use; the exit code for that."""
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel collects zygotes that have ended
        while fork_is_safe():
            link, _ = self._listener.accept()
            with link:
                if packages_stamp() != self._packages:  # what is imported here is no longer what is installed
                    _say("no zygote, for packages were installed or removed since they were imported here")
                    if _has_no_zygotes():
                        return OUTDATED
                    continue
                try:
                    self._answer(link)
                except (wire.WireError, OSError, ValueError, TypeError, KeyError) as exc:
                    _say(f"a request could not be served: {type(exc).__name__}: {exc}")
        _say("not single-threaded, so nothing can be forked from it")
        return NO_USE

    def _answer(self, link: socket.socket) -> None:
        link.settimeout(_REQUEST_TIMEOUT)
        agent = wire.peer_pid(link)
        lines = Lines(link)
        request = lines.receive()
        with _closed_after(lines.take_all_fds()) as fds:
            if request is None:
                return
            if len(fds) != _FDS:
                raise ValueError(f"{len(fds)} descriptors instead of {_FDS}")
            if names := unlike(request["env"], self._own):
                _say(f"no zygote for an environment that differs in {', '.join(names)}")
                return
            nursery = os.getpid()
            if os.fork() == 0:
                link.close()
                self._listener.close()
                _become_zygote({**request["env"], **self._imported}, request["scratch"], fds, (nursery, agent))


def _has_no_zygotes() -> bool:
    """Whether this process may go: a zygote ends with it, and so would what runs in there."""
    try:
        os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return True
    return False


def unlike(asked: Mapping[str, str], own: Mapping[str, str]) -> list[str]:
    """Names whose values differ, of those that an import may read."""
    different = [name for name in sorted(asked.keys() | own.keys()) if asked.get(name) != own.get(name)]
    return [name for name in different if name in _READ_AT_IMPORT or not name.startswith(_READ_LATE)]


def _become_zygote(env: Mapping[str, str], scratch: str, fds: list[int], kin: tuple[int, int]) -> NoReturn:
    """In the fork: becomes what an exec by the agent would have made; `kin` are the nursery's pid and the agent's."""
    nursery, agent = kin
    code = 70
    try:
        die_with_parent(signal.SIGTERM)  # a zygote then ends all that is its
        if os.getppid() != nursery:
            os._exit(code)
        link, *streams = fds
        for target, stream in enumerate(streams, start=1):
            os.dup2(stream, target)
            os.close(stream)
        os.setsid()
        take_after(agent)
        os.environ.clear()
        os.environ.update(env)
        Zygote(socket.socket(fileno=link), scratch).run()
        code = 0
    except BaseException:  # noqa: BLE001 - the edge of a process; the agent hears of it by the end of the socket
        traceback.print_exc()
    finally:
        os._exit(code)


@contextlib.contextmanager
def _closed_after(fds: list[int]) -> Iterator[list[int]]:
    try:
        yield fds
    finally:
        for fd in fds:
            os.close(fd)


def _say(line: str) -> None:
    sys.stderr.write(f"nursery: {line}\n")
    sys.stderr.flush()


def listen(path: str) -> socket.socket:
    """A listening socket that only this user can reach; one that a killed nursery has left is replaced."""
    Path(path).unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    mask = os.umask(0o177)
    try:
        listener.bind(path)
    finally:
        os.umask(mask)
    listener.listen(_BACKLOG)
    return listener


def main(argv: list[str]) -> int:
    """The process's life; requests that come while it imports wait."""
    path, runtime, parent = argv
    die_with_parent(signal.SIGKILL)
    if os.getppid() != int(parent):
        return NO_USE
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.nice(_NICENESS)
    os.chdir("/")
    env = zygote_env(os.environ, HostPlan(runtime, 0, simulated=True), os.environ)
    os.environ.clear()
    os.environ.update(env)
    listener = listen(path)
    packages = packages_stamp()
    try:
        import_runtime(runtime)
    except ImportError as exc:
        _say(f"{runtime} can't be imported: {exc}")
        return NO_USE
    gc.collect()
    gc.freeze()  # as in a zygote
    return Nursery(listener, env, packages).serve()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

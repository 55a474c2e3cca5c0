"""The first process of a plane's namespaces: makes network and mounts, starts components, and again those that die.

Run as `python -m cluster.sim.first FOLDER FD=HOST:PORT ...`; the arguments after the folder are the relay's. It is told
over a socket in the folder to start and stop components (`control`). It ends when the keeper kills it or is gone, which
its standard input tells; the kernel then ends everything else.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from cluster.sim import network
from cluster.sim.components import BUCKETS, ETCD_DATA, PODS, Component, read_components
from cluster.sim.control import SOCKET
from cluster.sim.folder import Folder

_AGAIN_AFTER = 1.0  # seconds; a component that can't start must not fill the log
_PATIENCE = 5.0  # seconds for a request to come, once somebody has connected


class Crew:
    """The components: which of them run, and which are to."""

    def __init__(self, folder: Folder, components: dict[str, Component], inherited: tuple[int, ...]) -> None:
        self._folder = folder
        self._components = components
        self._inherited = inherited
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._due: dict[str, float] = {}
        self._restarts = dict.fromkeys(components, 0)

    def start(self, name: str) -> None:
        component = self._components[name]
        self._due.pop(name, None)
        if name in self._running:
            return
        with self._folder.log(name).open("ab") as log:
            self._running[name] = subprocess.Popen(
                component.argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **dict(component.env)},
                start_new_session=True,
                pass_fds=self._inherited if name == "relay" else (),
            )

    def stop(self, name: str) -> None:
        """Kills it and waits until it is gone; it isn't started again."""
        self._due.pop(name, None)
        process = self._running.pop(name, None)
        if process is not None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def reap(self) -> None:
        """Takes leave of whoever has ended: components, and orphans, which fall to a first process."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            for name, process in list(self._running.items()):
                if process.pid == pid:
                    process.returncode = os.waitstatus_to_exitcode(status)
                    self._ended(name, process.returncode)

    def start_due(self) -> None:
        now = time.monotonic()
        for name in [name for name, when in self._due.items() if when <= now]:
            self.start(name)

    def report(self) -> dict[str, dict[str, int]]:
        """By component: its process id inside, 0 where it doesn't run, and how often it was started again."""
        return {
            name: {"pid": self._running[name].pid if name in self._running else 0, "restarts": self._restarts[name]}
            for name in self._components
        }

    def _ended(self, name: str, code: int) -> None:
        del self._running[name]
        self._restarts[name] += 1
        self._due[name] = time.monotonic() + _AGAIN_AFTER
        print(f"{name} ended with {code}", flush=True)


def _prepare() -> None:
    """Mounts and network. /run becomes memory of the plane's own, where names of networks, etcd and pods lie."""
    resolver = Path("/etc/resolv.conf").resolve()
    _run("mount", "-t", "tmpfs", "-o", "size=75%,mode=755", "tmpfs", "/run")
    for path in ("/run/netns", ETCD_DATA, PODS, BUCKETS):
        Path(path).mkdir(mode=0o700)
    names = Path("/run/resolv.conf")
    names.write_text(f"nameserver {network.DNS}\nsearch svc.cluster.local cluster.local\n", encoding="utf-8")
    if not resolver.exists():  # it was below /run
        resolver.parent.mkdir(parents=True, exist_ok=True)
        resolver.touch()
    _run("mount", "--bind", str(names), str(resolver))
    for command in network.setup_commands():
        _run(*command)


def _run(*argv: str) -> None:
    subprocess.run(argv, check=True)


def _answer(crew: Crew, request: dict[str, Any]) -> dict[str, Any]:
    try:
        if request["do"] == "start":
            crew.start(request["name"])
        elif request["do"] == "stop":
            crew.stop(request["name"])
    except (OSError, KeyError) as error:
        return {"error": repr(error)}
    return {"components": crew.report()}


def _serve(crew: Crew, listener: socket.socket, wakeup: socket.socket) -> None:
    with selectors.DefaultSelector() as selector:
        selector.register(listener, selectors.EVENT_READ)
        selector.register(wakeup, selectors.EVENT_READ)
        selector.register(sys.stdin, selectors.EVENT_READ)
        while True:
            ready = {key.fileobj for key, _ in selector.select(_AGAIN_AFTER)}
            if sys.stdin in ready:
                return
            if wakeup in ready:
                wakeup.recv(1 << 12)
            if listener in ready:
                with contextlib.suppress(OSError, ValueError):  # whoever asked has gone, or asked nothing
                    _hear(crew, listener)
            crew.reap()
            crew.start_due()


def _hear(crew: Crew, listener: socket.socket) -> None:
    connection, _ = listener.accept()
    connection.settimeout(_PATIENCE)
    with connection, connection.makefile("rwb") as stream:
        answer = _answer(crew, json.loads(stream.readline()))
        stream.write(json.dumps(answer).encode() + b"\n")


def _signals() -> socket.socket:
    """A socket that becomes readable when a child ends."""
    reader, writer = socket.socketpair()
    reader.setblocking(False)
    writer.setblocking(False)
    signal.set_wakeup_fd(writer.detach(), warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    return reader


def main(arguments: list[str]) -> None:
    folder, routes = Folder(Path(arguments[0])), tuple(arguments[1:])
    _prepare()
    relay = Component("relay", (sys.executable, "-m", "cluster.sim.relay", *routes), at_once=True)
    components = {**read_components(folder.components), "relay": relay}
    crew = Crew(folder, components, tuple(int(route.partition("=")[0]) for route in routes))
    wakeup = _signals()
    os.chdir(folder.path)  # a socket's path is short, a folder's may be long
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(SOCKET)
        listener.listen()
        for component in components.values():
            if component.at_once:
                crew.start(component.name)
        _serve(crew, listener, wakeup)


if __name__ == "__main__":
    main(sys.argv[1:])

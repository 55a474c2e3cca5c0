"""The client's end of the supervisor: starts one where none lives, and asks it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kinetic_ray import wire
from kinetic_ray.backends.local import env, guard, leftovers, pool
from kinetic_ray.backends.local.paths import Runtime, runtime_of
from kinetic_ray.errors import ConfigError
from kinetic_ray.vault import Vault

_START_S = 60.0
_STOP_S = 120.0
_EXIT_S = 10.0
_HELLO_S = 10.0
_LOOK_S = 1.0
#: Within which it tells what it knows of a job: whoever waits asks again rather than wait for one answer.
OBSERVE_S = 5.0
_TAIL_CHARS = 2000
#: What connecting raises where nobody listens.
NOBODY = (FileNotFoundError, ConnectionError)
#: What is raised where somebody listens who doesn't answer; the second when those who wait fill its queue.
_SILENCE = (TimeoutError, BlockingIOError)


def ensure(home: Path, slices: str | None = None) -> Runtime:
    """Sees to it that a supervisor lives; returns as soon as its socket answers, before the head is up.

    Args:
        home: The root of the client's state.
        slices: The pool that is asked for, as JSON; None = KINETIC_LOCAL_SLICES.

    Raises:
        ConfigError: It can't start, or lives with another pool than was asked for.
    """
    wanted = _settings(slices)
    runtime = runtime_of(home)
    hello = _greet(runtime)
    deadline = time.monotonic() + _START_S
    while hello is None:
        _spawn(runtime, home, slices)
        hello = _await_greeting(runtime, deadline)
        if hello is None and (time.monotonic() > deadline or runtime.log.exists()):
            raise ConfigError(f"the embedded cluster's supervisor did not start. Its log ends:\n{_tail(runtime)}")
    _check_pool(wanted, hello["pool"])
    return runtime


def check_settings(home: Path, slices: str | None = None) -> None:
    """Refuses what :func:`ensure` would refuse, as far as that can be told without starting anything.

    Raises:
        ConfigError: A setting can't work, or a supervisor lives with another pool.
    """
    wanted = _settings(slices)
    if (hello := _greet(runtime_of(home))) is not None:
        _check_pool(wanted, hello["pool"])


def ask(home: Path, message: Mapping[str, object], timeout: float | None = 30.0) -> wire.Message | None:
    """Asks the supervisor that lives; None when none does. Starts nothing.

    Raises:
        KineticError: It refuses, or lives and doesn't answer.
    """
    _check_system()
    try:
        return tell(runtime_of(home), message, timeout)
    except NOBODY:
        return None


def tell(runtime: Runtime, message: Mapping[str, object], timeout: float | None = 30.0) -> wire.Message:
    """Asks the supervisor that must live.

    Raises:
        OSError: None does, or it ended over this.
        KineticError: It refuses, or lives and doesn't answer.
    """
    try:
        return wire.call(runtime.sock, message, timeout)
    except _SILENCE as exc:
        raise _silent(runtime, timeout) from exc


def _silent(runtime: Runtime, timeout: float | None) -> ConfigError:
    info = _info(runtime)
    who = f"process {info['pid']}, KINETIC_HOME={info['home']}" if info else f"its socket is {runtime.sock}"
    waited = "" if timeout is None else f" within {timeout:g} s"
    return ConfigError(
        f"the embedded cluster's supervisor ({who}) lives, but did not answer{waited}: the machine is overloaded, "
        "or the process is stopped or hangs. Try again, or end it with all its jobs: kinetic local stop --force"
    )


def stop(home: Path, force: bool) -> bool:
    """Stops the cluster and waits until nothing of it is left; False when none was there.

    What a supervisor that was killed has left is removed as well.

    Args:
        home: The root of the client's state.
        force: Cancel the jobs that have not ended; it refuses otherwise. A supervisor that doesn't answer is killed.

    Raises:
        UsageError: Jobs have not ended.
        ConfigError: It doesn't answer, and was not to be forced or could not be told from another process.
    """
    _check_system()
    runtime = runtime_of(home)
    if _hangs(runtime):
        if not force:
            raise _silent(runtime, _HELLO_S)
        _kill(runtime)
        leftovers.sweep(runtime)
        return True
    answer = ask(home, {"op": "stop", "force": force}, _STOP_S)
    if answer is not None:
        _await_end(int(answer["pid"]))
    elif runtime.root.exists():
        leftovers.sweep(runtime)
    return answer is not None


def _hangs(runtime: Runtime) -> bool:
    """Whether it lives and doesn't answer what it always can: an end may take long, and would tell that late."""
    try:
        wire.call(runtime.sock, {"op": "hello"}, _HELLO_S)
    except NOBODY:
        return False
    except _SILENCE:
        return True
    return False


def _kill(runtime: Runtime) -> None:
    """Ends a supervisor that doesn't answer; what it leaves is swept then.

    Raises:
        ConfigError: Its record names no process, or one that is something else by now.
    """
    info = _info(runtime)
    if info is None or not _is_supervisor(info):
        raise ConfigError(
            f"the embedded cluster's supervisor does not answer, and {runtime.info} does not tell its process: "
            f"find it with `fuser {runtime.lock}`, and end it"
        )
    os.kill(info["pid"], signal.SIGKILL)
    _await_end(info["pid"])


def _info(runtime: Runtime) -> dict[str, Any] | None:
    """What a supervisor has written of itself; None where it is not (wholly) there."""
    try:
        info = json.loads(runtime.info.read_text())
    except (OSError, ValueError):
        return None
    named = isinstance(info, dict) and isinstance(info.get("pid"), int) and isinstance(info.get("home"), str)
    return info if named else None


def _is_supervisor(info: Mapping[str, Any]) -> bool:
    """Whether the recorded process is that supervisor still: numbers of processes are given again."""
    ending = [leftovers.MODULE.decode(), info["home"]]
    if guard.LINUX:
        process = Path("/proc", str(info["pid"]))
        try:
            words = (process / "cmdline").read_bytes().decode(errors="replace").split("\0")
            return process.stat().st_uid == os.getuid() and words[-3:-1] == ending
        except OSError:  # it has ended
            return False
    asked = ["ps", "-ww", "-o", "uid=", "-o", "command=", "-p", str(info["pid"])]
    shown = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()
    uid, _, command = shown.partition(" ")
    return uid == str(os.getuid()) and command.endswith(" " + " ".join(ending))


def _await_end(pid: int) -> None:
    """Waits for the end of a process that has only to exit; not for whoever collects it."""
    deadline = time.monotonic() + _EXIT_S
    while pid in guard.parents() and time.monotonic() < deadline:
        time.sleep(0.005)


def _greet(runtime: Runtime) -> wire.Message | None:
    """What the supervisor says of itself; None when there is none, or it is about to end."""
    try:
        hello = tell(runtime, {"op": "hello"}, _HELLO_S)
    except NOBODY:
        return None
    return None if hello["stopping"] else hello


def _await_greeting(runtime: Runtime, deadline: float) -> wire.Message | None:
    """Waits for a supervisor's first word; None when there is none any more that could speak."""
    looked_at = time.monotonic()
    while (hello := _greet(runtime)) is None and time.monotonic() < deadline:
        if time.monotonic() - looked_at > _LOOK_S:
            if not leftovers.is_held(runtime):
                return _greet(runtime)
            looked_at = time.monotonic()
        time.sleep(0.01)
    return hello


def _spawn(runtime: Runtime, home: Path, slices: str | None) -> None:
    """Starts a supervisor. Where several clients do, all but one of these see the others' socket and end."""
    runtime.prepare()
    done = subprocess.run(
        # -P: a file in the working folder that is called like a module of ours must not take its place.
        [sys.executable, "-P", "-m", "kinetic_ray.backends.local.supervisor", str(home)],
        env=env.cluster_environment(runtime.root, runtime.token, runtime.sock, Vault.of(home).folder, slices),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        start_new_session=True,  # a Ctrl-C at the terminal is for who starts it
    )
    if done.returncode != 0:
        raise ConfigError(f"the embedded cluster's supervisor can't start:\n{done.stderr[-_TAIL_CHARS:]}")


def _check_system() -> None:
    if sys.platform == "win32":
        raise ConfigError("the embedded cluster runs on Linux and macOS; on Windows use WSL 2")


def _settings(slices: str | None) -> Mapping[pool.Kind, int] | None:
    """The pool that is asked for; settings that can't work are refused here rather than in the background."""
    _check_system()
    env.idle_seconds()
    env.check_memory_limit()
    return pool.parse_pool(slices or env.local_slices())


def _check_pool(wanted: Mapping[pool.Kind, int] | None, live: Mapping[str, int] | None) -> None:
    if wanted is None:
        return
    asked = {name: count for (name, _chips), count in wanted.items()}
    if asked != live:
        has = "any shape on demand" if live is None else str(dict(live))
        raise ConfigError(
            f"KINETIC_LOCAL_SLICES asks for {asked}, but the embedded cluster that runs has {has}: "
            "run `kinetic local stop` first, or unset the variable (or the profile's local_slices)"
        )


def _tail(runtime: Runtime) -> str:
    try:
        return runtime.log.read_text(errors="replace")[-_TAIL_CHARS:]
    except OSError:
        return "it left no log"

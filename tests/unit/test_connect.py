"""Joining, as far as it needs no cluster: where a process is, and what can't be joined."""

import contextlib
import os
import subprocess
import sys

import pytest

from kinetic_ray import config
from kinetic_ray.calls.connect import DESK, NAMESPACE, connect, disconnect
from kinetic_ray.config import Surroundings, changed_environment, surroundings
from kinetic_ray.errors import ConfigError, UsageError

INSIDE = {"KINETIC_SUPERVISOR": "/tmp/kr0/sock", "KINETIC_RAY_ADDRESS": "127.0.0.1:1", "RAY_ADDRESS": "127.0.0.1:2"}


@pytest.mark.parametrize(
    ("environ", "found"),
    [
        ({}, None),
        ({"RAY_ADDRESS": "127.0.0.1:2"}, None),
        ({"KINETIC_SUPERVISOR": "/tmp/kr0/sock"}, None),
        (INSIDE, Surroundings("127.0.0.1:1", "/tmp/kr0/sock")),
        ({**INSIDE, "KINETIC_RAY_ADDRESS": ""}, Surroundings("127.0.0.1:2", "/tmp/kr0/sock")),
    ],
)
def test_surroundings(environ: dict[str, str], found: Surroundings | None) -> None:
    assert surroundings(environ) == found


@pytest.mark.parametrize(("text", "ids"), [("", ()), ("job-1", ("job-1",)), (" job-1  call-2 ", ("job-1", "call-2"))])
def test_ancestors(text: str, ids: tuple[str, ...]) -> None:
    assert config.ancestors({"KINETIC_ANCESTORS": text}) == ids


def test_the_environment_is_changed_for_a_moment_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KT_SET", "old")
    monkeypatch.delenv("KT_UNSET", raising=False)
    monkeypatch.setenv("KT_KEPT", "old")
    monkeypatch.delenv("KT_CAME", raising=False)
    with (
        contextlib.suppress(ZeroDivisionError),
        changed_environment({"KT_SET": "new", "KT_UNSET": "new"}, kept=("KT_KEPT", "KT_CAME")),
    ):
        assert (os.environ["KT_SET"], os.environ["KT_UNSET"], os.environ["KT_KEPT"]) == ("new", "new", "old")
        os.environ.update(KT_KEPT="new", KT_CAME="new")
        raise ZeroDivisionError
    assert (os.environ["KT_SET"], os.environ["KT_KEPT"]) == ("old", "old")
    assert "KT_UNSET" not in os.environ and "KT_CAME" not in os.environ


def test_a_backend_that_can_t_be_joined_names_what_works() -> None:
    target = config.resolve(backend="kinetic_ray.testing.thread_backend:ThreadBackend")
    with pytest.raises(UsageError, match=r"run_async.*kinetic run --in-cluster"):
        connect(target)
    with pytest.raises(ConfigError):
        connect(config.resolve(backend="nowhere:Backend"))
    disconnect()  # nothing to leave


def test_the_desk_is_looked_for_under_its_own_name() -> None:
    from kinetic_ray.runner import standing
    from kinetic_ray.runner.calls import desk

    assert (DESK, NAMESPACE) == (desk.NAME, standing.NAMESPACE)


def test_a_thread_that_outlives_the_main_one_hears_that_it_is_too_late_to_join() -> None:
    script = """
import sys, threading
from kinetic_ray.calls.connect import connect

def late():
    threading.main_thread().join()
    try:
        connect()
    except BaseException as exc:
        print(type(exc).__name__, exc)

assert "concurrent.futures.thread" not in sys.modules
threading.Thread(target=late).start()
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("UsageError this process's main thread has ended"), done.stdout + done.stderr

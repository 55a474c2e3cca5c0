"""What becomes of threads when a rank's function has returned; each in a process of its own, which ends by it."""

from pathlib import Path

import pytest

from tests.programs_apart import run_python

_HEAD = """
import os, sys, threading
from concurrent.futures import ThreadPoolExecutor
from kinetic_ray.runner.settling import await_threads
sys.__stderr__ = sys.stdout
gate, wrote = threading.Event(), []
def save():
    gate.wait()
    wrote.append("saved")
def leave():
    print(wrote, flush=True)
    os._exit(0)
"""


@pytest.mark.parametrize(
    "starts",
    [
        "threading.Thread(target=save).start()",
        "pool = ThreadPoolExecutor(2); pool.submit(save)",
        "ThreadPoolExecutor(2).submit(save)",
        "threading.Thread(target=lambda: threading.Thread(target=save).start()).start()",
    ],
)
def test_they_are_waited_for(starts: str, tmp_path: Path) -> None:
    body = f"{_HEAD}\n{starts}\nthreading.Timer(0.3, gate.set).start()\nawait_threads(300, 200)\nleave()"
    assert run_python("-c", body, cwd=tmp_path) == "['saved']\n"


def test_daemons_are_not(tmp_path: Path) -> None:
    body = f"{_HEAD}\nthreading.Thread(target=save, daemon=True).start()\nawait_threads(300, 200)\nleave()"
    assert run_python("-c", body, cwd=tmp_path) == "[]\n"


def test_one_that_never_ends_is_named_and_left(tmp_path: Path) -> None:
    body = f"{_HEAD}\nthreading.Thread(target=save, name='sampler').start()\nawait_threads(0.2, 0.1)\nleave()"
    named = "kinetic: threads that are no daemons still run (sampler): "
    expected = [f"{named}they are waited for, up to 0.2 s", f"{named}they were left", "[]"]
    assert run_python("-c", body, cwd=tmp_path).splitlines() == expected

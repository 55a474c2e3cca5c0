"""What must not be cut short by a Ctrl-C is done first; in a process of its own, which gets the signal."""

from pathlib import Path

import pytest

from tests.programs_apart import run_python

_HEAD = """
import os, signal
from kinetic_ray.interrupts import beginning, interrupts_held
def interrupt(times):
    for _ in range(times):
        signal.raise_signal(signal.SIGINT)
done = []
try:
    with beginning("train") as begun:
        interrupt({before})
        with interrupts_held():
            interrupt({recording})
            begun.job_id = "job-1"
            interrupt({handing})
            {ends}
            begun.is_handed_over = True
            done.append("done")
        interrupt({after})
except KeyboardInterrupt:
    print("interrupted", done)
except ValueError as error:
    print(error, done)
else:
    print("ended", done)
assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
"""
_PLAIN = {"before": 0, "recording": 0, "handing": 0, "after": 0, "ends": "pass"}


@pytest.mark.parametrize(
    ("given", "ended", "told"),
    [
        ({}, "ended ['done']", ""),
        ({"before": 1}, "interrupted []", "train: interrupted before its job was recorded; nothing was created"),
        ({"recording": 1}, "interrupted ['done']", "job-1 goes on without you."),
        ({"handing": 1}, "interrupted ['done']", "job-1 goes on without you."),
        ({"after": 1}, "interrupted ['done']", "job-1 goes on without you."),
        ({"recording": 2}, "interrupted []", "train: interrupted before its job was recorded; nothing was created"),
        ({"recording": 1, "handing": 1}, "interrupted []", "job-1 is recorded, but nothing runs it yet."),
        ({"handing": 1, "ends": "raise ValueError('refused')"}, "refused []", ""),
    ],
    ids=str,
)
def test_it_is_done_first(given: dict[str, object], ended: str, told: str, tmp_path: Path) -> None:
    program = f"import sys\nsys.stderr = sys.stdout\n{_HEAD.format(**{**_PLAIN, **given})}"
    lines = run_python("-c", program, cwd=tmp_path).split("\n")
    assert lines[-2] == ended
    assert (told in lines) if told else len(lines) == 2


def test_whoever_has_a_handler_of_ones_own_keeps_it(tmp_path: Path) -> None:
    program = """
import signal, threading
from kinetic_ray.interrupts import interrupts_held
came = []
signal.signal(signal.SIGINT, lambda *_: came.append("own"))
with interrupts_held():
    signal.raise_signal(signal.SIGINT)
    print(came)
def elsewhere():
    with interrupts_held():
        print("elsewhere")
thread = threading.Thread(target=elsewhere)
thread.start()
thread.join()
"""
    assert run_python("-c", program, cwd=tmp_path) == "['own']\nelsewhere\n"

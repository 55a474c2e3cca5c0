"""What ranks run whose own children say something."""

import multiprocessing
import subprocess
import sys
import threading
from pathlib import Path

_SAYS = """
import sys
print("{0} to stdout")
print("{0} to stderr", file=sys.stderr)
"""
_SAYS_AND_WAITS = """
import sys, pathlib, time
print("said while it lives")
while not pathlib.Path(sys.argv[1]).exists():
    time.sleep(0.01)
"""


def _spawned() -> None:
    sys.stdout.write("spawned to stdout\n")
    sys.stderr.write("spawned to stderr\n")


def start_all_kinds() -> None:
    """A shell, an interpreter, a spawned child of multiprocessing; each ends."""
    sys.stdout.write("the rank itself\n")
    subprocess.run(["sh", "-c", "echo shell to stdout; echo shell to stderr >&2"], check=True)
    subprocess.run([sys.executable, "-c", _SAYS.format("python")], check=True)
    spawned = multiprocessing.get_context("spawn").Process(target=_spawned)
    spawned.start()
    spawned.join()
    sys.stdout.write("the rank's end\n")


def start_one_that_waits(gate: str) -> None:
    """A child that says something and then lives until the gate opens."""
    subprocess.run([sys.executable, "-c", _SAYS_AND_WAITS, gate], check=True)


def start_one_that_is_killed(gate: str) -> None:
    """A child that says something and is killed."""
    with subprocess.Popen([sys.executable, "-c", _SAYS_AND_WAITS, gate]) as child:
        moment = threading.Event()
        while not Path(gate).exists():
            moment.wait(0.01)
        child.kill()


def start_a_daemon(pid: str) -> None:
    """A process in a session of its own, which goes on saying things after the rank's function has returned."""
    script = "import os, time; print('daemon', os.getpid())\nwhile True: time.sleep(0.01)"
    daemon = subprocess.Popen([sys.executable, "-c", script], start_new_session=True)
    Path(pid).write_text(str(daemon.pid))
    threading.Event().wait()

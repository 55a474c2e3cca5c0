"""The guard of a node: whatever ends first, nothing of the node outlives it."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kinetic_ray.backends.local import guard
from tests.waiting import wait_until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the guard polls")

# Stands for a node: adopts orphans, starts a "raylet" with a grandchild that leaves its session and its parent, says
# their pids, then becomes the guard as node.py does.
_NODE = """
import os, signal, subprocess, sys, time
sys.path.insert(0, os.path.dirname(sys.argv[1]))
import guard
guard.die_with_parent(os.getppid(), signal.SIGTERM)
guard.adopt_orphans()
escape = "import os, time; os.setsid(); os.fork() and os._exit(0); print(os.getpid(), flush=True); time.sleep(600)"
parent = f"import subprocess, sys, time; subprocess.run([sys.executable, '-c', {escape!r}]); time.sleep(600)"
raylet = subprocess.Popen([sys.executable, "-c", parent], stdout=subprocess.PIPE)
print(raylet.pid, int(raylet.stdout.readline()), flush=True)
signal.pthread_sigmask(signal.SIG_BLOCK, guard.ENDING)
os.execv(sys.executable, [sys.executable, "-I", "-S", sys.argv[1], "watch", sys.argv[2], str(raylet.pid)])
"""


def _start_node(grace: float = 0.0) -> tuple["subprocess.Popen[str]", list[int]]:
    words = [sys.executable, "-c", _NODE, guard.__file__, str(grace)]
    node = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert node.stdout is not None
    return node, [int(word) for word in node.stdout.readline().split()]


def _is_alive(pid: int) -> bool:
    return pid in guard.parents()


def _finish(node: "subprocess.Popen[str]") -> str:
    _, err = node.communicate(timeout=20)
    return err


@pytest.mark.parametrize(("signum", "grace"), [(signal.SIGTERM, 0.0), (signal.SIGTERM, 5.0), (signal.SIGINT, 100.0)])
def test_a_signal_ends_the_node_and_what_escaped_it(signum: int, grace: float) -> None:
    node, (raylet, escaped) = _start_node(grace)
    assert _is_alive(raylet)
    assert _is_alive(escaped)
    node.send_signal(signum)
    assert _finish(node) == ""
    assert node.returncode == 0
    assert not _is_alive(raylet)
    assert not _is_alive(escaped)


def test_the_death_of_a_process_of_the_node_ends_the_node() -> None:
    node, (raylet, escaped) = _start_node()
    os.kill(raylet, signal.SIGKILL)
    assert f"process {raylet} of the node has ended" in _finish(node)
    assert node.returncode == 1
    assert not _is_alive(escaped)


def test_an_orphan_that_ends_is_collected_and_changes_nothing() -> None:
    node, (raylet, escaped) = _start_node()
    os.kill(escaped, signal.SIGKILL)
    wait_until(lambda: not Path(f"/proc/{escaped}").exists(), what="the orphan to be collected")
    assert node.poll() is None
    assert _is_alive(raylet)
    node.terminate()
    _finish(node)


def test_the_death_of_the_supervisor_ends_the_node() -> None:
    """The kernel tells the guard, which then has the time to end even what has left every session and parent."""
    node = [sys.executable, "-c", _NODE, guard.__file__, "0"]
    start = f"import subprocess, time; subprocess.Popen({node!r}); time.sleep(600)"
    supervisor = subprocess.Popen([sys.executable, "-c", start], stdout=subprocess.PIPE, text=True)
    assert supervisor.stdout is not None
    pids = [int(word) for word in supervisor.stdout.readline().split()]
    wait_until(lambda: b"guard.py" in Path(f"/proc/{guard.parents()[pids[0]]}/cmdline").read_bytes(), what="the guard")
    supervisor.kill()
    supervisor.communicate()
    wait_until(lambda: not any(map(_is_alive, pids)), what="the node to be gone")


def test_a_stand_in_for_an_agent_goes_with_its_raylet() -> None:
    command = [sys.executable, "-I", "-S", guard.__file__, "rest"]
    start = f"import subprocess, time; print(subprocess.Popen({command!r}).pid, flush=True); time.sleep(600)"
    raylet = subprocess.Popen([sys.executable, "-c", start], stdout=subprocess.PIPE, text=True)
    assert raylet.stdout is not None
    agent = int(raylet.stdout.readline())
    wait_until(lambda: b"sleep" in Path(f"/proc/{agent}/cmdline").read_bytes(), what="the agent to sleep")
    raylet.kill()
    raylet.communicate()
    wait_until(lambda: not _is_alive(agent), what="the agent to be gone")


def test_end_descendants_leaves_itself_and_others_alone() -> None:
    bystander = subprocess.Popen(["sleep", "600"])
    script = (
        f"import os, subprocess, sys; sys.path.insert(0, {str(Path(guard.__file__).parent)!r}); import guard\n"
        "guard.adopt_orphans(); subprocess.Popen(['sh', '-c', 'sleep 600 & sleep 600'])\n"
        "print(sorted(guard.end_descendants(os.getpid())))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=30)
    assert done.stdout == "[]\n"
    assert bystander.poll() is None
    bystander.kill()
    bystander.wait()

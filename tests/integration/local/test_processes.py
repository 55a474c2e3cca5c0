"""What a rank's process is to the user's code: like one that a shell has started, to its very end."""

import math
import os
import signal
import stat
import sys
from pathlib import Path
from typing import Any

import pytest

import kinetic_ray as kinetic

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(240)]


@kinetic.run(accelerator="cpu")
def interrupt_a_child(folder: str) -> Any:
    """How this process treats signals and files, and whether what it starts can be interrupted."""
    import subprocess

    program = (
        "import time\n"
        "try:\n    print('up', flush=True)\n    time.sleep(600)\n"  # it may come as soon as that is out
        "except KeyboardInterrupt: print('interrupted')"
    )
    child = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    child.stdout.readline()
    child.send_signal(signal.SIGINT)
    said, _ = child.communicate()
    ignored = [
        one.name
        for one in signal.valid_signals()
        if isinstance(one, signal.Signals) and signal.getsignal(one) is signal.SIG_IGN
    ]
    Path(folder, "made").touch()
    return said, sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ())), ignored


def test_signals_and_new_files_are_as_a_shells(own_cluster: Path, tmp_path: Path) -> None:
    mask = os.umask(0o022)
    os.umask(mask)
    said, blocked, ignored = interrupt_a_child.run_async(str(tmp_path)).result()
    assert said == "interrupted\n"
    assert blocked == []
    assert ignored in (["SIGPIPE", "SIGXFSZ"], ["SIGPIPE"])  # as Python itself has them
    assert stat.S_IMODE((tmp_path / "made").stat().st_mode) == 0o666 & ~mask


@kinetic.run(accelerator="cpu")
def diverge() -> str:
    """Reports what training reports when it has gone wrong, and what no metric should be."""
    for step, loss in enumerate([float("nan"), 0.5, float("-inf"), 10**400, 1e308, -0.0, float("nan")]):
        kinetic.report(step, total=7, loss=loss, fine=1.0)
    return "value"


def test_a_loss_that_is_no_number_costs_nothing(own_cluster: Path) -> None:
    job = diverge.run_async()
    assert job.result() == "value"
    progress = job.progress()
    assert progress is not None and progress.step == 6
    assert math.isnan(progress.metrics["loss"]) and progress.metrics["fine"] == 1.0


@kinetic.run(accelerator="cpu", hosts=2)
def go_on_in_threads(folder: str, how: str) -> str:
    """Returns while threads that are no daemons still write."""
    import atexit
    import threading
    from concurrent.futures import ThreadPoolExecutor

    place = Path(folder, str(kinetic.context().rank))
    gate = threading.Event()

    def save() -> None:
        gate.wait()
        place.write_text("saved")
        sys.stdout.write("saved it\n")

    if how == "thread":
        threading.Thread(target=save).start()
    else:
        ThreadPoolExecutor(1).submit(save)
    threading.Timer(1.0, gate.set).start()  # well after the return
    atexit.register(lambda: place.with_suffix(".last").write_text(place.read_text()))
    return "returned"


@pytest.mark.parametrize("how", ["thread", "executor"])
def test_threads_that_are_no_daemons_are_waited_for(how: str, own_cluster: Path, tmp_path: Path) -> None:
    job = go_on_in_threads.run_async(str(tmp_path), how)
    assert job.result() == "returned"
    for rank in (0, 1):
        assert (tmp_path / str(rank)).read_text() == "saved"
        assert (tmp_path / f"{rank}.last").read_text() == "saved"  # exit handlers come after them, as in Python
        assert "saved it" in (job.logs(rank=rank) or "")

"""Followers of jobs whose supervisor is killed: what has not run yet is run once by the next one, and followed on."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import kinetic_ray as kinetic
from kinetic_ray.backends.local import backend
from tests.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(400)]


@kinetic.run(accelerator="tpu-v6e-8", runtime="plain")
def linger(flag: str) -> None:
    """Holds the only slice, and prints a line without its end."""
    import threading

    print("half a line", end="", flush=True)  # noqa: T201
    Path(flag).touch()
    threading.Event().wait(600)


@kinetic.run(accelerator="tpu-v6e-8", runtime="plain")
def count(runs: str) -> int:
    """Notes that it has run."""
    with open(runs, "a") as file:  # noqa: PTH123
        file.write("once\n")
    print("counted", flush=True)  # noqa: T201
    return 7


def _follow(job: kinetic.JobHandle[Any]) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "kinetic_ray", "jobs", "logs", "--follow", job.job_id]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


async def _stream(job: kinetic.JobHandle[Any], seen: list[str]) -> None:
    seen += [line.text async for line in job.stream()]


def test_followers_outlive_a_supervisor(
    own_cluster: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("KINETIC_LOCAL_SLICES", '{"tpu-v6e-8": 1}')
    flag, runs = tmp_path / "flag", tmp_path / "runs"
    held = linger.run_async(str(flag))
    wait_until(flag.exists, 200, "the slice to be held")
    waits = count.run_async(str(runs))
    wait_until(lambda: waits.phase().phase == "queue", 120, "its driver to wait for the slice")

    seen: list[str] = []
    streaming = threading.Thread(target=lambda: asyncio.run(_stream(waits, seen)))
    streaming.start()
    with _follow(waits) as of_waiting, _follow(held) as of_running:
        assert of_running.stdout is not None
        assert of_running.stdout.read(11) == "half a line"
        assert of_waiting.stderr is not None
        assert "has no log yet; queue" in of_waiting.stderr.readline()
        status = backend.status(own_cluster)
        assert status is not None
        os.kill(status["pid"], signal.SIGKILL)
        told = of_waiting.communicate(timeout=300)
        lost = of_running.communicate(timeout=300)
    assert (told[0], of_waiting.returncode) == ("counted\n", 0)
    assert told[1].count("what drove it is gone") <= 1
    assert of_running.returncode == 1
    assert f"{held.job_id} is lost" in lost[1]
    assert "waiting whether its end comes" in lost[1]  # it had been seen driven

    streaming.join(300)
    assert seen == ["counted"]
    assert waits.result(timeout=300) == 7
    assert runs.read_text() == "once\n"  # however many have handed it over
    assert not held.status().is_terminal  # nobody runs it again unasked, and whoever waits is told
    with pytest.raises(kinetic.JobLost, match="does not know it"):
        held.result(timeout=60)

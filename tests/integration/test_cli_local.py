"""The command line on the real embedded cluster: run, follow, cancel, stop."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.screen import Screen, run_in_terminal
from tests.unit.test_docs_json import keys_told
from tests.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

#: Prints, reports, and ends as its first argument says; "wait" waits for a file beside the script.
SCRIPT = """
import sys, time, pathlib
import kinetic_ray as kinetic
from sibling import NAME

ctx = kinetic.context()
print(f"[bold] rank {ctx.rank} of {ctx.world_size} {NAME} {sys.argv[1:]} \\x1b[2J\\x1b[31mred\\x1b[0m", flush=True)
for step in range(3):
    kinetic.report(step, total=3, loss=1 / (step + 1))
if sys.argv[1] == "wait":
    gate = pathlib.Path(sys.argv[2])
    while not gate.exists():
        time.sleep(0.05)  # in the job, not in the test
if sys.argv[1] == "fail":
    raise ValueError(f"bad batch on rank {ctx.rank}")
sys.exit(0)
"""

DRIVER = """
import sys
import kinetic_ray as kinetic

@kinetic.run(accelerator="cpu")
def double(x):
    print("doubling", x)
    return 2 * x

if __name__ == "__main__":
    print("value", double(int(sys.argv[1])))
    sys.exit(5)
"""


@pytest.fixture
def project(cluster: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project's folder, the working folder of the commands."""
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "script.py").write_text(SCRIPT)
    (tmp_path / "driver.py").write_text(DRIVER)
    (tmp_path / "sibling.py").write_text("NAME = 'sibling'")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def kinetic(*args: str, code: int = 0) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "kinetic_ray", *args]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return done


def answer(*args: str, code: int = 0) -> Any:
    return json.loads(kinetic(*args, "--json", code=code).stdout)


@pytest.fixture
def waiting(project: Path) -> Iterator[str]:
    """A job that runs until it is cancelled; over when the test is."""
    job_id = kinetic("run", "script.py", "-a", "cpu", "-d", "--", "wait", str(project / "gate")).stdout.strip()
    wait_until(lambda: answer("jobs", "status", job_id)["phase"] == "run", 100, f"{job_id} to run", every=0.2)
    yield job_id
    subprocess.run([sys.executable, "-m", "kinetic_ray", "jobs", "cancel", job_id], capture_output=True, check=False)


def test_a_driver_shows_the_stages_of_its_calls_and_passes_its_exit_code_on(project: Path) -> None:
    done = kinetic("run", "driver.py", "--", "21", code=5)
    assert done.stdout.splitlines() == ["doubling 21", "value 42"]
    stages = [line.split(": ")[2].split()[0] for line in done.stderr.splitlines() if " double: " in line]
    assert stages[0] == "queue"
    assert stages[-1] == "succeeded"
    assert "env" in stages  # "run" may be over between two looks


def test_a_script_on_every_host_in_a_terminal(project: Path) -> None:
    command = [sys.executable, "-m", "kinetic_ray", "run", "script.py", "-a", "tpu-v6e-8", "--num-slices", "2"]
    code, written = run_in_terminal([*command, "--", "ok", "--flag"], columns=120)
    screen = Screen(120)
    screen.feed(written)
    rows = screen.text()
    assert code == 0, written
    assert rows[1] == "[bold] rank 0 of 2 sibling ['ok', '--flag'] red"
    assert rows[-1].startswith("kinetic: script.py succeeded after ")
    assert len(rows) == 3
    for stage in ("[queue]", "[env]"):
        assert stage in written


def test_a_failing_script_exits_with_1_and_names_the_host(project: Path) -> None:
    done = kinetic("run", "script.py", "-a", "cpu", "--hosts", "2", "--", "fail", code=1)
    assert "ValueError: bad batch on rank" in done.stderr
    assert "kinetic jobs logs" in done.stderr
    facts = answer("jobs", "status", "latest")
    assert (facts["status"], facts["reason"], len(facts["hosts"])) == ("FAILED", "UserError", 2)
    assert "bad batch on rank" in kinetic("jobs", "result", "latest", code=1).stderr
    logs = kinetic("jobs", "logs", "latest", "--rank", "all").stdout
    assert "[0] [bold] rank 0 of 2" in logs
    assert "[1] [bold] rank 1 of 2" in logs


def test_documents_of_a_cluster_have_the_keys_that_the_page_tells(waiting: str) -> None:
    told = keys_told("local status")
    document = answer("local", "status")
    [lease] = [each for each in document.get("leases", ()) if each["holder"] == waiting]
    waits = {"queue", "wish", "reason"}  # nobody does here
    assert {*document, *lease} | waits == told
    assert set(answer("local", "status", "--env")) == keys_told("local status --env")


def test_with_json_standard_output_is_one_document(project: Path) -> None:
    done = kinetic("run", "script.py", "-a", "cpu", "--json", "--", "ok")
    document = json.loads(done.stdout)
    assert set(document) == keys_told("run")
    assert document["status"] == "SUCCEEDED"
    assert "[bold] rank 0 of 1" in done.stderr
    assert answer("jobs", "result", document["job_id"])["value"] is None
    progress = answer("jobs", "status", document["job_id"])["progress"]
    assert (progress["step"], progress["total"]) == (2, 3)


def test_a_detached_job_is_followed_from_another_process(waiting: str, project: Path) -> None:
    command = [sys.executable, "-m", "kinetic_ray", "jobs", "logs", "-f", waiting]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as follower:
        assert follower.stdout is not None
        assert follower.stdout.readline().startswith("[bold] rank 0 of 1")
        (project / "gate").touch()
        assert follower.wait(60) == 0
    assert answer("jobs", "result", waiting, "--timeout", "30s")["status"] == "SUCCEEDED"
    kinetic("jobs", "cancel", waiting, code=1)
    assert answer("jobs", "cleanup", waiting)["was"] == "SUCCEEDED"
    kinetic("jobs", "status", waiting, code=3)


def test_a_running_job_is_cancelled_and_the_cluster_not_stopped_under_it(waiting: str) -> None:
    assert kinetic("local", "stop", code=1).stderr.count(waiting) == 1
    assert waiting in {job["job_id"] for job in answer("local", "status")["jobs"]}
    kinetic("jobs", "cleanup", waiting, code=1)
    kinetic("jobs", "result", waiting, "--timeout", "0.2", code=124)
    assert answer("jobs", "cancel", waiting)["status"] == "STOPPED"
    assert answer("jobs", "status", waiting)["reason"] == "Cancelled"
    kinetic("jobs", "result", waiting, code=1)


def test_ctrl_c_ends_the_waiting_and_not_the_job(project: Path) -> None:
    command = [sys.executable, "-m", "kinetic_ray", "run", "script.py", "-a", "cpu", "--", "wait", "gate-of-nobody"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as waiter:
        assert waiter.stdout is not None
        assert waiter.stdout.readline().startswith("[bold] rank 0 of 1")
        waiter.send_signal(signal.SIGINT)
        _, err = waiter.communicate(timeout=30)
    assert waiter.returncode == 130
    assert "Traceback" not in err
    facts = answer("jobs", "status", "latest")
    assert facts["status"] == "RUNNING"
    assert f"kinetic jobs cancel {facts['job_id']}" in err
    kinetic("jobs", "cancel", facts["job_id"])


def test_doctor_is_content_beside_a_cluster_that_runs(project: Path) -> None:
    kinetic("run", "script.py", "-a", "cpu", "--", "ok")
    found = {finding["check"]: finding for finding in answer("doctor")["findings"]}
    assert "head up" in found["supervisor"]["message"]
    assert [name for name, finding in found.items() if finding["level"] == "fail"] == []


def test_the_ray_command_can_speak_to_the_cluster(project: Path) -> None:
    job_id = json.loads(kinetic("run", "script.py", "-a", "cpu", "--json", "--", "ok").stdout)["job_id"]
    env = {**os.environ, **answer("local", "status", "--env")["env"]}
    ray = Path(sys.executable).with_name("ray")

    def told() -> str:
        done = subprocess.run([ray, "job", "status", job_id], env=env, capture_output=True, text=True, check=False)
        return (done.stdout + done.stderr).upper()

    # Ray learns of the end when the driver's process has gone, a moment after the record that we read.
    wait_until(lambda: "SUCCEEDED" in told(), 60, "Ray's own word that the job succeeded")

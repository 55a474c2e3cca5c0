"""What Ray's own tools show of a job, and do to it: `ray job ...`, `ray list ...`, the dashboard."""

import http.client
import json
import os
import shlex
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

import kinetic_ray as kinetic
from tests.integration.driver import programs
from tests.integration.driver.clusters import DEADLINE, V6E, Cluster, Job, alive, pids_of
from tests.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(240)]

RAY = str(Path(sysconfig.get_path("scripts"), "ray"))


@pytest.fixture(scope="module")
def shell(cluster: Cluster) -> dict[str, str]:
    """The environment of a shell after `eval "$(kinetic local status --env)"`."""
    command = [sys.executable, "-m", "kinetic_ray", "local", "status", "--env"]
    told = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    assigned = [word for line in told.splitlines() for word in shlex.split(line) if "=" in word]
    return {**os.environ, **dict(word.split("=", 1) for word in assigned)}


def ray(shell: dict[str, str], *words: str) -> str:
    done = subprocess.run([RAY, *words], env=shell, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def listed(shell: dict[str, str], what: str, *filters: str) -> list[dict[str, Any]]:
    options = [word for each in filters for word in ("--filter", each)]
    command = [RAY, "list", what, "--format", "json", "--detail", "--limit", "1000", *options]
    done = subprocess.run(command, env=shell, capture_output=True, text=True, timeout=120, check=True)
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def wait_for_ray(shell: dict[str, str], job: Job, words: str) -> None:
    """Ray looks at its drivers a few times a second, so its word of an end comes a moment after ours."""
    wait_until(lambda: words in ray(shell, "job", "status", job.job_id), DEADLINE, f"Ray to say {words!r}", every=0.5)


def test_what_runs_is_named_by_function_slice_host_and_attempt(
    cluster: Cluster, shell: dict[str, str], tmp_path: Path
) -> None:
    job = cluster.submit(programs.stay, str(tmp_path), accelerator=V6E)
    pids = pids_of(tmp_path, 4)
    agents = [one for one in listed(shell, "actors", "state=ALIVE") if job.job_id in (one["name"] or "")]
    assert {one["class_name"] for one in agents} - {"JobSupervisor"} == {"HostAgent"}
    agents = [one for one in agents if one["class_name"] == "HostAgent"]
    shown = {one["repr_name"]: (one["name"], one["node_id"]) for one in agents}
    assert shown == {
        f"stay on host {n} of {V6E}-0": (f"stay/{V6E}-0/host-{n}/attempt-1/{job.job_id}.1", host["node_id"])
        for n, host in enumerate(cluster.hosts())
    }
    running = {f"stay on host {n} of {V6E}-0, attempt 1: next" for n in range(4)}
    wait_until(
        lambda: running <= {task["name"] for task in listed(shell, "tasks", "state=RUNNING")},
        DEADLINE,
        "Ray to tell of the calls that run",
        every=0.5,
    )
    assert job.job_id in ray(shell, "job", "list")
    assert "RUNNING" in ray(shell, "job", "status", job.job_id)
    ray(shell, "job", "stop", job.job_id)
    state = job.wait()
    assert (state.status, state.reason) == ("STOPPED", "Cancelled")
    assert "ray job stop" in state.message
    wait_for_ray(shell, job, f"'{job.job_id}' was stopped")
    assert not any(map(alive, pids))


def test_ray_job_logs_follow_the_leader_to_the_end(cluster: Cluster, shell: dict[str, str], tmp_path: Path) -> None:
    job = cluster.submit(programs.speak, str(tmp_path / "gate"), hosts=2)
    job.wait_until_it_calls()
    with subprocess.Popen(
        [RAY, "job", "logs", "--follow", job.job_id], env=shell, stdout=subprocess.PIPE, text=True
    ) as follower:
        assert follower.stdout is not None
        said = [next(line for line in follower.stdout if line == "rank 0 begins\n")]
        (tmp_path / "gate").touch()
        said += follower.stdout.readlines()
    assert job.wait().status == "SUCCEEDED"
    wait_for_ray(shell, job, f"'{job.job_id}' succeeded")
    all_of_it = ray(shell, "job", "logs", job.job_id)
    for text in ("".join(said), all_of_it[all_of_it.index("rank 0 begins") :]):
        lines = text.splitlines()
        assert lines[:1001] == ["rank 0 begins", *(f"rank 0: line {number} ü" for number in range(1000))]
        assert lines[1001:1004] == ["no text: �", "last words", f"kinetic: speak ({job.job_id}) SUCCEEDED"]
        assert "rank 1" not in text


def test_ray_calls_a_failure_a_failure_and_tells_its_cause(cluster: Cluster, shell: dict[str, str]) -> None:
    job = cluster.submit(programs.leave_on, 0, 3, hosts=1)
    assert job.wait().status == "FAILED"
    wait_for_ray(shell, job, f"'{job.job_id}' failed")
    message = job.wait().message
    assert f"kinetic: leave_on ({job.job_id}) FAILED, ProcessDied: {message}\n" in ray(shell, "job", "logs", job.job_id)


def test_ray_calls_a_cancelled_job_stopped(cluster: Cluster, shell: dict[str, str], tmp_path: Path) -> None:
    job = cluster.submit(programs.stay, str(tmp_path))
    pids_of(tmp_path, 1)
    job.cancel()
    state = job.wait()
    assert (state.status, state.message, state.epoch) == ("STOPPED", "cancelled", 1)
    wait_for_ray(shell, job, f"'{job.job_id}' was stopped")
    said = f"kinetic: stay ({job.job_id}) STOPPED, Cancelled: cancelled\n"
    wait_until(lambda: said in ray(shell, "job", "logs", job.job_id), DEADLINE, "the driver's last word", every=0.5)


# The dashboard.


def ask(url: str, method: str, path: str, headers: dict[str, str] | None = None) -> tuple[int, str, str]:
    """One request to the dashboard: status, body, cookie."""
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)
    try:
        connection.request(method, path, headers=headers or {})
        answer = connection.getresponse()
        return answer.status, answer.read().decode(), (answer.getheader("Set-Cookie") or "").partition(";")[0]
    finally:
        connection.close()


def test_the_dashboards_page_of_a_job_opens_with_the_token(cluster: Cluster, shell: dict[str, str]) -> None:
    job = cluster.submit(programs.give, 1)
    job.wait()
    url = kinetic.attach(job.job_id).dashboard_url
    assert url is not None
    base, _, route = url.partition("/#/")
    assert (base, route) == (shell["RAY_API_SERVER_ADDRESS"], f"jobs/{job.job_id}")
    facts = f"/api/{route}"  # what the page shows, which comes without a token
    assert ask(base, "GET", "/")[0] == 200
    assert ask(base, "GET", facts)[0] == 401
    # What the page's dialog does with the token that is typed into it:
    token = Path(shell["RAY_AUTH_TOKEN_PATH"]).read_text()
    _, _, cookie = ask(base, "POST", "/api/authenticate", {"Authorization": f"Bearer {token}"})
    status, body, _ = ask(base, "GET", facts, {"Cookie": cookie})
    assert (status, json.loads(body)["submission_id"]) == (200, job.job_id)


def test_a_job_that_this_cluster_never_had_has_no_page(cluster: Cluster) -> None:
    job = cluster.record(programs.give, 1)
    assert kinetic.attach(job.job_id).dashboard_url is None

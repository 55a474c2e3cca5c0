"""`kinetic local` and doctor's look at the embedded cluster, against a supervisor that only answers."""

import json
import os
import socket
import subprocess
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import kinetic_ray as kinetic
from kinetic_ray import wire
from kinetic_ray.backends.local import leftovers
from kinetic_ray.backends.local.paths import runtime_of
from kinetic_ray.cli import doctor, findings
from kinetic_ray.cli.main import root
from kinetic_ray.errors import ConfigError

STATUS = {
    "pid": 4242,
    "version": "0.1",
    "home": "/h",
    "ray_address": "127.0.0.1:1",
    "dashboard_url": "http://127.0.0.1:2",
    "uptime": 75,
    "head": "up",
    "slices": [
        {
            "name": "tpu-v6e-8-0",
            "accelerator": "tpu-v6e-8",
            "state": "starting",
            "hosts": [{"worker_id": 0, "node_id": "n", "pid": 1, "state": "up"}],
        }
    ],
    "jobs": [{"job_id": "job-1", "state": "live", "store": "file:///s"}],
    "stores": [],
    "pool": None,
    "max_drivers": 8,
}


class Supervisor:
    """Answers every request by its `op`, and remembers the requests."""

    def __init__(self, sock: Path) -> None:
        self.answers: dict[str, Mapping[str, Any]] = {
            "status": {"ok": True, **STATUS},
            "hello": {"ok": True, "pid": STATUS["pid"], "stopping": False, "pool": None},
        }
        self.asked: list[dict[str, Any]] = []
        sock.parent.mkdir(mode=0o700)
        self._server = socket.socket(socket.AF_UNIX)
        self._server.bind(str(sock))
        self._server.listen()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            connection, _ = self._server.accept()
            with wire.Peer(connection) as peer:
                request = peer.recv(5)
                if request == {"op": "end"}:
                    return
                if request is not None:
                    self.asked.append(request)
                    peer.send(self.answers[request["op"]])

    def end(self, sock: Path) -> None:
        with wire.connect(sock) as peer:
            peer.send({"op": "end"})
        self._thread.join(5)
        self._server.close()
        sock.unlink()
        sock.parent.rmdir()


@pytest.fixture
def supervisor(kinetic_home: Path) -> Iterator[Supervisor]:
    sock = runtime_of(kinetic_home).sock
    running = Supervisor(sock)
    yield running
    running.end(sock)


def run(*args: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(root, args)
    return done.exit_code, done.stdout, done.stderr


def test_without_a_cluster_status_answers_no_and_starts_nothing(kinetic_home: Path) -> None:
    code, out, _ = run("local", "status")
    assert (code, "no embedded cluster runs" in out) == (1, True)
    assert run("local", "status", "--json")[:2] == (1, '{"running": false}\n')
    assert run("local", "status", "--env")[0] == 1
    assert run("local", "stop")[0] == 0
    assert json.loads(run("local", "stop", "--json")[1]) == {"stopped": False}
    assert list(kinetic_home.iterdir()) == []
    assert not runtime_of(kinetic_home).root.exists()


def test_status_tells_slices_and_jobs(supervisor: Supervisor) -> None:
    code, out, _ = run("local", "status")
    assert code == 0
    assert "process 4242, up 1 m 15 s" in out
    assert "http://127.0.0.1:2" in out
    assert ["tpu-v6e-8-0", "tpu-v6e-8", "starting", "1", "of", "1", "up"] in [line.split() for line in out.splitlines()]
    assert ["job-1", "live", "file:///s"] in [line.split() for line in out.splitlines()]
    assert json.loads(run("local", "status", "--json")[1]) == {"running": True, **STATUS}


LEASES = [
    {"holder": "job-1", "name": "train", "accelerator": "tpu-v6e-8", "slices": ["tpu-v6e-8-0"], "idle_ok": False},
    {"holder": "call-7", "name": "score", "accelerator": "cpu", "slices": [], "cpus": 1.5, "idle_ok": True},
]
QUEUE = [
    {"holder": "job-2", "name": "tune", "wish": "1 x tpu-v6e-8", "reason": "1 of 1 slices of tpu-v6e-8 are in use"}
]


def test_status_tells_who_holds_and_who_waits(supervisor: Supervisor) -> None:
    lines = [line.split("  ") for line in run("local", "status")[1].splitlines()]
    assert not any({"HELD BY", "HOLDER", "WAITS"} & set(map(str.strip, line)) for line in lines)
    supervisor.answers["status"] = {"ok": True, **STATUS, "leases": LEASES, "queue": QUEUE}
    text = run("local", "status")[1]
    rows = [[cell for cell in map(str.strip, line.split("  ")) if cell] for line in text.splitlines()]
    assert ["tpu-v6e-8-0", "tpu-v6e-8", "starting", "1 of 1 up", "job-1"] in rows
    assert ["job-1", "train", "tpu-v6e-8-0"] in rows
    assert ["call-7", "score", "1.5 CPUs (kept warm for calls)"] in rows
    assert ["job-2", "tune", "1 x tpu-v6e-8", "1 of 1 slices of tpu-v6e-8 are in use"] in rows
    document = json.loads(run("local", "status", "--json")[1])
    assert (document["leases"], document["queue"]) == (LEASES, QUEUE)


def test_preempt_passes_on_what_was_asked_and_says_what_comes(supervisor: Supervisor) -> None:
    told = {"slice": "tpu-v6e-8-0", "host": None, "silent": False, "grace": 3.0, "return_after": 5.0}
    supervisor.answers["preempt"] = {"ok": True, **told}
    code, out, _ = run("local", "preempt", "tpu-v6e-8-0", "--grace", "3")
    assert (code, out) == (0, "tpu-v6e-8-0 was told, and goes in 3 s at the latest\n")
    assert json.loads(run("local", "preempt", "tpu-v6e-8-0", "--return-after", "1", "--json")[1]) == told
    assert "stops answering" in run("local", "preempt", "tpu-v6e-8-0.0", "--silent")[1]
    asked = [request for request in supervisor.asked if request["op"] == "preempt"]
    assert [request["target"] for request in asked] == ["tpu-v6e-8-0", "tpu-v6e-8-0", "tpu-v6e-8-0.0"]
    assert [(r["grace"], r["silent"], r["return_after"]) for r in asked] == [
        (3.0, False, None),
        (None, False, 1.0),
        (None, True, None),
    ]


def test_preempt_of_what_is_not_there(supervisor: Supervisor) -> None:
    refused = {"ok": False, "error": "UsageError", "message": "no slice or host 'x': there are tpu-v6e-8-0"}
    supervisor.answers["preempt"] = refused
    code, out, err = run("local", "preempt", "x")
    assert (code, out, "there are tpu-v6e-8-0" in err) == (2, "", True)


def test_preempt_without_a_cluster(kinetic_home: Path) -> None:
    code, _, err = run("local", "preempt", "tpu-v6e-8-0")
    assert (code, "no embedded cluster runs" in err) == (1, True)


def test_env_can_be_evaluated_by_a_shell(supervisor: Supervisor) -> None:
    values = {"RAY_ADDRESS": "127.0.0.1:1", "RAY_AUTH_TOKEN_PATH": "/a b/$(touch x)'token"}
    supervisor.answers["env"] = {"ok": True, "env": values}
    code, out, _ = run("local", "status", "--env")
    assert code == 0
    shown = subprocess.run(
        ["bash", "-c", f'{out}printf "%s\\n" "$RAY_ADDRESS" "$RAY_AUTH_TOKEN_PATH"'], capture_output=True
    )
    assert shown.stdout.decode().splitlines() == list(values.values())
    assert json.loads(run("local", "status", "--env", "--json")[1]) == {"env": values}


def test_stop_is_refused_while_jobs_run_unless_forced(supervisor: Supervisor) -> None:
    supervisor.answers["stop"] = {
        "ok": False,
        "error": "UsageError",
        "message": "1 job runs: job-1; --force cancels it",
    }
    code, out, err = run("local", "stop")
    assert (code, out, "job-1" in err) == (1, "", True)
    supervisor.answers["stop"] = {"ok": True, "pid": 4242}
    supervisor.answers["hello"] = {"ok": True, "pid": 4243, "stopping": False, "pool": None}  # the next one, already
    assert run("local", "stop", "--force")[0] == 0
    assert [request["force"] for request in supervisor.asked if request["op"] == "stop"] == [False, True]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("KINETIC_LOCAL_SLICES", '{"tpu-v6e-16": 1}'),
        ("KINETIC_LOCAL_SLICES", "two"),
        ("KINETIC_LOCAL_IDLE_S", "soon"),
    ],
)
def test_settings_that_a_live_cluster_can_not_meet_are_refused_before_a_job_is_recorded(
    supervisor: Supervisor, kinetic_home: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    supervisor.answers["hello"] = {"ok": True, "pid": 4242, "stopping": False, "pool": None}
    supervisor.answers["check"] = {"ok": True}
    monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match=name):
        kinetic.remote(sorted).run_async([1])
    assert list(kinetic_home.iterdir()) == []


@pytest.mark.parametrize(("head", "level"), [("up", "ok"), ("starting", "ok"), ("failed", "fail")])
def test_doctor_sees_the_supervisor_and_its_head(
    supervisor: Supervisor, kinetic_home: Path, head: str, level: str
) -> None:
    supervisor.answers["status"] = {"ok": True, **STATUS, "head": head}
    code, out, _ = run("doctor", "--json")
    document = json.loads(out)
    found = {finding["check"]: finding for finding in document["findings"]}
    assert found["supervisor"]["level"] == level
    assert "4242" in found["supervisor"]["message"]
    assert str(runtime_of(kinetic_home).root) not in found["runtime folders"]["message"]
    assert (code == 0) == document["ok"] == all(f["level"] != "fail" for f in document["findings"])


def test_doctor_for_people_ends_with_the_ways_out(kinetic_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    monkeypatch.setenv("KINETIC_STORE", "/proc/nowhere")
    code, out, _ = run("doctor")
    assert code == 1
    lines = [line.split() for line in out.splitlines()]
    assert ["fail", "store"] in [words[:2] for words in lines]
    assert "environment: " in out
    assert "store: name another store with KINETIC_STORE" in out


def test_status_shows_what_has_not_ended(supervisor: Supervisor) -> None:
    gone = {"job_id": "job-0", "state": "gone", "store": "file:///s"}
    pool = {"tpu-v6e-16": 2, "tpu-v6e-8": 0}
    supervisor.answers["status"] = {"ok": True, **STATUS, "jobs": [gone, *STATUS["jobs"]], "pool": pool}
    text = run("local", "status")[1]
    assert "job-0" not in text
    assert "gone" not in text
    assert json.dumps(pool) in text
    assert json.loads(run("local", "status", "--json")[1])["jobs"] == STATUS["jobs"]
    supervisor.answers["status"] = {"ok": True, **STATUS, "pool": {}}
    assert "pool  {}" in run("local", "status")[1]


def test_doctor_counts_jobs_in_words(supervisor: Supervisor) -> None:
    assert "1 job" in run("doctor")[1]
    assert "1 jobs" not in run("doctor")[1]


def test_a_killed_cluster_of_another_home_is_left_to_that_home(
    kinetic_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "other home"
    runtime = runtime_of(other)
    runtime.prepare()
    try:
        lock = leftovers.take_lock(runtime, 5)
        assert lock is not None
        os.close(lock)
        found = {finding.check: finding for finding in doctor.embedded()}["runtime folders"]
        assert "an unknown home" in found.message
        runtime.info.write_text(json.dumps({"home": str(other)}))
        found = {finding.check: finding for finding in doctor.embedded()}["runtime folders"]
        assert f"{runtime.root} (of {other})" in found.message
        assert f"KINETIC_HOME='{other}'" in found.fix
        assert "rm " not in found.fix
    finally:
        leftovers.sweep(runtime)


def test_a_killed_cluster_leaves_a_folder_that_doctor_names(kinetic_home: Path) -> None:
    runtime = runtime_of(kinetic_home)
    runtime.prepare()
    try:
        assert not findings.is_stale(runtime.root)  # a supervisor is about to come
        lock = leftovers.take_lock(runtime, 5)
        assert lock is not None
        assert not findings.is_stale(runtime.root)  # it is starting, and listens to nobody yet
        os.close(lock)
        found = {finding.check: finding for finding in doctor.embedded()}["runtime folders"]
        assert (found.level, str(runtime.root) in found.message) == ("warn", True)
        assert "the next job here" in found.fix
    finally:
        leftovers.remove(runtime)
    assert not findings.is_stale(runtime.root)


def test_a_supervisor_that_hangs_is_a_failure_with_a_way_out(kinetic_home: Path) -> None:
    sock = runtime_of(kinetic_home).sock
    sock.parent.mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(sock))
        server.listen()
        found = doctor.judge_supervisor(sock, timeout=0.1)
    sock.unlink()
    sock.parent.rmdir()
    assert (found.level, "--force" in found.fix) == ("fail", True)


def test_socket_paths_are_measured_in_bytes() -> None:
    assert findings.judge_socket_path(Path("/" + "x" * 102)).level == "ok"
    assert findings.judge_socket_path(Path("/" + "é" * 60)).level == "fail"

"""Joining the embedded cluster: from fresh processes and from those that have used Ray before, and what is left of it.

Each test's program is a process of its own, since Ray is connected once a process.
"""

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

import kinetic_ray as kinetic
from kinetic_ray.backends.local import backend
from kinetic_ray.backends.local.paths import runtime_of
from tests.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(300)]

_ANSWER = "answer: "
_PRELUDE = """
import json, os, signal, subprocess, sys, threading
from pathlib import Path
from kinetic_ray import config
from kinetic_ray.backends.local import backend
from kinetic_ray.calls import connect as joining
from kinetic_ray.errors import KineticError, UsageError

def answer(**facts):
    print("answer: " + json.dumps(facts), flush=True)

def task():
    "A task of plain Ray runs."
    import ray
    return ray.get(ray.remote(num_cpus=0)(lambda: 42).remote(), timeout=120)

def sends_a_token():
    from ray._raylet import get_authentication_mode
    return get_authentication_mode() == 1

def own_ray(folder):
    "Another Ray on this machine, of the user's own."
    import ray
    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False, _temp_dir=folder)
"""


def program(source: str, *args: object) -> Any:
    """Runs a program and gives what it answers: a dict, or a list of them where it answers several times."""
    script = _PRELUDE + textwrap.dedent(source)
    words = [sys.executable, "-c", script, *map(str, args)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr[-5000:]
    lines = [line.removeprefix(_ANSWER) for line in done.stdout.splitlines() if line.startswith(_ANSWER)]
    answers = [json.loads(line) for line in lines]
    return answers[0] if len(answers) == 1 else answers


def test_a_fresh_process_joins_once_and_keeps_its_environment(cluster: Path) -> None:
    got = program(
        """
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        import ray  # which sets a variable of its own
        before = dict(os.environ)
        first = joining.connect()
        found = []
        threads = [threading.Thread(target=lambda: found.append(joining.connect())) for _ in range(8)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        context = ray.get_runtime_context()
        answer(
            same=all(one is first for one in found), count=len(found), task=task(), client=first.client,
            job=context.get_job_id(), address=context.gcs_address, ancestors=first.ancestors,
            changed=sorted(set(before.items()) ^ set(os.environ.items())),
            handler=signal.getsignal(signal.SIGTERM) is signal.default_int_handler, namespace=context.namespace,
            gangs=ray.get(first.desk.snapshot.remote()) is not None,
            broker=ray.get_actor("kinetic-broker", namespace="kinetic") is not None,
        )
        """
    )
    status = backend.status(cluster)
    assert status is not None and got["address"] == status["ray_address"]
    assert got["same"] and got["count"] == 8 and got["task"] == 42
    assert got["client"] == got["job"] and got["ancestors"] == []
    assert got["changed"] == [] and got["handler"] and got["namespace"] != "kinetic"
    assert got["gangs"] and got["broker"]


def test_a_process_whose_ray_has_made_up_its_mind_already(
    cluster: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".ray").mkdir()
    (tmp_path / ".ray" / "auth_token").write_text("another cluster's token")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    monkeypatch.setenv("RAY_ADDRESS", "192.0.2.1:6379")  # nobody's: what is meant for others doesn't lead us away
    got = program(
        """
        import ray
        from ray._raylet import AuthenticationTokenLoader
        before = sends_a_token(), AuthenticationTokenLoader.instance().has_token(ignore_auth_mode=True)
        joining.connect()
        joined = task(), sends_a_token()
        joining.disconnect()
        after = sends_a_token(), ray.is_initialized()
        answer(before=before, joined=joined, after=after, mode=os.environ["RAY_AUTH_MODE"])
        """
    )
    assert got == {"before": [False, True], "joined": [42, True], "after": [False, False], "mode": "disabled"}


def test_a_process_with_another_ray_is_refused_until_it_leaves_that(
    cluster: Path, tmp_path: Path, test_homes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))  # Ray writes a token there
    got = program(
        """
        import ray
        own_ray(sys.argv[1])
        address = ray.get_runtime_context().gcs_address
        try:
            joining.connect()
        except UsageError as error:
            told = str(error)
        still = task()
        ray.shutdown()
        joining.connect()
        answer(told=told, still=still, address=address, then=task())
        """,
        test_homes / "ray",
    )
    assert got["address"] in got["told"] and "ray.shutdown()" in got["told"] and "run_async" in got["told"]
    assert (got["still"], got["then"]) == (42, 42)


def test_ray_shut_down_behind_our_back_is_the_users_own_again(
    cluster: Path, tmp_path: Path, test_homes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    got = program(
        """
        import ray
        first = joining.connect()
        ray.shutdown()
        second = joining.connect()
        anew = task(), second is not first, first.ended.is_set(), second.client != first.client
        ray.shutdown()
        sends = sends_a_token()
        own_ray(sys.argv[1])
        answer(anew=anew, sends=sends, own=task())
        """,
        test_homes / "ray",
    )
    assert got == {"anew": [42, True, True, True], "sends": False, "own": 42}


def test_a_process_that_ray_s_own_init_has_joined_is_taken_as_it_is(cluster: Path) -> None:
    backend.start(cluster)
    environment = backend.environment(cluster)
    assert environment is not None
    got = program(
        """
        os.environ.update(json.loads(sys.argv[1]))
        import ray
        ray.init(address=os.environ["RAY_ADDRESS"], namespace="mine", log_to_driver=False)
        connection = joining.connect()
        ours = connection.client == ray.get_runtime_context().get_job_id()
        joining.disconnect()
        answer(ours=ours, still=ray.is_initialized(), task=task())
        """,
        json.dumps(environment),
    )
    assert got == {"ours": True, "still": True, "task": 42}


def test_what_a_joined_process_starts_has_nothing_of_it(cluster: Path) -> None:
    got = program(
        """
        joining.connect()
        child = "import os, ray; print(ray.is_initialized(), sorted(n for n in os.environ if n.startswith('RAY_A')))"
        said = subprocess.run([sys.executable, "-c", child], capture_output=True, text=True).stdout.strip()
        reading, writing = os.pipe()
        if os.fork() == 0:
            try:
                joining.connect()
            except UsageError as error:
                os.write(writing, str(error).encode())
            os._exit(0)
        os.wait()
        told = os.read(reading, 4096).decode()
        answer(child=said, told=told, task=task())
        """
    )
    assert got["child"] == "False []" and "forked" in got["told"] and "spawn" in got["told"] and got["task"] == 42


def test_leaving_is_told_while_ray_still_answers(cluster: Path) -> None:
    got = program(
        """
        import ray
        first = joining.connect()
        joining.on_leaving(lambda connection: 1 / 0)
        joining.on_leaving(lambda connection: answer(left=connection.client, task=task()))
        joining.disconnect()
        joining.disconnect()
        answer(ended=first.ended.is_set(), connected=ray.is_initialized())
        joining.connect()  # and leaves at its end
        """
    )
    assert [one.get("task") for one in got] == [42, None, 42]
    assert got[1] == {"ended": True, "connected": False} and got[0]["left"] != got[2]["left"]


@kinetic.run(accelerator="cpu")
def joined_rank() -> dict[str, Any]:
    from kinetic_ray.calls.connect import connect

    before = dict(os.environ)
    connection = connect()
    import ray

    number = ray.get(ray.remote(num_cpus=0)(lambda: 42).remote(), timeout=120)
    names = ("RAY_CLIENT_MODE",)
    changed = {name for name in {*before, *os.environ} if before.get(name) != os.environ.get(name)}
    address = ray.get_runtime_context().gcs_address
    return {
        "ancestors": connection.ancestors,
        "task": number,
        "address": address,
        "changed": sorted(changed - {*names}),
        "again": connect() is connection,
        "desk": ray.get(connection.desk.snapshot.remote()) is not None,
    }


def test_a_rank_of_a_durable_job_joins_its_own_cluster(cluster: Path) -> None:
    job = joined_rank.run_async()
    got = job.result(timeout=240)
    status = backend.status(cluster)
    assert status is not None
    assert got == {
        "ancestors": (job.job_id,),
        "task": 42,
        "address": status["ray_address"],
        "changed": [],
        "again": True,
        "desk": True,
    }


def test_a_process_outlives_its_cluster_and_joins_the_next_one(own_cluster: Path) -> None:
    """Ray alone would end the process a minute later."""
    got = program(
        """
        import ray
        home = config.home()
        first = joining.connect()
        held = ray.put(1)
        try:
            backend.stop(home)
            refused = ""
        except UsageError as error:
            refused = str(error)
        backend.stop(home, force=True)
        ended = first.ended.wait(60)
        second = joining.connect()
        answer(ended=ended, anew=second is not first, task=task(), same=joining.connect() is second, refused=refused)
        """
    )
    assert "1 process has joined it" in got.pop("refused")
    assert got == {"ended": True, "anew": True, "task": 42, "same": True}


def test_a_cluster_is_not_idle_while_a_process_is_joined(own_cluster: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KINETIC_LOCAL_IDLE_S", "1")
    got = program(
        """
        import ray  # before: while it is imported nobody is joined yet
        first = joining.connect()
        answer(ended=first.ended.wait(6), task=task())
        """
    )
    assert got == {"ended": False, "task": 42}
    wait_until(lambda: not runtime_of(own_cluster).root.exists(), 60, "the idle cluster to stop")

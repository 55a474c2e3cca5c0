"""Zygotes that a nursery forks: the same as executed ones in all but the time that they take."""

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from kinetic_ray.runner.agent import HostAgent
from kinetic_ray.runner.nursery import OUTDATED
from kinetic_ray.store import Store
from tests.integration.host import programs
from tests.integration.host.gangs import Gang, alive
from tests.waiting import wait_until

MakeGang = Callable[..., Gang]


@pytest.fixture
def nursery(kinetic_home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[subprocess.Popen[bytes]]:
    """A nursery that the agents of this process ask."""
    path = kinetic_home / "nursery"
    monkeypatch.setenv("KINETIC_NURSERY", str(path))
    command = [sys.executable, "-P", "-m", "kinetic_ray.runner.nursery", str(path), "jax", str(os.getpid())]
    with subprocess.Popen(command, env=_environment(), stdin=subprocess.DEVNULL) as process:
        wait_until(path.exists, what="the nursery to listen")
        yield process
        process.kill()


@pytest.fixture
def nursed(nursery: subprocess.Popen[bytes], gang_of: MakeGang, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Gang]:
    """Makes gangs whose agents, unlike pytest's processes, have the environment that the nursery has."""

    def make(hosts: int = 1, chips: int = 2, **plan: Any) -> Gang:
        monkeypatch.delenv("PYTEST_CURRENT_TEST", raising=False)
        return gang_of(hosts, chips, **plan)

    return make


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"}


def _zygotes(gang: Gang) -> list[int]:
    return [agent.prepare(gang.plan.to_dict())["pid"] for agent in gang.agents]


def _are_nursed(gang: Gang, nursery: subprocess.Popen[bytes]) -> bool:
    return {psutil.Process(pid).ppid() for pid in _zygotes(gang)} == {nursery.pid}


def test_hosts_differ_in_devices_and_variables_only(
    nursery: subprocess.Popen[bytes], nursed: MakeGang, monkeypatch: pytest.MonkeyPatch
) -> None:
    gangs = []
    for number, chips in enumerate((3, 2)):
        monkeypatch.setenv("TPU_NAME", f"slice-{number}")
        if number:
            monkeypatch.delenv("TPU_TOPOLOGY")
        else:
            monkeypatch.setenv("TPU_TOPOLOGY", "1x3")
        gangs.append(nursed(2, chips))
        gangs[-1].attempt = 10 * number  # they share a job's records
    for number, (gang, chips) in enumerate(zip(gangs, (3, 2), strict=True)):
        assert _are_nursed(gang, nursery)
        assert gang.run(programs.all_reduce) == [(2 * chips, sum(range(2 * chips)))] * 2
        [first, second] = gang.run(programs.surroundings)
        for found in (first, second):
            assert found["env"]["TPU_NAME"] == f"slice-{number}"
            assert found["env"].get("TPU_TOPOLOGY") == (None if number else "1x3")
            assert f"device_count={chips}" in found["env"]["XLA_FLAGS"]
            assert found["env"]["JAX_PLATFORMS"] == "cpu"
            assert found["env"]["TF_CPP_MIN_LOG_LEVEL"]  # which jax sets
        assert first["cwd"] != second["cwd"]


def test_only_this_user_can_ask(nursery: subprocess.Popen[bytes]) -> None:
    assert Path(os.environ["KINETIC_NURSERY"]).stat().st_mode & 0o777 == 0o600


def test_what_an_import_may_read_is_not_set_afterwards(
    nursery: subprocess.Popen[bytes], nursed: MakeGang, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not _are_nursed(nursed(env_vars={"JAX_ENABLE_X64": "1"}), nursery)
    monkeypatch.setenv("JAX_ENABLE_X64", "1")  # of the host, not of the job
    gang = nursed()
    assert not _are_nursed(gang, nursery)
    [found] = gang.run(programs.surroundings)
    assert found["env"]["JAX_ENABLE_X64"] == "1"
    monkeypatch.delenv("JAX_ENABLE_X64")
    assert _are_nursed(nursed(), nursery)


@pytest.fixture
def site(kinetic_home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of packages that all processes see."""
    folder = kinetic_home / "site-packages"
    folder.mkdir(parents=True)
    monkeypatch.setenv("PYTHONPATH", str(folder), prepend=os.pathsep)
    return folder


def test_what_was_imported_before_packages_changed_is_not_forked(
    site: Path, nursery: subprocess.Popen[bytes], nursed: MakeGang, tmp_path: Path
) -> None:
    running = nursed()
    assert _are_nursed(running, nursery)
    running.start(programs.leave_daemon, str(tmp_path / "daemon"), "wait")
    daemon = int(wait_until(lambda: (tmp_path / "daemon").exists() and (tmp_path / "daemon").read_text()))
    os.utime(site, (1, 1))
    gang = nursed()
    gang.attempt = 10  # they share a job's records
    assert not _are_nursed(gang, nursery)
    assert gang.run(programs.all_reduce) == [(2, 1)]
    assert alive(daemon)  # what runs already goes on: its parent has not gone
    assert nursery.poll() is None
    for agent in running.agents:
        agent.stop()
    wait_until(lambda: not psutil.Process(nursery.pid).children(), what="the nursery to be without zygotes")
    assert not _are_nursed(nursed(), nursery)
    assert nursery.wait(30) == OUTDATED  # and the supervisor starts another


def test_daemons_in_their_own_session_end_with_the_rank(
    nursery: subprocess.Popen[bytes], nursed: MakeGang, tmp_path: Path
) -> None:
    gang = nursed()
    gang.start(programs.leave_daemon, str(tmp_path / "daemon"), "return")
    gang.outcome()
    assert not alive(int((tmp_path / "daemon").read_text()))
    assert _are_nursed(gang, nursery)


def test_a_killed_nursery_takes_its_zygotes_along_and_the_next_attempt_does_without(
    nursery: subprocess.Popen[bytes], nursed: MakeGang, tmp_path: Path
) -> None:
    gang = nursed()
    [zygote] = _zygotes(gang)
    gang.start(programs.leave_daemon, str(tmp_path / "daemon"), "wait")
    daemon = int(wait_until(lambda: (tmp_path / "daemon").exists() and (tmp_path / "daemon").read_text()))
    nursery.kill()
    assert gang.outcome().reason == "ProcessDied"
    wait_until(lambda: not alive(zygote) and not alive(daemon), what="the zygote and all below it to end")
    assert gang.run(programs.all_reduce) == [(2, 1.0)]


_AGENT = """
import sys
from kinetic_ray.store import open_store
from tests.integration.host import programs
from tests.integration.host.gangs import Gang
gang = Gang(open_store(sys.argv[1]), 2, 1)
pids = gang.start(programs.leave_daemon, sys.argv[2], "wait")
zygotes = [agent.prepare(gang.plan.to_dict())["pid"] for agent in gang.agents]
print(*pids, *zygotes, flush=True)
sys.stdin.read()
"""


def test_a_killed_agent_leaves_nothing_and_other_hosts_alone(
    nursery: subprocess.Popen[bytes], nursed: MakeGang, store: Store, tmp_path: Path
) -> None:
    other = nursed()
    path = tmp_path / "daemon"
    command = [sys.executable, "-c", _AGENT, store.url, str(path)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=_environment(), stdin=pipe, stdout=pipe, text=True) as agent:
        assert agent.stdout is not None
        pids = [int(word) for word in agent.stdout.readline().split()]
        assert {psutil.Process(pid).ppid() for pid in pids[2:]} == {nursery.pid}
        pids.append(int(wait_until(lambda: path.exists() and path.read_text())))
        folders = {Path(f"/proc/{pid}/cwd").readlink().parents[1] for pid in pids[:2]}
        agent.kill()
    wait_until(lambda: not any(alive(pid) for pid in pids), what="all processes to end")
    wait_until(lambda: not any(folder.exists() for folder in folders), what="the working folders to go")
    assert other.run(programs.all_reduce) == [(2, 1.0)]
    assert _are_nursed(other, nursery)


def test_a_request_that_makes_no_sense_costs_nobody_else(nursery: subprocess.Popen[bytes], nursed: MakeGang) -> None:
    for words in (b"no JSON\n", b"[1]\n", b'{"env": {}, "scratch": ""}\n', b"torn"):
        with socket.socket(socket.AF_UNIX) as asking:
            asking.connect(os.environ["KINETIC_NURSERY"])
            asking.sendall(words)
    assert _are_nursed(nursed(), nursery)


def test_a_zygote_is_as_nice_as_its_agent(nursery: subprocess.Popen[bytes], nursed: MakeGang) -> None:
    [zygote] = _zygotes(nursed())
    assert os.getsid(zygote) == zygote
    assert os.getpriority(os.PRIO_PROCESS, zygote) >= os.getpriority(os.PRIO_PROCESS, 0)
    adjusted = [int(Path(f"/proc/{pid}/oom_score_adj").read_text()) for pid in (zygote, os.getpid())]
    assert adjusted[0] >= adjusted[1]


def test_a_nursery_that_hangs_up_is_done_without(
    kinetic_home: Path, gang_of: MakeGang, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KINETIC_NURSERY", str(kinetic_home / "nursery"))
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(os.environ["KINETIC_NURSERY"])
        listener.listen()

        def hang_up() -> None:
            listener.accept()[0].close()

        hanging_up = threading.Thread(target=hang_up)
        hanging_up.start()
        assert gang_of(1, 2).run(programs.all_reduce) == [(2, 1.0)]
        hanging_up.join()
    agent = HostAgent()
    assert agent.prepare({"runtime": "jax", "chips": 1, "simulated": True})["ready"]  # nobody listens any more
    agent.stop()


def test_the_supervisors_end_is_the_nurserys(kinetic_home: Path) -> None:
    path = kinetic_home / "nursery"
    script = (
        "import os, subprocess, sys\n"
        "words = [sys.executable, '-P', '-m', 'kinetic_ray.runner.nursery', sys.argv[1], 'jax', str(os.getpid())]\n"
        "print(subprocess.Popen(words, stdin=subprocess.DEVNULL).pid, flush=True)\n"
        "sys.stdin.read()\n"
    )
    command = [sys.executable, "-c", script, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as supervisor:
        assert supervisor.stdout is not None
        pid = int(supervisor.stdout.readline())
        wait_until(path.exists, what="the nursery to listen")
        os.kill(supervisor.pid, signal.SIGKILL)
    wait_until(lambda: not alive(pid), what="the nursery to end")

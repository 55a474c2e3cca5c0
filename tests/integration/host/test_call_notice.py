"""A host of calls that is about to be taken away: who is told, and what failures are called from then on."""

import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

from kinetic_ray.runner.calls.failures import CallFailure
from tests.integration.host import programs
from tests.integration.host.gangs import alive
from tests.integration.host.hosts import Hosts
from tests.waiting import wait_until


def use_the_grace(folder: str, end: str) -> str:
    """Ends once it is told that its host is going."""
    told = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: told.set())
    Path(folder, "ready").touch()
    told.wait()
    if end == "raise":
        raise ValueError("half a checkpoint")
    return "saved"


def begin_and_wait(folder: str) -> None:
    Path(folder, "ready").touch()
    threading.Event().wait()


def begun(host: Hosts, folder: Path, function: Any, *args: Any) -> Any:
    [running] = host.start(function, str(folder), *args)
    wait_until((folder / "ready").exists, what="the call")
    return running


def failure_of(running: Any) -> CallFailure:
    with pytest.raises(CallFailure) as caught:
        running.result(30)
    return caught.value


def test_a_call_may_use_the_grace(host: Hosts, tmp_path: Path) -> None:
    running = begun(host, tmp_path, use_the_grace, "return")
    host.agents[0].announce_end("call-1")
    assert running.result(30) == "saved"


def test_what_it_fails_of_after_the_notice_is_the_preemption(host: Hosts, tmp_path: Path) -> None:
    running = begun(host, tmp_path, use_the_grace, "raise")
    host.agents[0].announce_end("call-1")
    failure = failure_of(running)
    assert (failure.reason, failure.pickled) == ("Preempted", None)
    assert failure.message == "its host was being preempted; ValueError: half a checkpoint"
    assert "half a checkpoint" in failure.traceback


def test_without_a_handler_the_notice_ends_it(host: Hosts, tmp_path: Path) -> None:
    running = begun(host, tmp_path, begin_and_wait)
    host.agents[0].announce_end("call-1")
    failure = failure_of(running)
    assert (failure.reason, failure.exit_code) == ("Preempted", -signal.SIGTERM)


def test_one_that_is_cancelled_after_the_notice_is_cancelled(host: Hosts, tmp_path: Path) -> None:
    running = begun(host, tmp_path, use_the_grace, "never")
    host.agents[0].announce_end("another gang")
    assert not running.done()
    host.agents[0].end("call-1", "", "")
    assert failure_of(running).reason == "Cancelled"


def test_an_idle_process_is_not_told(host: Hosts) -> None:
    pid = host.run(os.getpid)
    host.agents[0].announce_end("call-1")
    assert host.run(os.getpid) == pid and alive(pid)


def test_a_notice_during_the_set_up_is_kept_until_it_can_be_heard(tmp_path: Path) -> None:
    hosts = Hosts()
    try:
        hosts.open(env_vars={"NEW": "zygote"})
        [running] = hosts.start(begin_and_wait, str(tmp_path))
        child = hosts.agents[0]._tenancy._child
        assert child is not None
        child.terminate()
        assert failure_of(running).reason == "Preempted"
        assert hosts.run(programs.give, 1) == 1
    finally:
        hosts.stop()

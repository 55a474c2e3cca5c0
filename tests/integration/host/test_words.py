"""What is said on a host outside of a rank's own process: by its children, and before there is a rank."""

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from kinetic_ray.core.names import JobKeys
from kinetic_ray.errors import ConfigError
from kinetic_ray.runner.agent import HostAgent
from kinetic_ray.runner.calls.failures import CallFailure
from kinetic_ray.runner.link import NotReady
from kinetic_ray.store import MissingKey, Store
from tests.integration.host import child_programs
from tests.integration.host.gangs import JOB_ID, Gang, alive
from tests.integration.host.hosts import Hosts
from tests.waiting import wait_until

MakeGang = Callable[..., Gang]


def test_what_children_of_a_rank_say_is_in_its_log(gang_of: MakeGang) -> None:
    gang = gang_of()
    gang.run(child_programs.start_all_kinds)
    lines = gang.log().splitlines()
    assert (lines[0], lines[-1]) == ("the rank itself", "the rank's end")
    said = {f"{who} to {where}" for who in ("shell", "python", "spawned") for where in ("stdout", "stderr")}
    assert set(lines[1:-1]) == said


def test_a_child_is_heard_while_it_lives(gang_of: MakeGang, tmp_path: Path) -> None:
    gang = gang_of()
    gang.start(child_programs.start_one_that_waits, str(tmp_path / "gate"))
    wait_until(lambda: "said while it lives\n" in _log_so_far(gang), what="the child's words")
    (tmp_path / "gate").touch()
    assert gang.outcome().ok


def test_a_killed_child_loses_nothing(gang_of: MakeGang, tmp_path: Path) -> None:
    gang = gang_of()
    gang.start(child_programs.start_one_that_is_killed, str(tmp_path / "gate"))
    wait_until(lambda: "said while it lives\n" in _log_so_far(gang), what="the child's words")
    (tmp_path / "gate").touch()
    assert gang.outcome().ok
    assert gang.log() == "said while it lives\n"


def test_a_daemon_is_heard_until_it_is_killed_with_the_rank(gang_of: MakeGang, tmp_path: Path) -> None:
    gang = gang_of()
    gang.start(child_programs.start_a_daemon, str(tmp_path / "pid"))
    pid = wait_until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text(), what="the daemon")
    wait_until(lambda: f"daemon {pid}\n" in _log_so_far(gang), what="the daemon's words")
    gang.fence()
    assert not alive(int(pid))
    assert gang.log() == f"daemon {pid}\n"


def test_who_wants_buffers_has_them(gang_of: MakeGang) -> None:
    assert gang_of().run(os.getenv, "PYTHONUNBUFFERED") == ["1"]
    own = gang_of(env_vars={"PYTHONUNBUFFERED": ""})
    own.attempt = 10  # they share a job's records
    assert own.run(os.getenv, "PYTHONUNBUFFERED") == [""]


def _log_so_far(gang: Gang) -> str:
    try:
        return gang.log()
    except MissingKey:
        return ""


# Before there is a rank.


@pytest.fixture
def says_and_dies(tmp_path: Path) -> dict[str, str]:
    """Variables with which an interpreter says more than a message holds, and ends while it starts."""
    site = tmp_path / "site"
    site.mkdir()
    script = "import os\nfor n in range(50): os.write(2, b'word %d\\n' % n)\nos.write(1, b'no newline')\nos._exit(3)\n"
    (site / "sitecustomize.py").write_text(script)
    return {"PYTHONPATH": str(site)}


def test_an_interpreter_that_cannot_start_says_why(tmp_path: Path) -> None:
    agent = HostAgent()
    with pytest.raises(ConfigError, match=r"ended before it was ready; it said:\n(.*\n)*.*(encodings|Fatal Python)"):
        agent.prepare({"env_vars": {"PYTHONHOME": str(tmp_path / "nowhere")}})
    agent.stop()


def test_the_words_of_a_zygote_that_never_was_are_the_ranks_log(store: Store, says_and_dies: dict[str, str]) -> None:
    agent = HostAgent()
    key = JobKeys(JOB_ID).log(1, 1, 0)
    with pytest.raises(NotReady) as caught:
        agent.prepare({"env_vars": says_and_dies}, (store.url, key))
    told = str(caught.value).splitlines()
    assert re.search(r"can't prepare the runtime 'plain': its process ended before it was ready; it said:$", told[0])
    assert told[1:] == [*(f"  word {number}" for number in range(31, 50)), "  no newline"]
    log = store.get(key).decode().splitlines()
    assert log[:51] == [*(f"word {number}" for number in range(50)), "no newline"]
    assert log[51:] == [f"kinetic: {told[0].removesuffix('; it said:')}"]
    agent.stop()


def test_callers_hear_them_as_well(says_and_dies: dict[str, str]) -> None:
    hosts = Hosts(1, 0)
    try:
        with pytest.raises(CallFailure, match=r"ended before it was ready; it said:\n(.*\n)*  no newline") as caught:
            hosts.open(env_vars=says_and_dies)
        assert caught.value.reason == "SetupError"
    finally:
        hosts.stop()


def test_a_host_that_lacks_what_is_asked_for_says_so_in_the_log(store: Store) -> None:
    agent = HostAgent()
    key = JobKeys(JOB_ID).log(1, 1, 0)
    with pytest.raises(Exception, match="cobol"):
        agent.prepare({"runtime": "cobol"}, (store.url, key))
    assert store.get(key).decode().startswith("kinetic: unknown runtime 'cobol'")


def test_a_log_that_cannot_be_written_hides_no_failure(store: Store, says_and_dies: dict[str, str]) -> None:
    agent = HostAgent()
    with pytest.raises(NotReady):
        agent.prepare({"env_vars": says_and_dies}, (store.url + "-gone", JobKeys(JOB_ID).log(1, 1, 0)))
    agent.stop()

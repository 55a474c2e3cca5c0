"""How a rank can end, and what is left of it."""

import os
import resource
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kinetic_ray import bundle
from kinetic_ray.core.names import JobKeys
from kinetic_ray.core.outcome import Outcome
from kinetic_ray.core.spec import BundleRef, Fingerprint
from kinetic_ray.core.state import Reason
from kinetic_ray.errors import ConfigError, UsageError
from kinetic_ray.journal import JobJournal
from kinetic_ray.runner.agent import HostAgent
from kinetic_ray.store import Store
from tests.integration.host import programs
from tests.integration.host.gangs import JOB_ID, Gang, alive
from tests.waiting import wait_until

MakeGang = Callable[..., Gang]


def test_a_value_is_stored_checked_and_published(gang_of: MakeGang, store: Store) -> None:
    gang = gang_of()
    assert gang.run(programs.give, {"loss": [0.5, 0.25]}) == [{"loss": [0.5, 0.25]}]
    messages = gang.messages(0)
    published = JobJournal(store, JOB_ID).outcome(1, 1, 0)
    assert published is not None
    assert published.to_dict() == messages[-1]["outcome"]
    assert (published.ok, published.exit_code) == (True, 0)


def test_a_value_that_nobody_asked_for_is_neither_pickled_nor_stored(gang_of: MakeGang, store: Store) -> None:
    gang = gang_of()
    gang.start(programs.unpicklable, keeps_value=False)
    outcome = gang.outcome()
    assert (outcome.ok, outcome.value, outcome.exit_code) == (True, None, 0)
    assert not store.exists(JobKeys(JOB_ID).value(1, 1, 0))
    gang.start(programs.leave_at_once, 3, keeps_value=False)
    assert not gang.outcome().ok


def test_phases_are_told_in_order(gang_of: MakeGang) -> None:
    gang = gang_of()
    gang.start(programs.give, 1)
    phases = [message["phase"] for message in gang.messages(0) if message["t"] == "phase"]
    assert phases == ["fetch", "verify", "unpack", "init", "load", "call", "store", "finish"]


def test_an_exception_comes_back_as_itself(gang_of: MakeGang) -> None:
    gang = gang_of()
    gang.start(programs.raise_keyword_only)
    outcome = gang.outcome()
    assert (outcome.reason, outcome.phase, outcome.exit_code) == ("UserError", "call", 1)
    assert outcome.error is not None
    assert (outcome.error.type_name, outcome.error.message) == ("KeywordOnly", "code 7")
    assert outcome.error.traceback.count("Traceback") == 2
    assert "kinetic_ray/runner" not in outcome.error.traceback
    assert outcome.error.traceback in gang.log()
    assert outcome.error.traceback.strip().splitlines()[-1] in outcome.log_tail
    error = gang.error()
    assert isinstance(error, programs.KeywordOnly)
    assert error.code == 7
    assert isinstance(error.__cause__, KeyError)


def test_a_group_of_exceptions_comes_back(gang_of: MakeGang) -> None:
    gang = gang_of()
    gang.start(programs.raise_group)
    assert gang.outcome().reason == "UserError"
    error = gang.error()
    assert isinstance(error, ExceptionGroup)
    assert [type(member) for member in error.exceptions] == [ValueError, programs.KeywordOnly]


def test_a_value_that_cannot_be_pickled_keeps_its_repr(gang_of: MakeGang) -> None:
    gang = gang_of()
    gang.start(programs.unpicklable)
    outcome = gang.outcome()
    assert (outcome.reason, outcome.phase) == ("ResultError", "store")
    assert outcome.error is not None
    assert "generator" in (outcome.error.value_repr or "")


@pytest.mark.parametrize("code", [0, None])
def test_leaving_with_success_is_a_return(gang_of: MakeGang, code: Any) -> None:
    assert gang_of().run(programs.leave, code) == [None]


@pytest.mark.parametrize("code", [1, "x"])
def test_leaving_with_failure_is_a_failure(gang_of: MakeGang, code: Any) -> None:
    gang = gang_of()
    gang.start(programs.leave, code)
    outcome = gang.outcome()
    assert (outcome.ok, outcome.reason, outcome.message) == (False, "UserError", f"SystemExit: {code}")


@pytest.mark.parametrize("code", [0, 3])
def test_a_process_that_just_ends_is_a_failure(gang_of: MakeGang, code: int) -> None:
    gang = gang_of()
    gang.start(programs.leave_at_once, code)
    outcome = gang.outcome()
    assert (outcome.ok, outcome.reason, outcome.exit_code) == (False, "ProcessDied", code)
    assert f"exited with code {code} before the function returned" in outcome.message


def test_what_was_printed_before_an_exception_stands_before_its_traceback(gang_of: MakeGang) -> None:
    def says_and_fails() -> None:
        sys.stdout.write("no newline at its end")
        raise ValueError("x")

    gang = gang_of()
    gang.start(says_and_fails)
    assert gang.outcome().reason == "UserError"
    assert gang.log().startswith("no newline at its endTraceback (most recent call last)")


def test_last_words_before_a_kill_are_in_the_log(gang_of: MakeGang) -> None:
    gang = gang_of()
    gang.start(programs.die_after_words)
    outcome = gang.outcome()
    assert (outcome.reason, outcome.exit_code) == ("ProcessDied", -signal.SIGKILL)
    assert "SIGKILL" in outcome.message
    assert outcome.log_tail.splitlines() == ["from C", "last words"]


def test_exit_handlers_run(gang_of: MakeGang, tmp_path: Path) -> None:
    gang_of().run(programs.register_exit, str(tmp_path / "flushed"))
    assert (tmp_path / "flushed").read_text() == "flushed"


@pytest.mark.parametrize("then", ["return", "wait"])
def test_daemons_in_their_own_session_end_with_the_rank(gang_of: MakeGang, tmp_path: Path, then: str) -> None:
    gang = gang_of()
    gang.start(programs.leave_daemon, str(tmp_path / "daemon"), then)
    pid = int(wait_until(lambda: (tmp_path / "daemon").exists() and (tmp_path / "daemon").read_text()))
    if then == "wait":
        assert alive(pid)
        gang.fence()
    gang.outcome()
    assert not alive(pid)


def test_a_rank_finds_its_surroundings(gang_of: MakeGang, store: Store, tmp_path: Path) -> None:
    gang = gang_of(env_vars={"MY_SETTING": "1"})
    outputs = str(tmp_path / "outputs")
    [found] = gang.run(programs.surroundings, argv=("train.py", "--fast"), output_dir=outputs, env={"MY_LATE": "2"})
    assert found["argv"] == ["train.py", "--fast"]
    assert found["stdin"] == ""
    assert found["rank"] == 0
    assert found["output_dir"] == outputs
    assert (tmp_path / "outputs" / "0.txt").read_text() == "kept"
    assert not found["cwd"].startswith(str(Path.cwd()))
    assert (
        found["env"].items()
        >= {
            "KINETIC_JOB_ID": JOB_ID,
            "KINETIC_ATTEMPT": "1",
            "KINETIC_RANK": "0",
            "KINETIC_WORLD_SIZE": "1",
            "KINETIC_OUTPUT_DIR": outputs,
            "KINETIC_STORE": store.url,
            "KERAS_BACKEND": "jax",
            "MY_SETTING": "1",
            "MY_LATE": "2",
        }.items()
    )
    gang.stop()
    assert not Path(found["cwd"]).exists()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux says whom it ends first")
def test_a_rank_goes_first_when_memory_runs_out(gang_of: MakeGang) -> None:
    own = programs.score_for_memory()
    [score] = gang_of().run(programs.score_for_memory)
    assert score == max(own, 500)


def _crash_below() -> tuple[int, int, list[str]]:
    crashed = subprocess.run([sys.executable, "-c", "import os; os.abort()"], check=False)
    soft, hard = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (hard, hard))  # who wants core files has them
    return crashed.returncode, soft, [str(path) for path in Path().glob("core*")]


def test_a_crash_writes_no_core_file(gang_of: MakeGang) -> None:
    before = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (before[1], before[1]))  # of the shell that starts a cluster, say
    try:
        gang = gang_of()
    finally:
        resource.setrlimit(resource.RLIMIT_CORE, before)
    assert gang.run(_crash_below) == [(-signal.SIGABRT, 0, [])]


def test_a_place_that_nothing_can_write_to_is_refused_before_the_call(gang_of: MakeGang) -> None:
    gang = gang_of()
    gang.start(programs.surroundings, output_dir="gs://bucket/x")
    outcome = gang.outcome()
    assert (outcome.ok, outcome.reason, outcome.phase) == (False, Reason.SETUP_ERROR, "unpack")
    assert "output_dir='gs://bucket/x'" in outcome.message


def test_a_rank_finds_its_sibling_modules_and_files(gang_of: MakeGang, store: Store, tmp_path: Path) -> None:
    project = tmp_path / "project"
    (project / "lib").mkdir(parents=True)
    (project / "pyproject.toml").touch()
    (project / "lib" / "sibling_module.py").write_text("NAME = 'sibling '")
    (project / "data.txt").write_text("and data")
    made = bundle.find_project(programs.use_sibling, project / "main.py").build()
    assert made is not None
    ref = BundleRef(store.put_blob(made.data), ("lib",), ".")
    assert gang_of().run(programs.use_sibling, bundle=ref) == ["sibling and data"]


def test_reports_arrive_in_order_before_the_end(gang_of: MakeGang) -> None:
    gang = gang_of()
    gang.start(programs.report_steps, 50)
    reports = [message for message in gang.messages(0) if message["t"] == "report"]
    assert [(r["step"], r["total"], r["metrics"]) for r in reports] == [
        (step, 50, {"loss": 1.0 / (step + 1)}) for step in range(50)
    ]


def test_children_start_with_one_thread_and_their_own_random_numbers(gang_of: MakeGang) -> None:
    gang = gang_of(1, 1)
    assert gang.agents[0].prepare(gang.plan.to_dict())["forks"]
    first, second = gang.run(programs.random_numbers), gang.run(programs.random_numbers)
    assert {*first[0]}.isdisjoint(second[0])


def test_where_a_fork_is_not_safe_ranks_are_new_interpreters(gang_of: MakeGang) -> None:
    gang = gang_of(2, 2, env_vars={"OPENBLAS_NUM_THREADS": "2"})  # leaves a thread in the zygote
    assert not gang.agents[0].prepare(gang.plan.to_dict())["forks"]
    assert gang.run(programs.all_reduce) == [(4, 6.0)] * 2
    [pid, _] = gang.start(programs.wait_forever)
    gang.fence()
    assert not alive(pid)


def test_a_zygote_outlives_the_thread_that_asked_for_it(gang_of: MakeGang) -> None:
    gang = gang_of()
    plan = {**gang.plan.to_dict(), "env_vars": {"MY_SETTING": "3"}}
    answers: list[dict[str, Any]] = []
    asking = threading.Thread(target=lambda: answers.append(gang.agents[0].prepare(plan)))
    asking.start()
    asking.join()
    assert gang.run(programs.give, 1) == [1]
    assert gang.agents[0].prepare(plan)["pid"] == answers[0]["pid"]


def test_another_python_is_refused_before_unpickling(gang_of: MakeGang) -> None:
    gang = gang_of()
    gang.start(programs.give, 1, client=Fingerprint("3.9.1", "2.60.0", "3.0", "0.1"))
    outcome = gang.outcome()
    assert (outcome.reason, outcome.phase) == ("SetupError", "verify")
    assert "Python 3.9.1" in outcome.message


def test_a_payload_that_cannot_be_loaded_is_a_setup_error(gang_of: MakeGang, store: Store) -> None:
    gang = gang_of()
    gang.start(programs.give, 1, payload=store.put_blob(b"no pickle"))
    outcome = gang.outcome()
    assert (outcome.reason, outcome.phase) == ("SetupError", "load")


def test_a_damaged_payload_is_refused(gang_of: MakeGang, store: Store) -> None:
    gang = gang_of()
    blob = store.put_blob(b"something")
    [key] = [key for key in store.walk("blobs") if blob.sha256 in key]
    Path(store.uri(key)).chmod(0o644)
    Path(store.uri(key)).write_bytes(b"otherwise")
    gang.start(programs.give, 1, payload=blob)
    outcome = gang.outcome()
    assert (outcome.reason, outcome.phase) == ("SetupError", "fetch")


def test_equal_plans_share_a_zygote_and_others_do_not(gang_of: MakeGang) -> None:
    gang = gang_of()
    [agent] = gang.agents
    first = agent.prepare(gang.plan.to_dict())
    assert agent.prepare(gang.plan.to_dict())["pid"] == first["pid"]
    other = agent.prepare({**gang.plan.to_dict(), "env_vars": {"MY_SETTING": "2"}})
    assert other["pid"] != first["pid"]
    assert not alive(first["pid"])


def test_a_runtime_that_is_missing_is_a_clear_error(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "scratch").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "scratch"))
    agent = HostAgent()
    with pytest.raises(ConfigError, match=r"prepare the runtime .jax.: .*no jax here"):
        agent.prepare({"runtime": "jax", "env_vars": {"PYTHONSAFEPATH": "1", "PYTHONPATH": _broken_jax(store)}})
    agent.stop()
    assert [*(tmp_path / "scratch").iterdir()] == []


def test_an_unknown_runtime_is_refused() -> None:
    with pytest.raises(UsageError, match="one of plain, jax"):
        HostAgent().prepare({"runtime": "cobol"})


def _broken_jax(store: Store) -> str:
    folder = Path(store.uri("")).parent / "broken"
    (folder / "jax").mkdir(parents=True)
    (folder / "jax" / "__init__.py").write_text("raise ImportError('no jax here')")
    return os.pathsep.join([str(folder), *sys.path])


def test_a_fenced_attempt_never_starts(gang_of: MakeGang) -> None:
    gang = gang_of()
    gang.agents[0].fence(1)
    with pytest.raises(UsageError, match=r"attempt 1 .* is fenced"):
        gang.start(programs.give, 1)
    assert gang.run(programs.give, 2) == [2]


def test_starting_an_attempt_twice_starts_it_once(gang_of: MakeGang) -> None:
    gang = gang_of()
    first = gang.start(programs.wait_forever)
    assert gang.start_ranks([0]) == first


def test_a_later_attempt_fences_the_one_before(gang_of: MakeGang) -> None:
    gang = gang_of()
    [pid] = gang.start(programs.wait_forever)
    assert gang.run(programs.give, 1) == [1]
    assert not alive(pid)


def test_a_lost_zygote_is_replaced(gang_of: MakeGang) -> None:
    gang = gang_of()
    zygote = gang.agents[0].prepare(gang.plan.to_dict())["pid"]
    [pid] = gang.start(programs.wait_forever)
    os.kill(zygote, signal.SIGKILL)
    outcome = gang.outcome()
    assert (outcome.reason, outcome.exit_code) == ("ProcessDied", None)
    wait_until(lambda: not alive(pid))
    assert gang.run(programs.give, 1) == [1]


def test_requests_that_reach_the_zygote_in_one_piece_are_all_served(gang_of: MakeGang) -> None:
    gang = gang_of()
    [pid] = gang.start(programs.wait_forever)
    zygote = gang.agents[0]._zygotes._zygote
    assert zygote is not None
    os.kill(zygote.pid, signal.SIGSTOP)
    for _ in range(3):  # several fences at once, say
        zygote._lines.send({"op": "kill", "pid": pid})
    os.kill(zygote.pid, signal.SIGCONT)
    assert gang.outcome().exit_code == -signal.SIGKILL
    assert gang.run(programs.give, 1) == [1]


@pytest.mark.parametrize(
    "words",
    [
        "no JSON",
        "[1]",
        "{}",
        '{"t": "ended", "ok": true}',
        '{"t": "outcome", "outcome": {"rank": 0, "ok": true, "x": 1}}',
    ],
)
def test_a_rank_that_talks_nonsense_to_its_agent_is_ended(gang_of: MakeGang, words: str) -> None:
    gang = gang_of()
    [pid] = gang.start(programs.talk_to_the_agent, words)
    outcome = gang.outcome()
    assert (outcome.ok, outcome.reason) == (False, "ProcessDied")
    assert "could not understand the rank" in outcome.message
    assert not alive(pid)
    assert gang.run(programs.give, 1) == [1]


def test_ends_are_told_again_and_unknown_attempts_refused(gang_of: MakeGang) -> None:
    gang = gang_of()
    gang.start(programs.give, 1)
    last = gang.messages(0)[-1]
    assert gang.agents[0].next(1, 0.0) == [last]
    with pytest.raises(UsageError, match="never started"):
        gang.agents[0].next(9, 0.0)


_AGENT = """
import sys
from kinetic_ray.store import open_store
from tests.integration.host import programs
from tests.integration.host.gangs import Gang
gang = Gang(open_store(sys.argv[1]), 2)
pids = gang.start(programs.leave_daemon, sys.argv[2], "wait")
zygotes = [agent.prepare(gang.plan.to_dict())["pid"] for agent in gang.agents]
print(*pids, *zygotes, flush=True)
sys.stdin.read()
"""


def test_a_killed_agent_leaves_nothing(store: Store, tmp_path: Path) -> None:
    path = tmp_path / "daemon"
    command = [sys.executable, "-c", _AGENT, store.url, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as agent:
        assert agent.stdout is not None
        pids = [int(word) for word in agent.stdout.readline().split()]
        pids.append(int(wait_until(lambda: path.exists() and path.read_text())))
        folders = {Path(f"/proc/{pid}/cwd").readlink().parents[1] for pid in pids[:2]}
        assert len(pids) == 5
        assert all(alive(pid) for pid in pids)
        agent.kill()
    wait_until(lambda: not any(alive(pid) for pid in pids), what="all processes to end")
    wait_until(lambda: not any(folder.exists() for folder in folders), what="the working folders to go")


def test_published_outcomes_are_not_overwritten(gang_of: MakeGang, store: Store) -> None:
    gang = gang_of()
    JobJournal(store, JOB_ID).publish_outcome(1, 1, Outcome(0, False, "Cancelled"))
    gang.start(programs.give, 1)
    gang.outcome()
    published = JobJournal(store, JOB_ID).outcome(1, 1, 0)
    assert published is not None
    assert published.reason == "Cancelled"


def test_a_notice_reaches_a_rank_that_is_about_to_start(gang_of: MakeGang) -> None:
    gang = gang_of()
    gang.agents[0].announce_end(1)
    gang.start(programs.wait_forever)
    assert gang.outcome().exit_code == -signal.SIGTERM
    gang.start(programs.wait_forever)  # the next attempt has had no notice
    gang.agents[0].announce_end(1)
    assert gang.agents[0].next(2, 1.0)
    gang.agents[0].announce_end(2)
    assert gang.outcome().exit_code == -signal.SIGTERM


def test_a_notice_is_not_lost_on_a_child_that_has_not_yet_left_its_zygote(gang_of: MakeGang) -> None:
    gang = gang_of()
    for _ in range(5):
        gang.start(programs.wait_forever)
        gang.agents[0].announce_end(gang.attempt)
        assert gang.outcome().exit_code == -signal.SIGTERM

"""`kinetic jobs` over a store that holds jobs as drivers record them; no cluster."""

import json
import os
import pickle
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
from click.testing import CliRunner, Result

from kinetic_ray.cli.main import root
from kinetic_ray.core.state import Event, EventKind, JobStatus
from kinetic_ray.store import open_store
from tests.unit.cli_jobs import BACKEND, Recorder

NASTY = b"[red]x[/red] [/path] [link\x1b[2J\x1b]0;t\x07\nplain \xff\x1b[31mred\x1b[0m\n"


class Kinetic:
    """Runs commands against one store."""

    def __init__(self, folder: Path) -> None:
        self.record = Recorder(open_store(folder))

    def __call__(self, *args: str) -> Result:
        return CliRunner().invoke(root, list(args))

    def json(self, *args: str, code: int = 0) -> Any:
        done = self(*args, "--json")
        assert done.exit_code == code, done.output
        return json.loads(done.stdout)

    def refusal(self, *args: str) -> tuple[int, dict[str, Any]]:
        """The exit code and the error's JSON form; checks that people are told the same in a line or two."""
        told, done = self(*args), self(*args, "--json")
        assert told.exit_code == done.exit_code
        assert "Traceback (most recent call last)" not in told.stderr
        error: dict[str, Any] = json.loads(done.stderr.splitlines()[-1])["error"]
        assert error["exit_code"] == done.exit_code
        assert error["message"].splitlines()[0] in told.stderr
        return done.exit_code, error


@pytest.fixture
def kinetic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kinetic:
    monkeypatch.setenv("KINETIC_STORE", str(tmp_path / "store"))
    monkeypatch.setenv("KINETIC_BACKEND", BACKEND)
    return Kinetic(tmp_path / "store")


def test_list_shows_the_newest_first_and_whole_ids(kinetic: Kinetic) -> None:
    first, second = kinetic.record.succeeded(1), kinetic.record.running(2, num_slices=2)
    rows = [line.split() for line in kinetic("jobs", "list").stdout.splitlines()]
    assert rows[0] == ["JOB", "STATE", "STAGE", "FUNCTION", "ACCELERATOR", "AGE", "DURATION"]
    assert rows[1][:6] == [second.job_id, "RUNNING", "run", "train", "tpu-v6e-16", "x2"]
    assert rows[2][:5] == [first.job_id, "SUCCEEDED", "-", "train", "tpu-v6e-16"]
    assert rows[2][-2:] == ["42", "s"]


def test_list_filters(kinetic: Kinetic) -> None:
    done = kinetic.record.succeeded(1, name="baseline", tags=("paper",))
    running = kinetic.record.running(2, func_name="evaluate")

    def ids(*flags: str) -> list[str]:
        return [job["job_id"] for job in kinetic.json("jobs", "list", *flags)["jobs"]]

    assert ids() == [running.job_id, done.job_id]
    assert ids("--state", "succeeded") == ids("--name", "baseline") == ids("--tag", "paper") == [done.job_id]
    assert ids("--name", "evaluate") == ids("-n", "1") == [running.job_id]
    assert ids("--since", "1h") == []
    assert kinetic.json("jobs", "list", "-n", "1")["total"] == 2
    assert kinetic.refusal("jobs", "list", "--state", "RUNING")[0] == 2
    assert kinetic.refusal("jobs", "list", "--since", "yesterday")[0] == 2


def test_an_empty_list_is_no_error_and_says_where_it_looked(kinetic: Kinetic) -> None:
    done = kinetic("jobs", "list")
    assert (done.exit_code, done.stdout) == (0, "")
    assert "store" in done.stderr
    assert kinetic.json("jobs", "list") == {"jobs": [], "unreadable": [], "total": 0}


def test_before_the_first_job_the_list_is_empty_and_nothing_is_made(
    kinetic: Kinetic, kinetic_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KINETIC_STORE")
    assert kinetic.json("jobs", "list")["total"] == 0
    assert list(kinetic_home.iterdir()) == []
    monkeypatch.setenv("KINETIC_STORE", str(kinetic_home / "nowhere"))  # a place of one's own choice is a slip
    assert kinetic.refusal("jobs", "list")[0] == 4


def test_a_job_that_cannot_be_read_is_told_beside_the_others(kinetic: Kinetic) -> None:
    good, bad = kinetic.record.succeeded(1), kinetic.record.running(2)
    kinetic.record.store.put(bad.keys.spec, b"torn")
    done = kinetic("jobs", "list", "--json")
    assert done.exit_code == 4
    document = json.loads(done.stdout)
    assert [job["job_id"] for job in document["jobs"]] == [good.job_id]
    assert bad.job_id in document["unreadable"][0]


def test_status_has_stable_keys(kinetic: Kinetic) -> None:
    job = kinetic.record.running(tags=("a", "b"))
    facts = kinetic.json("jobs", "status", job.job_id)
    assert list(facts) == [
        *("job_id", "status", "phase", "reason", "message", "function", "name", "tags", "accelerator", "num_slices"),
        *("attempt", "created_at", "started_at", "ended_at", "seconds", "progress", "slices", "hosts", "warnings"),
        *("owner", "outputs"),
    ]
    assert facts["outputs"] is None
    assert (facts["status"], facts["phase"], facts["tags"]) == ("RUNNING", "run", ["a", "b"])
    assert [host["phase"] for host in facts["hosts"]] == ["call"] * 4


@pytest.mark.parametrize("own", [True, False])
def test_status_names_the_folder_of_the_outputs_once_there_are_any(kinetic: Kinetic, tmp_path: Path, own: bool) -> None:
    folder = tmp_path / "runs"
    job = kinetic.record.succeeded(**({"output_dir": str(folder)} if own else {}))
    assert "outputs" not in kinetic("jobs", "status", job.job_id).stdout
    if own:
        folder.mkdir()
        (folder / "a.txt").write_text("x")
    else:
        job.store.create(f"{job.keys.outputs}/a.txt", b"x")
    told = kinetic.json("jobs", "status", job.job_id)["outputs"]
    assert (Path(told) / "a.txt").read_text() == "x"
    assert f"outputs  {told}" in kinetic("jobs", "status", job.job_id).stdout


def test_status_of_a_cancelled_job_says_why_once(kinetic: Kinetic) -> None:
    job = kinetic.record.ended(kinetic.record.running(), JobStatus.STOPPED, reason="Cancelled", message="cancelled")
    assert kinetic("jobs", "status", job.job_id).stdout.lower().count("cancelled") == 1
    assert kinetic.json("jobs", "status", job.job_id)["message"] == "cancelled"


def test_outputs_that_cannot_be_listed_are_named_as_given(kinetic: Kinetic) -> None:
    job = kinetic.record.succeeded(output_dir="gs://bucket/x")
    assert kinetic.json("jobs", "status", job.job_id)["outputs"] == "gs://bucket/x"


def test_status_for_people_names_every_host(kinetic: Kinetic) -> None:
    job = kinetic.record.failed()
    text = kinetic("jobs", "status", job.job_id).stdout
    assert "FAILED" in text
    assert "UserError" in text
    assert "ValueError: bad [bold] batch" in text
    assert text.count("tpu-v6e-16-0") == 4


def test_status_tells_that_a_function_has_returned_while_its_process_goes_on(kinetic: Kinetic) -> None:
    job = kinetic.record.running(ranks=2)
    log, at = kinetic.record.drivers[job.job_id], job.spec().created_at + 20
    log.append(Event(EventKind.RANK_PHASE, at, {"rank": 0, "phase": "finish"}))
    assert "finish:" not in kinetic("jobs", "status", job.job_id).stdout  # the other's function still runs
    log.append(Event(EventKind.RANK_ENDED, at, {"rank": 1, "ok": True}))
    assert "run (finish: the function has returned" in kinetic("jobs", "status", job.job_id).stdout


@pytest.mark.parametrize("ref", ["latest", "job-0", "end"])
def test_a_job_is_found_by_part_of_its_id(kinetic: Kinetic, ref: str) -> None:
    job = kinetic.record.succeeded()
    given = {"latest": "latest", "job-0": job.job_id[:8], "end": job.job_id[-6:]}[ref]
    assert kinetic.json("jobs", "status", given)["job_id"] == job.job_id


def test_the_latest_is_the_newest(kinetic: Kinetic) -> None:
    kinetic.record.succeeded(1)
    newest = kinetic.record.succeeded(9)
    assert kinetic.json("jobs", "status", "latest")["job_id"] == newest.job_id


def test_an_ambiguous_part_is_refused_with_the_choices(kinetic: Kinetic) -> None:
    jobs = [kinetic.record.succeeded(number) for number in (1, 2)]
    code, error = kinetic.refusal("jobs", "status", "job-0")
    assert code == 2
    assert all(job.job_id in error["message"] for job in jobs)


@pytest.mark.parametrize("ref", ["job-0000000000e008000000000000", "latest", "../../etc", "nonsense", ""])
@pytest.mark.parametrize("command", ["status", "logs", "result", "cancel", "cleanup"])
def test_an_unknown_job_is_not_found(kinetic: Kinetic, command: str, ref: str) -> None:
    code, error = kinetic.refusal("jobs", command, ref)
    assert (code, error["type"]) == (3, "NotFound")


def test_logs_reach_a_pipe_byte_by_byte(kinetic: Kinetic) -> None:
    job = kinetic.record.succeeded(logs={0: NASTY, 1: b"one\n"})
    assert kinetic("jobs", "logs", job.job_id).stdout_bytes == NASTY
    assert kinetic("jobs", "logs", job.job_id, "-n", "1").stdout_bytes == NASTY.splitlines(keepends=True)[1]
    assert kinetic("jobs", "logs", job.job_id, "-n", "0").stdout_bytes == b""
    assert kinetic("jobs", "logs", job.job_id, "--rank", "1").stdout == "one\n"
    assert kinetic("jobs", "logs", job.job_id, "-f").stdout_bytes == NASTY
    assert kinetic("jobs", "logs", job.job_id, "-f", "-n", "1").stdout_bytes == NASTY.splitlines(keepends=True)[1]


def test_logs_of_all_ranks_are_told_apart(kinetic: Kinetic) -> None:
    job = kinetic.record.succeeded(ranks=2, logs={0: b"a\nb\n", 1: b"c"})
    for follow in ((), ("-f",)):
        assert kinetic("jobs", "logs", job.job_id, "--rank", "all", *follow).stdout == "[0] a\n[0] b\n[1] c\n"
    logs = kinetic.json("jobs", "logs", job.job_id, "--rank", "all")["logs"]
    assert logs == [{"rank": 0, "log": "a\nb\n"}, {"rank": 1, "log": "c"}]


def test_logs_say_why_there_are_none_yet(kinetic: Kinetic) -> None:
    job = kinetic.record.pending()
    done = kinetic("jobs", "logs", job.job_id)
    assert (done.exit_code, done.stdout) == (0, "")
    assert "no log yet: PENDING, queue: waiting for a driver" in done.stderr


def test_no_log_will_come_of_a_job_that_ended_without(kinetic: Kinetic) -> None:
    job = kinetic.record.failed()
    assert f"{job.job_id} has no log: FAILED, ended: ValueError" in kinetic("jobs", "logs", job.job_id).stderr


def test_logs_of_a_rank_that_printed_nothing_lead_to_the_one_that_failed(kinetic: Kinetic) -> None:
    job = kinetic.record.failed(ranks=4, logs={0: b"", 1: b"", 2: b""})
    hint = f"; rank 2 failed: kinetic jobs logs {job.job_id} --rank 2\n"
    for flags, told in {
        (): f"rank 0 of {job.job_id} has printed nothing{hint}",
        ("--rank", "1"): f"rank 1 of {job.job_id} has printed nothing{hint}",
        ("--rank", "2"): f"rank 2 of {job.job_id} has printed nothing\n",
        ("--rank", "0", "--attempt", "1"): f"rank 0 of {job.job_id} has printed nothing\n",
        ("--rank", "all"): f"no rank of {job.job_id} has printed anything\n",
        ("-n", "0"): "",
    }.items():
        done = kinetic("jobs", "logs", job.job_id, *flags)
        assert (done.exit_code, done.stdout) == (0, "")
        assert done.stderr.endswith(told), flags
        assert bool(told) == bool(done.stderr)


@pytest.mark.parametrize(
    ("flags", "code"),
    [
        (("--rank", "7"), 3),
        (("--attempt", "9"), 3),
        (("--rank", "x"), 2),
        (("--rank", "-1"), 2),
        (("-n", "-3"), 2),
        (("-f", "--attempt", "1"), 2),
    ],
)
def test_logs_of_what_is_not_there_are_refused(kinetic: Kinetic, flags: tuple[str, ...], code: int) -> None:
    job = kinetic.record.succeeded(logs={0: b"a\n"})
    assert kinetic.refusal("jobs", "logs", job.job_id, *flags)[0] == code
    assert kinetic("jobs", "logs", job.job_id, "-f", "--rank", "7").exit_code == 3


@pytest.mark.parametrize("lines", [1, 2, 3, 5000])
def test_the_tail_of_a_long_log_is_exact(kinetic: Kinetic, lines: int) -> None:
    text = "".join(f"line {n} {'x' * (n % 97)}\n" for n in range(4000)) + "no newline"
    job = kinetic.record.succeeded(logs={0: text.encode()})
    expected = "".join(text.splitlines(keepends=True)[-lines:])
    for flags in ((), ("-f",)):
        assert kinetic("jobs", "logs", job.job_id, "-n", str(lines), *flags).stdout == expected


def test_result_prints_the_repr_and_json_the_value(kinetic: Kinetic) -> None:
    job = kinetic.record.succeeded(value={"accuracy": 0.97, "name": "[bold]x"})
    assert kinetic("jobs", "result", job.job_id).stdout == "{'accuracy': 0.97, 'name': '[bold]x'}\n"
    document = kinetic.json("jobs", "result", job.job_id)
    assert document["value"] == {"accuracy": 0.97, "name": "[bold]x"}
    assert document["status"] == "SUCCEEDED"


def test_a_value_that_json_cannot_hold_is_told_by_its_repr(kinetic: Kinetic) -> None:
    job = kinetic.record.succeeded(value={1, 2})
    document = kinetic.json("jobs", "result", job.job_id)
    assert (document["value"], document["repr"]) == (None, "{1, 2}")


def test_a_value_goes_to_a_file_without_being_read(kinetic: Kinetic, tmp_path: Path) -> None:
    job = kinetic.record.succeeded(value=b"anything")
    target = tmp_path / "value.pkl"
    target.write_bytes(b"old")
    assert kinetic("jobs", "result", job.job_id, "-o", str(target)).exit_code == 0
    assert target.read_bytes() == cloudpickle.dumps(b"anything")
    assert pickle.loads(kinetic("jobs", "result", job.job_id, "-o", "-").stdout_bytes) == b"anything"
    assert kinetic.refusal("jobs", "result", job.job_id, "-o", str(tmp_path / "no" / "folder"))[0] == 4
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["store", "value.pkl"]


def test_a_damaged_value_is_never_printed(kinetic: Kinetic) -> None:
    job = kinetic.record.succeeded(value="good")
    key = job.keys.value(1, 1, 0)
    kinetic.record.store.put(key, cloudpickle.dumps("evil"))
    code, error = kinetic.refusal("jobs", "result", job.job_id)
    assert (code, error["type"]) == (4, "DataError")


@pytest.mark.parametrize("reason", ["UserError", "SetupError", "OutOfMemory"])
def test_an_exception_keeps_the_reason_that_the_job_ended_for(kinetic: Kinetic, reason: str) -> None:
    job = kinetic.record.failed(1, ImportError("no module named 'there'"), reason)
    code, error = kinetic.refusal("jobs", "result", job.job_id)
    assert (code, error["exception"], error["reason"]) == (1, "ImportError", reason)


def test_the_users_exception_is_the_answer_not_a_crash(kinetic: Kinetic) -> None:
    job = kinetic.record.failed()
    code, error = kinetic.refusal("jobs", "result", job.job_id)
    assert (code, error["exception"], error["job_id"]) == (1, "ValueError", job.job_id)
    text = kinetic("jobs", "result", job.job_id).stderr
    assert "ValueError: bad [bold] batch" in text
    assert "rank 2" in text
    assert "Traceback (remote)" in text


@pytest.mark.parametrize("raised", [TimeoutError("user's own"), OSError(2, "user's own"), KeyError("k")])
def test_the_users_exception_never_picks_the_exit_code(kinetic: Kinetic, raised: Exception) -> None:
    job = kinetic.record.failed(error=raised)
    assert kinetic("jobs", "result", job.job_id).exit_code == 1


def test_a_cancelled_job_has_no_result(kinetic: Kinetic) -> None:
    job = kinetic.record.running()
    assert kinetic("jobs", "cancel", job.job_id).exit_code == 0
    code, error = kinetic.refusal("jobs", "result", job.job_id)
    assert (code, error["type"]) == (1, "JobCancelled")


def test_waiting_ends_with_the_timeout_and_the_job_goes_on(kinetic: Kinetic) -> None:
    job = kinetic.record.running()
    code, error = kinetic.refusal("jobs", "result", job.job_id, "--timeout", "0.05")
    assert (code, error["type"]) == (124, "TimeoutError")
    assert job.state().status is JobStatus.RUNNING
    assert kinetic.refusal("jobs", "result", job.job_id, "--timeout", "soon")[0] == 2


def test_cancel_answers_honestly(kinetic: Kinetic) -> None:
    running, done = kinetic.record.running(1), kinetic.record.succeeded(2)
    facts = kinetic.json("jobs", "cancel", running.job_id)
    assert facts == {"job_id": running.job_id, "status": "STOPPED", "was": "RUNNING"}
    assert running.state().status is JobStatus.STOPPED
    assert kinetic.json("jobs", "cancel", running.job_id)["was"] == "STOPPED"
    code, error = kinetic.refusal("jobs", "cancel", done.job_id)
    assert (code, error["status"]) == (1, "SUCCEEDED")


def test_cleanup_removes_what_has_ended_and_only_with_force_what_runs(kinetic: Kinetic) -> None:
    running, done = kinetic.record.running(1), kinetic.record.succeeded(2)
    assert kinetic.json("jobs", "cleanup", done.job_id)["status"] == "NOT_FOUND"
    assert not done.exists()
    assert kinetic.refusal("jobs", "cleanup", running.job_id)[0] == 1
    assert running.exists()
    assert kinetic("jobs", "cleanup", running.job_id, "--force").exit_code == 0
    assert kinetic.json("jobs", "list") == {"jobs": [], "unreadable": [], "total": 0}
    assert kinetic("jobs", "status", running.job_id).exit_code == 3


def test_a_lost_job_stops_its_clock_and_needs_no_force(kinetic: Kinetic, monkeypatch: pytest.MonkeyPatch) -> None:
    lost = kinetic.record.running()
    monkeypatch.setenv("KINETIC_BACKEND", "tests.unit.cli_jobs:DownBackend")
    log = kinetic.record.drivers[lost.job_id]
    log.append(Event(EventKind.PROGRESSED, lost.spec().created_at + 17, {"step": 3}))
    assert kinetic.json("jobs", "status", lost.job_id)["seconds"] == 7
    assert "ran for  7.0 s" in kinetic("jobs", "status", lost.job_id).stdout
    assert kinetic("jobs", "cleanup", lost.job_id).exit_code == 0
    assert not lost.exists()


def test_a_job_that_was_submitted_only_is_not_lost(kinetic: Kinetic, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KINETIC_BACKEND", "tests.unit.cli_jobs:DownBackend")
    assert kinetic.refusal("jobs", "cleanup", kinetic.record.pending().job_id)[0] == 1


def test_a_job_whose_driver_is_found_again_is_not_lost(kinetic: Kinetic, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KINETIC_BACKEND", "tests.unit.cli_jobs:FoundBackend")
    running = kinetic.record.running()
    assert kinetic("jobs", "cleanup", running.job_id).exit_code == 1
    assert running.exists()


def test_one_is_counted_as_one(kinetic: Kinetic) -> None:
    torn = kinetic.record.running()
    assert "1 job, 0 mended in the index, 0 left-over entries" in kinetic("jobs", "list", "--rebuild").stderr
    kinetic.record.store.put(torn.keys.spec, b"torn")
    assert "1 job can't be read" in kinetic("jobs", "list").stderr


def test_the_flag_store_beats_the_environment(kinetic: Kinetic, tmp_path: Path) -> None:
    other = Recorder(open_store(tmp_path / "other")).succeeded()
    assert kinetic("jobs", "status", other.job_id).exit_code == 3
    assert kinetic("jobs", "status", other.job_id, "--store", str(tmp_path / "other")).exit_code == 0


@pytest.mark.parametrize(
    "setting", [{"KINETIC_PROFILE": "prod"}, {"KINETIC_BACKEND": "gke"}, {"KINETIC_STORE": "ftp://x"}]
)
def test_settings_that_cannot_work_are_trouble(
    kinetic: Kinetic, monkeypatch: pytest.MonkeyPatch, setting: dict[str, str]
) -> None:
    for name, value in setting.items():
        monkeypatch.setenv(name, value)
    code, error = kinetic.refusal("jobs", "status", "latest")
    assert (code, error["type"]) == (4, "ConfigError")


def test_a_store_of_a_newer_version_is_trouble_with_a_way_out(kinetic: Kinetic, tmp_path: Path) -> None:
    (tmp_path / "store" / "format.json").write_text('{"format": "kinetic-store", "version": 7}')
    for command in (("list",), ("status", "latest"), ("logs", "latest")):
        code, error = kinetic.refusal("jobs", *command)
        assert (code, error["type"]) == (4, "ConfigError")
        assert "upgrade" in error["message"]


@pytest.mark.skipif(os.getuid() == 0, reason="root may read everything")
def test_a_store_that_cannot_be_read_is_trouble(kinetic: Kinetic, tmp_path: Path) -> None:
    (tmp_path / "store").chmod(0)
    try:
        assert kinetic.refusal("jobs", "list")[0] == 4
    finally:
        (tmp_path / "store").chmod(0o700)


def test_list_rebuilds_the_index_when_it_is_asked_to(kinetic: Kinetic) -> None:
    job = kinetic.record.succeeded()
    for key in kinetic.record.store.list("index"):
        kinetic.record.store.delete(key)
    assert kinetic.json("jobs", "list")["jobs"] == []
    done = kinetic("jobs", "list", "--rebuild", "--json")
    assert [found["job_id"] for found in json.loads(done.stdout)["jobs"]] == [job.job_id]
    assert "1 job, 1 mended in the index, 0 left-over entries removed" in done.stderr
    assert [found["job_id"] for found in kinetic.json("jobs", "list")["jobs"]] == [job.job_id]


def test_rebuilding_before_the_first_job_makes_nothing(
    kinetic: Kinetic, kinetic_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KINETIC_STORE")
    assert kinetic("jobs", "list", "--rebuild").exit_code == 0
    assert list(kinetic_home.iterdir()) == []
